"""One memory as DeerFlow sees it: an agent has facts of its own alone, and the user's summaries where it has none."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Self

import msgspec

from backstory.descriptors import translate_verbs
from backstory.ledger.core.errors import DuplicateFactError, InputError, NotFoundError, RefusedError
from backstory.ledger.core.events import DOCUMENT_SECTIONS
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.summaries import thread_summaries
from backstory.ledger.log.writer import Writer
from backstory.memory import MemoryHandle
from backstory.operations.services import live_fact
from backstory.projections.context import Context, last_words
from backstory.projections.context.fact_lines import CLOSING, OPENING
from backstory.projections.document.document import document_of

__all__ = ["Document", "HostedMemory"]

_log = logging.getLogger(__name__)

_UNSTATED_CONFIDENCE = 0.5
"""Of a fact in a document that states none."""

Document = dict[str, object]
"""A memory document as plain objects, as the gateway validates it."""


@translate_verbs
class HostedMemory(MemoryHandle):
    """A memory handle, and what of it DeerFlow shows a person and an agent.

    Elsewhere an agent without a memory of its own reads its user's. Not here: what DeerFlow's tools find they change by
    its id, and writing never mixes memories.
    """

    _users: Writer | None = None
    """Of an agent, the memory whose summaries it shares."""

    @classmethod
    def of(cls, memory: MemoryHandle) -> Self:
        """Return another handle on the same memory."""
        services = memory._services  # noqa: SLF001 one handle to another
        hosted = cls(services.alone())
        hosted._users = services.fallback
        return hosted

    def plain(self) -> Document:
        """Return the document as plain objects."""
        return _plain(document_of(self._shown()))

    def found(self, query: str, top_k: int, category: str | None) -> list[Document]:
        """Return the facts most like a query, the best first, as the document states them.

        Where no word is alike, a part of one will do, as DeerFlow's tools promise their model: the surest come first.
        """
        facts = {fact.id: fact for fact in document_of(self._shown()).facts}
        ids = [hit.id for hit in self.search(query, top_k=top_k, category=category)]
        if not ids:
            part = query.strip().casefold()
            holds = [f for f in facts.values() if category in (None, f.category) and part in f.content.casefold()]
            ids = [fact.id for fact in sorted(holds, key=lambda fact: -fact.confidence)[:top_k]]
        return [_plain(facts[fact_id]) for fact_id in ids if fact_id in facts]

    def change(self, fact_id: str, content: str | None, category: str | None, confidence: float | None) -> None:
        """Change a fact by hand; where it says all that already, nothing is wrong with that.

        Raises:
            NotFoundError: there is no such fact. DuplicateFactError: another says the same.
        """
        if content is None and category is None and confidence is None:
            live_fact(self._services.writer.memory(), fact_id)
            return
        try:
            self.edit_fact(fact_id, content, category, confidence)
        except (NotFoundError, DuplicateFactError):
            raise
        except RefusedError as refusal:
            _log.debug("%s: %s", self.scope, refusal)

    def overwrite(self, document: object) -> None:
        """Make memory what a person says it is.

        A section that is left out is emptied. A fact less sure than a model may leave one is kept as the person's own,
        for DeerFlow's exchange format does not tell whose it was.

        Raises:
            InputError: it is no document.
        """
        checked = _checked(document)
        self._services.writer.put_policy_in_force()
        memory = self._services.writer.memory()
        facts = [_insisted(fact, memory.policy.fact_confidence_threshold) for fact in checked.facts]
        self.import_document({**checked.rest, **_sections(memory, checked.rest), "facts": facts}, replace=True)

    def body(self, thread: str | None, *, facts: bool) -> str:
        """Return the text to inject, without the tags that DeerFlow puts around it.

        What was said last in `thread` says which facts bear on it, and what is summed up of it comes along. Without
        `facts` only the summaries are told, for an agent that searches the facts itself.
        """
        own, blocks = self._services.writer, self._services.home.blocks
        if not blocks.enabled:
            return ""
        words = "" if thread is None or not facts else last_words(self._said_last(thread, blocks.turns), blocks.turns)
        memory = own.memory()
        context = blocks.block(
            own.scope,
            self._sharing(memory),
            self._services.home.searches.of(own).likeness(memory, words) if words else {},
            told=() if thread is None else thread_summaries(memory, thread),
            facts=facts,
        )
        newly = blocks.newly_used(own.scope, context.facts, own.clock.now())
        if newly:
            self._services.home.heat.touch(own, newly)
        if context.text:
            blocks.tokens.begin()
        return _without_tags(context)

    def _shown(self) -> Memory:
        return self._sharing(self._services.writer.memory())

    def _sharing(self, memory: Memory) -> Memory:
        """A memory with the user's summaries where an agent has none."""
        if self._users is None:
            return memory
        users = self._users.memory()
        shared = {
            name: users.sections[name]
            for name in DOCUMENT_SECTIONS
            if name in users.sections and not memory.section(name).summary
        }
        if not shared:
            return memory
        changed_at = max(memory.changed_at, *(section.updated_at for section in shared.values()))
        return msgspec.structs.replace(memory, sections={**memory.sections, **shared}, changed_at=changed_at)

    def _said_last(self, thread: str, most: int) -> list[dict[str, str]]:
        said: list[dict[str, str]] = []
        with self._services.writer.reader.state() as state:
            known = state.transcript.threads.get(thread)
            for turn in () if known is None else known.walk_back():
                said.append({"role": turn.role, "content": turn.content})
                most -= turn.role == "user"
                if most <= 0:
                    break
        return said[::-1]


