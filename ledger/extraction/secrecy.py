"""Key redaction: keeps an API key out of messages and tracebacks that quote a server or a library."""

from __future__ import annotations

from backstory.ledger.core.sanitize import clip

__all__ = ["redacted", "showable"]


def redacted(text: str, key: str | None, at_most: int) -> str:
    """Return a text as one line of at most `at_most` characters, without the key."""
    # Remove the key before clipping, which could leave a part of it.
    hidden = text.replace(key, "***") if key else text
    return clip(" ".join(hidden.split()), at_most)


def showable(error: BaseException, key: str | None) -> BaseException | None:
    """Return an error as the cause of another one, or None where its text or a cause's text holds the key."""
    link: BaseException | None = error
    while link is not None and key:
        if key in str(link):
            return None
        link = link.__cause__ or link.__context__
    return error
