"""Messages: reading them in every shape that hosts use, and filtering what is recorded.

Recorded are the messages of users and the final answers of the agent, byte for byte. Tool results, system messages,
hidden messages, answers that only call tools, upload blocks and injected memory are left out.

    shapes      the fields of a message, from any object that holds one
    content     the text of a message, from a string or a list of blocks
    hidden      whether a message is hidden by its host and not written by a person
    reading     a Message, from these three
    keeping     the filter: which messages of a conversation are recorded
    conversation_file   a file of messages, each with its memory and thread
"""

from backstory.ledger.messages.keeping import Kept, abridge, keep
from backstory.ledger.messages.reading import KeepHidden, Message, read_message

__all__ = ["KeepHidden", "Kept", "Message", "abridge", "keep", "read_message"]
