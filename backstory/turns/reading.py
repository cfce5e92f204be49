"""Finding turns: what stands of a transcript, in the order it was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import msgspec

from backstory.turns.door import Door, action_name, asked_about
from ledger.errors import UsageError
from projections.turns import Lens, Look, TurnView

__all__ = ["ReadingTurns"]

_ROLES = {"human": "user", "ai": "assistant"}


class ReadingTurns:
    """The part of `Turns` that asks; everything is as new as the transcript, whoever wrote to it."""

    def __init__(self, door: Door, lens: Lens | None = None) -> None:
        self._door = door
        self._lens = lens or Lens()

    def view(self, *, thread: str | None = None, ignore_id: bool | None = None, bound: int | None = None) -> Self:
        """Return the same operations on a part of it; what is not stated stays as it is here.

        `thread` is the conversation, all of them for None; with `ignore_id` messages that are equal but for their ids
        are one, the oldest; `bound` shows so many of the newest, 0 for all: the transcript keeps them all.

        Raises:
            UsageError: a negative bound.
        """
        bound = self._lens.bound if bound is None else _not_negative("bound", bound)
        ignore_id = self._lens.ignore_id if ignore_id is None else ignore_id
        return type(self)(self._door, Lens(self._lens.thread if thread is None else thread, ignore_id, bound))

    def of(self, thread: str) -> Self:
        """Return the same operations on one conversation; there need not be one of that name yet."""
        return self.view(thread=thread)

    @contextmanager
    def _look(self) -> Iterator[Look]:
        self._door.must_be_open()
        with self._door.log.look(self._lens) as look:
            yield look

    def get(self, k: int = 0) -> list[TurnView]:
        """Return the newest `k` turns, or all for 0, in the order they were recorded.

        Raises:
            UsageError: a negative `k`.
        """
        _not_negative("k", k)
        with self._look() as look:
            return look.newest(k)

    def get_by_id(self, turn_id: str) -> TurnView | None:
        """Return the newest turn of an id; conversations number the turns that came without one by themselves."""
        with self._look() as look:
            return look.of_id(turn_id)

    def get_by_role(self, role: str) -> list[TurnView]:
        """Return what was said in a role: user (or human), assistant (or ai); nothing else is kept."""
        with self._look() as look:
            return look.of_role(_ROLES.get(role.casefold(), role.casefold()))

    def get_by_content(self, content: str) -> list[TurnView]:
        """Return the turns that contain a text, letter for letter."""
        return [turn for turn in self.get() if content in turn.content]

    def try_remember(self, keyword: str) -> list[TurnView]:
        """Return the turns that contain a keyword, as `get_by_content`; `search` finds what is like it, too."""
        return self.get_by_content(keyword)

    def get_by_action(self, action: object) -> list[TurnView]:
        """Return the turns that an action caused: its name as `cause_by` has it, its class, or an object of it."""
        return self.get_by_actions((action,))

    def get_by_actions(self, actions: Iterable[object]) -> list[TurnView]:
        """Return the turns that any of some actions caused, in the order they were recorded."""
        names = [action_name(action) for action in ((actions,) if isinstance(actions, str) else actions)]
        with self._look() as look:
            return look.of_actions(names)

    def get_by_position(self, position: int) -> TurnView | None:
        """Return the turn at a position, from 0 for the oldest; None where there is none."""
        with self._look() as look:
            return look.at(position)

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return what is for somebody: `send_to` names them, or `<all>`, or nobody, which means all, too."""
        with self._look() as look:
            return look.addressed_to(name)

    def find_news(self, observed: Iterable[object], k: int = 0) -> list[object]:
        """Return the messages that are not among the newest `k` turns (0: all), in their order.

        A message with an id is known by id and text, without one by all that it says; what memory never keeps is
        always news.

        Raises:
            InputError: one of them is no message.
            UsageError: a negative `k`.
        """
        _not_negative("k", k)
        read = [(message, asked_about(message)) for message in observed]
        with self._look() as look:
            return [
                message
                for message, asked in read
                if asked.said is None or not look.knows(asked.id, asked.said, thread=asked.thread, k=k)
            ]

    def count(self) -> int:
        """Return how many turns there are."""
        with self._look() as look:
            return look.count()

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        # Whether somebody has a memory must not depend on what is in it.
        return True

    def __iter__(self) -> Iterator[TurnView]:
        return iter(self.get())

    def __contains__(self, message: object) -> bool:
        asked = asked_about(message)
        with self._look() as look:
            return asked.said is not None and look.knows(asked.id, asked.said, thread=asked.thread)

    def __repr__(self) -> str:
        stated = ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(self._lens).items() if value)
        return f"{type(self).__name__}({stated})"


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise UsageError(f"{name} is {value}; it is how many of the newest turns to look at, or 0 for all")
    return value
