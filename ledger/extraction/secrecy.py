"""What may be told of a server's or a library's words: never the key that they were asked with."""

from __future__ import annotations

from backstory.ledger.core.sanitize import clip

__all__ = ["redacted", "showable"]


def redacted(text: str, key: str | None, at_most: int) -> str:
    """Return a text as one line of so many characters at most, without the key."""
    # The key goes first: clipping could leave a part of it that no longer matches.
    hidden = text.replace(key, "***") if key else text
    return clip(" ".join(hidden.split()), at_most)


def showable(error: BaseException, key: str | None) -> BaseException | None:
    """Return an error as the cause to show in a traceback, or None where its own text would show the key."""
    link: BaseException | None = error
    while link is not None and key:
        if key in str(link):
            return None
        link = link.__cause__ or link.__context__
    return error
