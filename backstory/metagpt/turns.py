"""Turns of a memory, with the operations of MetaGPT's Memory over a transcript that keeps everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Self

import msgspec

from backstory import checks
from backstory.aio import in_thread
from backstory.ledger.core.errors import NotFoundError
from backstory.metagpt.messages import action_name, as_message, asked_about, named, thread_of, without_id
from backstory.open_files import translate_verbs
from backstory.projections.turns import MessageWords, TurnFilter, TurnQuery, TurnView, same_words, words_of
from backstory.results import RecordResult
from backstory.services.services import ScopeServices

DEFAULT_THREAD = "turns"
"""The conversation of a message where neither the caller, the view nor the message names one."""

_ROLES = {"human": "user", "ai": "assistant"}


@translate_verbs
class Turns:
    """The recorded turns that stand, of all conversations of a memory or of one; get it from `memory.turns`.

    The operations are those of MetaGPT's Memory, over a transcript on disk: turns that other processes record are seen
    at once. Safe for threads. Every method raises StoreError, LockTimeoutError or CorruptLogError where the store
    cannot be used. Every method that does I/O has an async twin with an `a` before its name.
    """

    def __init__(
        self,
        services: ScopeServices,
        append: Callable[[str, Sequence[object]], RecordResult],
        turn_filter: TurnFilter | None = None,
    ) -> None:
        self._services = services
        self._append = append
        self._filter = turn_filter or TurnFilter()

    # Views.

    def view(self, *, thread: str | None = None, ignore_id: bool | None = None, bound: int | None = None) -> Self:
        """Return the same operations on a part of the turns. What is not given stays as it is here.

        Args:
            thread: The conversation; None for all.
            ignore_id: Messages that are equal but for their ids count as one, the oldest.
            bound: How many of the newest turns to show, 0 for all. The transcript keeps all of them.

        Returns:
            The view.

        Raises:
            UsageError: The bound is negative, or a value is of another kind.
        """
        bound = self._filter.bound if bound is None else _newest("bound", bound)
        ignore_id = self._filter.ignore_id if ignore_id is None else checks.flag("ignore_id", ignore_id)
        thread = self._filter.thread if thread is None else checks.text("thread", thread)
        return type(self)(self._services, self._append, TurnFilter(thread, ignore_id, bound))

    def of(self, thread: str) -> Self:
        """Return the same operations on one conversation.

        Args:
            thread: The conversation's id; there need not be one yet.

        Returns:
            The view.

        Raises:
            UsageError: It is no text.
        """
        return self.view(thread=checks.text("thread", thread))

    # Reading.

    def get(self, k: int = 0) -> list[TurnView]:
        """Return the newest turns.

        Args:
            k: How many; 0 for all.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: `k` is negative, or no whole number.
        """
        _newest("k", k)
        with self._look() as look:
            return look.newest(k)

    def get_by_id(self, turn_id: str) -> TurnView | None:
        """Return the newest turn with an id.

        Each conversation numbers the turns that came without an id (`t1`, `t2` …), so several may have the same id;
        `of(thread)` names the conversation.

        Args:
            turn_id: The id.

        Returns:
            The turn; None where there is none.

        Raises:
            UsageError: The id is no text.
        """
        checks.text("turn_id", turn_id)
        with self._look() as look:
            return look.of_id(turn_id)

    def get_by_role(self, role: str) -> list[TurnView]:
        """Return the turns of a role.

        Args:
            role: user (or human), assistant (or ai); no other turns are kept.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: The role is no text.
        """
        wanted = checks.text("role", role).casefold()
        with self._look() as look:
            return look.of_role(_ROLES.get(wanted, wanted))

    def get_by_content(self, content: str) -> list[TurnView]:
        """Return the turns that contain a text, letter for letter.

        Args:
            content: The text.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: It is no text.
        """
        checks.text("content", content)
        return [turn for turn in self.get() if content in turn.content]

    def try_remember(self, keyword: str) -> list[TurnView]:
        """Return the turns that contain a keyword, as `get_by_content`: MetaGPT has both names. See also `search`.

        Args:
            keyword: The keyword.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: It is no text.
        """
        return self.get_by_content(checks.text("keyword", keyword))

    def get_by_action(self, action: object) -> list[TurnView]:
        """Return the turns that an action caused.

        Args:
            action: Its name as in `cause_by`, its class, or an object of the class.

        Returns:
            The turns in the order they were recorded.
        """
        return self.get_by_actions((action,))

    def get_by_actions(self, actions: Iterable[object]) -> list[TurnView]:
        """Return the turns that any of some actions caused.

        Args:
            actions: Names, classes or objects, as for `get_by_action`.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: It is no list of actions.
        """
        names = [action_name(action) for action in checks.actions(actions)]
        with self._look() as look:
            return look.of_actions(names)

    def get_by_position(self, position: int) -> TurnView | None:
        """Return the turn at a position.

        Args:
            position: From 0 for the oldest.

        Returns:
            The turn; None where there is none.

        Raises:
            UsageError: It is no whole number.
        """
        checks.whole("position", position)
        with self._look() as look:
            return look.at(position)

    def addressed_to(self, name: str) -> list[TurnView]:
        """Return the turns for a receiver.

        Args:
            name: The receiver. Turns for `<all>`, and turns without a receiver, are for every name.

        Returns:
            The turns in the order they were recorded.

        Raises:
            UsageError: The name is no text.
        """
        checks.text("name", name)
        with self._look() as look:
            return look.addressed_to(name)

    def find_news(self, observed: Iterable[object], k: int = 0) -> list[object]:
        """Return the messages that are not among the newest turns.

        A message with an id is known by its id and text, one without by all its fields. A message that memory never
        keeps is always news.

        Args:
            observed: The messages.
            k: Look at this number of the newest turns; 0 for all.

        Returns:
            The messages that are news, in their order.

        Raises:
            InputError: It is no list, or one of them is no message.
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
        """Return the number of turns.

        Returns:
            The number.
        """
        with self._look() as look:
            return look.count()

    # Writing.

    def add(self, message: object, thread: str | None = None) -> RecordResult:
        """Record a message as a new turn; it is durable on return.

        Args:
            message: The message, as for `add_batch`.
            thread: The conversation, as for `add_batch`.

        Returns:
            Whether it is new.

        Raises:
            InputError: It cannot be read.
            UsageError: `thread` is no text.
        """
        return self.add_batch((message,), thread)

    def add_batch(self, messages: Iterable[object], thread: str | None = None) -> RecordResult:
        """Record messages as new turns; they are durable on return.

        What is there already is skipped: a message by its id and text, a turn that was read here, and with `ignore_id`
        every message that is equal to a turn. A message without an id is new each time. What `record` does not keep is
        skipped too.

        Args:
            messages: Messages as for `record`, or turns that were read elsewhere.
            thread: The conversation of all of them; else this view's, else the one a message names (`thread_id`), else
                `turns`.

        Returns:
            How many turns are new and how many were skipped.

        Raises:
            InputError: It is no list of messages, or one cannot be read; where they are of one conversation none is
                recorded.
            UsageError: `thread` is no text.
        """
        if thread is not None:
            checks.text("thread", thread)
        self._services.home.states.must_be_open()
        given = checks.messages_in(messages)
        if self._filter.ignore_id:
            with self._services.state.adding:
                return self._record(self._unlike(given), len(given), thread)
        if any(isinstance(message, TurnView) for message in given):
            given, count = self._unknown(given), len(given)
            return self._record(given, count, thread)
        return self._record(given, len(given), thread)

    def delete(self, message: object) -> TurnView:
        """Withdraw a turn: it stands no longer, so it is neither read nor extracted any more.

        Its text stays in the log until `forget` erases it, and what was learned from it before stays in memory. With
        `ignore_id` all turns that are equal to it go.

        Args:
            message: A turn that was read here, or a message: the newest turn equal to it goes.

        Returns:
            The turn.

        Raises:
            NotFoundError: There is no such turn, or no more.
            InputError: It is no message.
        """
        asked = asked_about(message)
        with self._look() as look:
            found = None if asked.said is None else look.known(asked.id, asked.said, thread=asked.thread)
            gone = [] if found is None else look.one_with(found)
        if found is None or not self._withdraw(gone):
            raise NotFoundError(f"there is no such turn{named(asked)}: `turns.get()` lists those there are")
        return found

    def delete_newest(self) -> TurnView | None:
        """Withdraw the newest turn; see `delete`.

        Returns:
            The turn; None where there is none.
        """
        while True:
            with self._look() as look:
                found = look.last()
                gone = [] if found is None else look.one_with(found)
            # Where another caller was quicker it was not the newest.
            if found is None or self._withdraw(gone):
                return found

    def clear(self) -> int:
        """Withdraw all turns, those beyond a bound too; see `delete`.

        Turns recorded meanwhile stay. `memory.clear` empties what was learned; this empties what was recorded.

        Returns:
            The number of turns withdrawn.
        """
        self._services.home.states.must_be_open()
        return self._withdraw(self._services.state.turns.standing(self._filter.thread))

    # Async twins.

    aget = in_thread(get)
    aget_by_id = in_thread(get_by_id)
    aget_by_role = in_thread(get_by_role)
    aget_by_content = in_thread(get_by_content)
    atry_remember = in_thread(try_remember)
    aget_by_action = in_thread(get_by_action)
    aget_by_actions = in_thread(get_by_actions)
    aget_by_position = in_thread(get_by_position)
    aaddressed_to = in_thread(addressed_to)
    afind_news = in_thread(find_news)
    acount = in_thread(count)
    aadd = in_thread(add)
    aadd_batch = in_thread(add_batch)
    adelete = in_thread(delete)
    adelete_newest = in_thread(delete_newest)
    aclear = in_thread(clear)

    # As a container.

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        # An empty memory is still a memory: `if memory` must not depend on what is in it.
        return True

    def __iter__(self) -> Iterator[TurnView]:
        return iter(self.get())

    def __contains__(self, message: object) -> bool:
        asked = asked_about(message)
        with self._look() as look:
            return asked.said is not None and look.knows(asked.id, asked.said, thread=asked.thread)

    def __repr__(self) -> str:
        stated = ", ".join(f"{name}={value!r}" for name, value in msgspec.structs.asdict(self._filter).items() if value)
        return f"{type(self).__name__}({stated})"

    @contextmanager
    def _look(self) -> Iterator[TurnQuery]:
        self._services.home.states.must_be_open()
        with self._services.state.turns.look(self._filter) as look:
            yield look

    def _unlike(self, messages: Sequence[object]) -> list[object]:
        """Leave out what is equal to a turn or to an earlier message; what is not kept stays in, to be counted."""
        asked = [(message, asked_about(message)) for message in messages]
        new: list[object] = []
        met: dict[int, list[MessageWords]] = {}
        with self._look() as look:
            for message, about in asked:
                if about.said is None:
                    new.append(message)
                elif not look.knows(about.id, about.said):
                    alike = met.setdefault(words_of(about.said), [])
                    if not any(same_words(about.said, other) for other in alike):
                        alike.append(about.said)
                        new.append(without_id(about))
        return new

    def _unknown(self, messages: Sequence[object]) -> list[object]:
        """Leave out the turns that stand here."""
        with self._look() as look:
            return [message for message in messages if not (isinstance(message, TurnView) and _stands(look, message))]

    def _record(self, messages: Sequence[object], count: int, thread: str | None) -> RecordResult:
        """Record what is left of `count` messages, in their order."""
        whose = thread or self._filter.thread
        turns, cut, backlog, threads = 0, 0, False, set()
        for name, part in groupby(messages, key=lambda message: whose or thread_of(message) or DEFAULT_THREAD):
            result = self._append(name, [as_message(message) for message in part])
            threads.add(name)
            turns += result.turns
            cut += result.cut
            backlog = backlog or result.backlog
        return RecordResult(len(threads), turns, count - turns, backlog, cut=cut)

    def _withdraw(self, turns: Iterable[TurnView]) -> int:
        by_thread: dict[str, list[int]] = {}
        for turn in turns:
            by_thread.setdefault(turn.thread, []).append(turn.n)
        writer, actor = self._services.writer, self._services.actor
        return sum(len(writer.withdraw(thread, ordinals, actor=actor)) for thread, ordinals in by_thread.items())


def _newest(name: str, value: int) -> int:
    return checks.whole(name, value, 0, "a whole number of the newest turns (0 for all)")


def _stands(look: TurnQuery, turn: TurnView) -> bool:
    known = look.known(turn.id, turn, thread=turn.thread)
    return known is not None and known.n == turn.n
