"""Adding turns and taking them back, through the transcript: what is added is durable, what is gone is on record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from backstory import checks
from backstory.descriptors import translate_verbs
from backstory.ledger.core.errors import NotFoundError
from backstory.metagpt.access import Asked, asked_about, thread_of
from backstory.metagpt.queries import ReadingTurns
from backstory.projections.turns import TurnQuery, TurnView, Words, same_words, words_of
from backstory.results import RecordResult

__all__ = ["DEFAULT_THREAD", "WritingTurns"]

DEFAULT_THREAD = "turns"
"""The conversation of a message that names none, where nobody else does."""


@translate_verbs
class WritingTurns(ReadingTurns):
    """The part of `Turns` that changes what stands."""

    def add(self, message: object, thread: str | None = None) -> RecordResult:
        """Record a message as a new turn; durable when it returns. See `add_batch`."""
        return self.add_batch((message,), thread)

    def add_batch(self, messages: Iterable[object], thread: str | None = None) -> RecordResult:
        """Record messages as new turns; durable when it returns.

        Each goes to `thread`, else to this view's conversation, else to the one it names (`thread_id`), else to
        `turns`. What is there already is skipped: a message by its id and text, a turn that was read here, and with
        `ignore_id`, which leaves ids away, whatever is equal; so is what `record` does not keep. A message without an
        id is new each time.

        Raises:
            InputError: no list of messages, or one that cannot be read; where they are of one conversation none of them
                is recorded.
            UsageError: `thread` is no text.
        """
        if thread is not None:
            checks.text("thread", thread)
        self._door.must_be_open()
        given = checks.messages_in(messages)
        if self._lens.ignore_id:
            with self._door.log.adding:
                return self._record(self._unlike(given), len(given), thread)
        if any(isinstance(message, TurnView) for message in given):
            given, count = self._unknown(given), len(given)
            return self._record(given, count, thread)
        return self._record(given, len(given), thread)

    def _unlike(self, messages: Sequence[object]) -> list[object]:
        """Leave out what is equal to a turn or to a message before it; what is not kept goes along, to be counted."""
        asked = [(message, asked_about(message)) for message in messages]
        new: list[object] = []
        met: dict[int, list[Words]] = {}
        with self._look() as look:
            for message, about in asked:
                if about.said is None:
                    new.append(message)
                elif not look.knows(about.id, about.said):
                    alike = met.setdefault(words_of(about.said), [])
                    if not any(same_words(about.said, other) for other in alike):
                        alike.append(about.said)
                        new.append(_without_id(about))
        return new

    def _unknown(self, messages: Sequence[object]) -> list[object]:
        """Leave out the turns that stand here."""
        with self._look() as look:
            return [message for message in messages if not (isinstance(message, TurnView) and _stands(look, message))]

    def _record(self, messages: Sequence[object], count: int, thread: str | None) -> RecordResult:
        """Record what is left of so many messages, in their order."""
        whose = thread or self._lens.thread
        turns, backlog, threads = 0, False, set()
        for name, part in groupby(messages, key=lambda message: whose or thread_of(message) or DEFAULT_THREAD):
            result = self._door.record(name, [_message(message) for message in part])
            threads.add(name)
            turns += result.turns
            backlog = backlog or result.backlog
        return RecordResult(len(threads), turns, count - turns, backlog)

    def delete(self, message: object) -> TurnView:
        """Take a turn back: one that was read here, or the newest that a message is; returns it.

        It does not stand any more: nobody reads it and nothing is learned from it. Its words stay in the log until
        `forget` erases them, and what was learned from it before stays in memory. With `ignore_id` all go that are
        equal to it.

        Raises:
            NotFoundError: there is no such turn, or no more.
            InputError: it is no message.
        """
        asked = asked_about(message)
        with self._look() as look:
            found = None if asked.said is None else look.known(asked.id, asked.said, thread=asked.thread)
            gone = [] if found is None else look.one_with(found)
        if found is None or not self._withdraw(gone):
            raise NotFoundError(f"there is no such turn{_named(asked)}: `turns.get()` lists those there are")
        return found

    def delete_newest(self) -> TurnView | None:
        """Take the newest turn back and return it, None where there is none; see `delete`."""
        while True:
            with self._look() as look:
                found = look.last()
                gone = [] if found is None else look.one_with(found)
            # Where somebody else was quicker it was not the newest.
            if found is None or self._withdraw(gone):
                return found

    def clear(self) -> int:
        """Take all turns back, beyond a bound too, and return how many; see `delete`.

        What is said meanwhile stays. `memory.clear` is about what was learned, this about what was said.
        """
        self._door.must_be_open()
        return self._withdraw(self._door.log.standing(self._lens.thread))

    def _withdraw(self, turns: Iterable[TurnView]) -> int:
        by_thread: dict[str, list[int]] = {}
        for turn in turns:
            by_thread.setdefault(turn.thread, []).append(turn.n)
        return sum(len(self._door.withdraw(thread, ordinals)) for thread, ordinals in by_thread.items())


def _stands(look: TurnQuery, turn: TurnView) -> bool:
    known = look.known(turn.id, turn, thread=turn.thread)
    return known is not None and known.n == turn.n


def _message(message: object) -> object:
    """Spell a turn that was read somewhere as a message; its id goes along where a host gave it."""
    if not isinstance(message, TurnView):
        return message
    fields = msgspec.structs.asdict(message)
    if message.id == f"t{message.n}":
        del fields["id"]
    return fields


def _without_id(asked: Asked) -> dict[str, object]:
    """Spell a message so that no id, which nobody minds here, makes it take the place of another."""
    fields: dict[str, object] = msgspec.structs.asdict(asked.said) if isinstance(asked.said, msgspec.Struct) else {}
    return {**fields, "id": None, "thread_id": asked.thread}


def _named(asked: Asked) -> str:
    return f" {asked.id}" if asked.id is not None else ""
