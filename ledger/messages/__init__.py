"""Messages: reading them in every shape that hosts use, and filtering what is recorded.

Recorded are the messages of users and the final answers of the agent, byte for byte. Tool results, system messages,
hidden messages, answers that only call tools, upload blocks and injected memory are left out.

    shapes      the fields of a message, and the text of its content, from any object that holds one
    keeping     a Message from these; the filter: which messages of a conversation are recorded
    conversation_file   a file of messages, each with its memory and thread
"""

from backstory.ledger.messages.keeping import KeepHidden, Kept, Message, abridge, keep, read_message

__all__ = ["KeepHidden", "Kept", "Message", "abridge", "keep", "read_message"]
