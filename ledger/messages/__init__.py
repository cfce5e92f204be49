"""Messages as they enter, and what of them is kept (rows D1 to D3 and D5).

Kept are what people said and what the agent finally answered. Tool results, system messages, hidden ones, answers that
only call tools, upload blocks and our own injected memory are not; the rest is kept byte for byte.

    shapes      whatever holds a message, brought to fields by name
    content     the words in its text or its blocks
    hidden      whether its host hides it, and a person said it all the same
    reading     all three: one message, read
    keeping     what of a conversation is kept
"""

from backstory.ledger.messages.hidden import KeepHidden
from backstory.ledger.messages.keeping import Kept, abridge, keep
from backstory.ledger.messages.reading import Message, read_message

__all__ = ["KeepHidden", "Kept", "Message", "abridge", "keep", "read_message"]
