"""Finding turns: what stands of a transcript, in the order it was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import msgspec

from backstory import checks
from backstory.descriptors import translate_verbs
from backstory.metagpt.access import TurnAccess, action_name, asked_about
from backstory.projections.turns import TurnFilter, TurnQuery, TurnView

__all__ = ["ReadingTurns"]

_ROLES = {"human": "user", "ai": "assistant"}


@translate_verbs
class ReadingTurns:
    """The part of `Turns` that asks; everything is as new as the transcript, whoever wrote to it."""

    def __init__(self, door: TurnAccess, turn_filter: TurnFilter | None = None) -> None:
        self._door = door
        self._lens = turn_filter or TurnFilter()

    def view(self, *, thread: str | None = None, ignore_id: bool | None = None, bound: int | None = None) -> Self:
        """Return the same operations on a part of it; what is not stated stays as it is here.

        `thread` is the conversation, all of them for None; with `ignore_id` messages that are equal but for their ids
        are one, the oldest; `bound` shows so many of the newest, 0 for all: the transcript keeps them all.

        Raises:
            UsageError: a negative bound, or a value of another kind.
        """
        bound = self._lens.bound if bound is None else _newest("bound", bound)
        ignore_id = self._lens.ignore_id if ignore_id is None else checks.flag("ignore_id", ignore_id)
        thread = self._lens.thread if thread is None else checks.text("thread", thread)
        return type(self)(self._door, TurnFilter(thread, ignore_id, bound))

    def of(self, thread: str) -> Self:
        """Return the same operations on one conversation; there need not be one of that name yet.

        Raises:
            UsageError: it is no text.
        """
        return self.view(thread=checks.text("thread", thread))

    @contextmanager
    def _look(self) -> Iterator[TurnQuery]:
        self._door.must_be_open()
        with self._door.log.look(self._lens) as look:
            yield look

    def get(self, k: int = 0) -> list[TurnView]:
        """Return the newest `k` turns, or all for 0, in the order they were recorded.

        Raises:
            UsageError: `k` is negative, or no whole number.
        """
        _newest("k", k)
        with self._look() as look:
            return look.newest(k)

    def get_by_id(self, turn_id: str) -> TurnView | None:
        """Return the newest turn of an id, None where there is none.

        Each conversation numbers by itself the turns that came without an id (`t1`, `t2` …), so several may have one of
        that name; `of(thread)` says which conversation is meant.

        Raises:
            UsageError: the id is no text.
        """
        checks.text("turn_id", turn_id)
        with self._look() as look:
            return look.of_id(turn_id)

    def get_by_role(self, role: str) -> list[TurnView]:
        """Return what was said in a role: user (or human), assistant (or ai); nothing else is kept.

        Raises:
            UsageError: the role is no text.
        """
        wanted = checks.text("role", role).casefold()
        with self._look() as look:
            return look.of_role(_ROLES.get(wanted, wanted))

    def get_by_content(self, content: str) -> list[TurnView]:
        """Return the turns that contain a text, letter for letter.

        Raises:
            UsageError: it is no text.
        """
        checks.text("content", content)
        return [turn for turn in self.get() if content in turn.content]

    def try_remember(self, keyword: str) -> list[TurnView]:
        """Return the turns that contain a keyword, as `get_by_content`; `search` finds what is like it, too.

        Raises:
            UsageError: it is no text.
        """
        return self.get_by_content(checks.text("keyword", keyword))

    def get_by_action(self, action: object) -> list[TurnView]:
        """Return the turns that an action caused: its name as `cause_by` has it, its class, or an object of it."""
        return self.get_by_actions((action,))

    def get_by_actions(self, actions: Iterable[object]) -> list[TurnView]:
        """Return the turns that any of some actions caused, in the order they were recorded.

        Raises:
            UsageError: it is no list of actions.
        """
        names = [action_name(action) for action in checks.actions(actions)]
        with self._look() as look:
            return look.of_actions(names)

    def get_by_position(self, position: int) -> TurnView | None:
        """Return the turn at a position, from 0 for the oldest; None where there is none.

        Raises:
            UsageError: it is no whole number.
        """
        checks.whole("position", position)
        with self._look() as look:
            return look.at(position)

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return what is for somebody: `send_to` names them, or `<all>`, or nobody, which means all, too.

        Raises:
            UsageError: the name is no text.
        """
        checks.text("name", name)
        with self._look() as look:
            return look.addressed_to(name)

    def find_news(self, observed: Iterable[object], k: int = 0) -> list[object]:
        """Return the messages that are not among the newest `k` turns (0: all), in their order.

        A message with an id is known by id and text, without one by all that it says; what memory never keeps is
        always news.

        Raises:
            InputError: it is no list, or one of them no message.
            UsageError: `k` is negative, or no whole number.
        """
        _newest("k", k)
        read = [(message, asked_about(message)) for message in checks.messages_in(observed)]
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


def _newest(name: str, value: int) -> int:
    return checks.whole(name, value, 0, "how many of the newest turns to look at (0 for all), a whole number")