class _Checked(msgspec.Struct, frozen=True):
    """A document in parts; `rest` is all but the facts."""

    facts: list[Mapping[str, object]]
    rest: dict[str, object]


def _checked(document: object) -> _Checked:
    """Hold a document to its shape: what is missing or of another kind in one that overwrites would empty memory.

    Raises:
        InputError: it is none; the text begins with DeerFlow's name for what is wrong.
    """
    if not isinstance(document, Mapping) or {"user", "history", "facts"}.isdisjoint(document):
        raise InputError("memory_data is no memory document: it is an object with user, history and facts")
    for group in ("user", "history"):
        if not isinstance(document.get(group, {}), Mapping):
            raise InputError(f"memory_data.{group} is no object of sections")
    facts = document.get("facts", [])
    if not isinstance(facts, list) or not all(isinstance(fact, Mapping) for fact in facts):
        raise InputError("memory_data.facts is no list of objects")
    return _Checked(facts, {key: value for key, value in document.items() if key != "facts"})


def _sections(memory: Memory, stated: Mapping[str, object]) -> dict[str, Document]:
    """The groups of sections as they are stated, with an empty one for each that is there and left out."""
    groups: dict[str, Document] = {}
    for name in DOCUMENT_SECTIONS:
        group, _, key = name.partition(".")
        sections = stated.get(group)
        said = groups.setdefault(group, dict(sections) if isinstance(sections, Mapping) else {})
        section = said.get(key)
        if section is None and memory.section(name).summary:
            said[key] = {"summary": ""}
        elif isinstance(section, Mapping) and "summary" not in section:
            said[key] = {**section, "summary": ""}
    return groups


def _insisted(fact: Mapping[str, object], threshold: float) -> Mapping[str, object]:
    sure = _confidence(fact.get("confidence"))
    return {**fact, "confidence": sure} | ({"byHand": True} if sure < threshold else {})


def _confidence(stated: object) -> float:
    """As DeerFlow reads what a document states: within 0 and 1, and in the middle where it is no number."""
    if isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return _UNSTATED_CONFIDENCE
    try:
        sure = float(stated)
    except (ValueError, OverflowError):
        return _UNSTATED_CONFIDENCE
    return min(max(sure, 0.0), 1.0) if math.isfinite(sure) else _UNSTATED_CONFIDENCE


def _plain(stated: msgspec.Struct) -> Document:
    """Lists, where a struct has tuples: a host compares, and a person's browser knows no other."""
    plain: Document = msgspec.json.decode(msgspec.json.encode(stated))
    return plain


def _without_tags(context: Context) -> str:
    return context.text.removeprefix(OPENING).removesuffix(CLOSING).strip("\n")
