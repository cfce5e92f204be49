"""Scaffolding in messages of the user: what a harness puts there, by the wrappers of `scaffolding.toml`.

It is no speech, so nothing is learned from it. Only a block at the beginning of a text is recognised.
"""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from backstory.ledger.core.errors import ConfigError

FILE = "scaffolding.toml"
_MOST_BLOCKS = 64


class Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a block of scaffolding begins and ends; see `scaffolding.toml`."""

    name: str
    begins: str
    ends: str | None = None
    whole: bool = False
    after: tuple[str, ...] = ()


class Title(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a prompt begins that asks for something about a conversation."""

    name: str
    begins: str
    role: Literal["user", "system"] = "user"


class Cut(NamedTuple):
    """A block that was taken out: the name of its wrapper, and its length in characters."""

    wrapper: str
    size: int


class Scaffolding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wrappers and the titles that are known, as a file states them."""

    wrapper: tuple[Wrapper, ...] = ()
    title: tuple[Title, ...] = ()

    def stripped(self, text: str, answer: str = "") -> tuple[str, tuple[Cut, ...]]:
        """Return a text without the blocks at its beginning, and those blocks; the same text where it has none.

        Args:
            text: A message of the user, or a part of one.
            answer: The answer before it.
        """
        rest = text.lstrip()
        cuts: list[Cut] = []
        while len(cuts) < _MOST_BLOCKS and (found := self._first(rest, answer)) is not None:
            wrapper, end = found
            cuts.append(Cut(wrapper.name, end))
            rest = rest[end:].lstrip()
        return (rest, tuple(cuts)) if cuts else (text, ())

    def _first(self, text: str, answer: str) -> tuple[Wrapper, int] | None:
        for wrapper in self.wrapper:
            if not text.startswith(wrapper.begins):
                continue
            if wrapper.after and not any(sign in answer for sign in wrapper.after):
                continue
            end = -1 if wrapper.ends is None else text.find(wrapper.ends)
            if end >= 0 and wrapper.ends is not None:
                return wrapper, end + len(wrapper.ends)
            if wrapper.ends is None or wrapper.whole:
                return wrapper, len(text)
        return None

    def is_title(self, role: str, text: str) -> bool:
        """Whether a message asks for something about a conversation, such as its title."""
        start = text.lstrip()
        return any(title.role == role and start.startswith(title.begins) for title in self.title)


def load_scaffolding(folder: Path | None = None) -> Scaffolding:
    """Return the packaged scaffolding, with that of a folder, if it has any.

    Raises:
        ConfigError: The file of the folder cannot be read, or an entry has another shape; the message names both.
    """
    packaged = _packaged()
    own = Scaffolding() if folder is None else _read(folder / FILE)
    return Scaffolding(own.wrapper + packaged.wrapper, own.title + packaged.title)


@lru_cache(maxsize=1)
def _packaged() -> Scaffolding:
    return msgspec.toml.decode(pkgutil.get_data(__name__, FILE) or b"", type=Scaffolding)


def _read(path: Path) -> Scaffolding:
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=Scaffolding)
    except FileNotFoundError:
        return Scaffolding()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file of scaffolding {path} cannot be read: {error}") from error
    entries: tuple[Wrapper | Title, ...] = (*found.wrapper, *found.title)
    for one in entries:
        if not one.begins.strip():
            raise ConfigError(f"{path}: {one.name} begins with nothing, so it would match every message: say what with")
    return found
