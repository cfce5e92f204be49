"""Context block of one scope: the text that an agent reads before it answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from backstory import checks
from backstory.ledger.core.errors import InputError, UnavailableError
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import thread_summaries
from backstory.ledger.messages import keep, read_message
from backstory.projections.context import Context, last_words
from backstory.projections.context.given import Quote, quotes
from backstory.projections.context.joined import USERS, Joined, parted
from backstory.projections.search.lexical.tokenizer import as_said
from backstory.projections.turns import TurnView
from backstory.services.services import ScopeServices

_MOST_TURNS = 64
"""Turns that are tried for a block at most."""


def context(
    services: ScopeServices,
    messages: str | Iterable[object] | None,
    max_tokens: int | None,
    *,
    thread: str | None,
    facts: bool,
    tags: tuple[str, ...] = (),
) -> Context:
    """Return the block to inject; see `MemoryHandle.context`."""
    if max_tokens is not None:
        checks.whole("max_tokens", max_tokens, 1, "a whole number of tokens")
    if thread is not None:
        checks.text("thread", thread)
    said = messages if messages is None or isinstance(messages, str) else checks.messages_in(messages)
    services.home.states.must_be_open()
    blocks = services.home.states.blocks
    if not blocks.enabled:
        return blocks.nothing()
    words = None if said is None else last_words(said, blocks.turns) if facts else ""
    writer = services.reading()
    joined = services.joined()
    memory = services.memory() if joined is None else joined.memory
    alike = _likeness(services, memory, joined, words) if words else {}
    lines = services.home.states(writer.scope).blocks
    block = lines.block(
        memory,
        None if words is None else alike,
        summaries=() if thread is None else thread_summaries(memory, thread),
        max_tokens=max_tokens,
        facts=facts,
        tags=tags,
        quotes=_quotes(services, said, thread, tags) if facts and blocks.quoting else None,
    )
    own, users = parted(lines.newly_used(block.facts, writer.clock.now()))
    for used, newly in ((writer, own), (services.beside(), users)):
        if newly and used is not None:
            services.home.states(used.scope).use.touch(newly)
    if not block.text:
        return block
    head, beside = services.head_at(writer, memory.seq), services.beside()
    of_both = None if joined is None or beside is None else services.head_at(beside, joined.users.seq)
    return block.given_at(head, of_user=writer is not services.own, users=of_both)


def _quotes(
    services: ScopeServices, said: str | Sequence[object] | None, thread: str | None, tags: tuple[str, ...]
) -> Iterable[Quote] | None:
    """Return what was said in other conversations that is like the newest question; None where nothing ever was.

    If the transcript cannot be read, that is a fault, and the block has the facts alone.
    """
    asked, is_present = last_words(said, 1), _is_of(said, thread)

    def leave_out(turn: TurnView) -> bool:
        return bool(tags and turn.tags and not set(tags).issubset(turn.tags)) or is_present(turn)

    faults, scope = services.home.faults, services.scope
    try:
        with services.writer.reader.state() as state:
            if not state.transcript.turn_count:
                return None
        found = services.state.search.said(asked, _MOST_TURNS, leave_out) if asked else ()
    except UnavailableError as error:
        faults.note(scope, "quote", error)
        return None
    faults.recovered(scope, "quote")
    return quotes(found, as_said(asked))


def _is_of(said: str | Sequence[object] | None, thread: str | None) -> Callable[[TurnView], bool]:
    """Return what says of a turn whether it is of this conversation; without a thread its words tell."""
    if thread is not None:
        return lambda turn: turn.thread == thread
    there: set[str] | None = None

    def is_there(turn: TurnView) -> bool:
        nonlocal there
        if there is None:
            there = _texts(said)
        return turn.content.strip() in there

    return is_there


def _texts(said: str | Sequence[object] | None) -> set[str]:
    if said is None or isinstance(said, str):
        return {(said or "").strip()}
    read = []
    for message in said:
        with contextlib.suppress(InputError):
            read.append(read_message(message))
    return {kept.content.strip() for kept in keep(read)}


def _likeness(services: ScopeServices, memory: Memory, joined: Joined | None, words: str) -> Mapping[str, float]:
    """Return how like the facts of a memory are to a text, by their ids in it."""
    states, beside = services.home.states, services.beside()
    if joined is None or beside is None:
        return states(services.reading().scope).search.likeness(memory, words)
    theirs = states(beside.scope).search.likeness(joined.users, words)
    own = states(services.writer.scope).search.likeness(joined.own, words)
    return {**own, **{f"{USERS}{fact_id}": alike for fact_id, alike in theirs.items()}}
