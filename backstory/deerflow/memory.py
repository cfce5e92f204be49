"""Memory handle for DeerFlow: an agent has only its own facts, and shares the summaries of its user."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Self

import msgspec

from backstory.ledger.core.errors import InputError, RefusedError
from backstory.ledger.core.events import DOCUMENT_SECTIONS
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.policy import same_category
from backstory.ledger.core.summaries import thread_summaries
from backstory.memory import MemoryHandle
from backstory.open_files import translate_verbs
from backstory.operations.importing import import_document
from backstory.projections.context import Context, last_words
from backstory.projections.context.lines import CLOSING, OPENING
from backstory.services.named import live_fact

_log = logging.getLogger(__name__)

_UNSTATED_CONFIDENCE = 0.5
"""The confidence of a fact in a document without one."""

_NOTES = 20
"""How many refused items and new ids of an import are logged."""

PlainDocument = dict[str, object]
"""A memory document as plain objects."""


@translate_verbs
class HostedMemory(MemoryHandle):
    """A memory handle with the methods that DeerFlow needs.

    Unlike elsewhere, an agent without its own memory does not read the user's facts: DeerFlow's tools change the facts
    that they find, and an agent must not change the user's.
    """

    @classmethod
    def of(cls, memory: MemoryHandle) -> Self:
        """Return another handle on the same memory."""
        return cls(msgspec.structs.replace(memory._services, reads="own"))  # noqa: SLF001 one handle to another

    def by_agent(self, actor: str, thread: str | None) -> HostedMemory:
        """Return the same memory for an agent's tool, whose changes are a model's; see `by`."""
        return HostedMemory.of(self.by(actor, thread, by_model=True))

    @property
    def is_by_model(self) -> bool:
        """Whether changes made through this handle are a model's."""
        return self._services.by_model

    def plain(self) -> PlainDocument:
        """Return the document as plain objects."""
        return _plain(self.document())

    def found(self, query: str, top_k: int, category: str | None) -> list[PlainDocument]:
        """Return the facts most like a query, best first, in the form of the document.

        If search finds none, it returns facts that contain the query as a substring, by confidence, as DeerFlow's tools
        promise.
        """
        facts = {fact.id: fact for fact in self.document().facts}
        ids = [hit.id for hit in self.search(query, top_k=top_k, category=category)]
        if not ids:
            part = query.strip().casefold()
            holds = [
                f
                for f in facts.values()
                if (category is None or same_category(category, f.category)) and part in f.content.casefold()
            ]
            ids = [fact.id for fact in sorted(holds, key=lambda fact: -fact.confidence)[:top_k]]
        return [_plain(facts[fact_id]) for fact_id in ids if fact_id in facts]

    def change(self, fact_id: str, content: str | None, category: str | None, confidence: float | None) -> None:
        """Change a fact; a change without effect is no error.

        Raises:
            NotFoundError: There is no such fact.
            DuplicateFactError: Another fact has the same text.
            RefusedError: A model may not change it so.
        """
        if content is None and category is None and confidence is None:
            live_fact(self._services.writer.memory(), fact_id)
            return
        try:
            self.edit_fact(fact_id, content, category, confidence)
        except RefusedError as refusal:
            if refusal.rule != "unchanged":
                raise
            _log.debug("%s: %s", self.scope, refusal)

    def overwrite(self, document: object) -> None:
        """Replace memory by a document.

        A missing section is emptied. A fact below the confidence threshold is kept as entered by hand, since DeerFlow's
        format does not say who entered it.

        Raises:
            InputError: It is not a document.
        """
        checked = checked_document(document)
        facts = [{**fact, "confidence": _confidence(fact.get("confidence"))} for fact in checked.facts]
        stated = {**checked.rest, **_sections(self._services.memory(), checked.rest), "facts": facts}
        imported = import_document(self._services, stated, replace=True, insist=True)
        # DeerFlow's answer has no place for these.
        if notes := imported.notes:
            more = f"; and {len(notes) - _NOTES} more" if len(notes) > _NOTES else ""
            shown = "; ".join(notes[:_NOTES])
            _log.warning("%s: commit %d imported a memory; %s%s", self.scope, imported.commit, shown, more)

    def body(self, thread: str | None, *, facts: bool) -> str:
        """Return the context block without its tags, which DeerFlow adds itself.

        Args:
            thread: The conversation. Its last turns rank the facts, and its summaries are included.
            facts: Whether to include facts; an agent with search tools needs only the summaries.
        """
        own, blocks = self._services.writer, self._services.home.states.blocks
        if not blocks.enabled:
            return ""
        words = "" if thread is None or not facts else last_words(self._said_last(thread, blocks.turns), blocks.turns)
        memory = self._services.memory()
        state = self._services.state
        context = state.blocks.whole_block(
            memory,
            state.search.likeness(memory, words) if words else {},
            summaries=() if thread is None else thread_summaries(memory, thread),
            facts=facts,
        )
        newly = state.blocks.newly_used(context.facts, own.clock.now())
        if newly:
            state.use.touch(newly)
        return _without_tags(context)

    def _said_last(self, thread: str, most: int) -> list[dict[str, str]]:
        said: list[dict[str, str]] = []
        with self._services.writer.reader.state() as state:
            known = state.transcript.threads.get(thread)
            for turn in () if known is None else known.walk(back=True):
                said.append({"role": turn.role, "content": turn.content})
                most -= turn.role == "user"
                if most <= 0:
                    break
        return said[::-1]


class CheckedDocument(msgspec.Struct, frozen=True):
    """A document in parts; `rest` is all but the facts."""

    facts: list[Mapping[str, object]]
    rest: dict[str, object]


def checked_document(document: object) -> CheckedDocument:
    """Check the shape of a document strictly, since an invalid one would empty memory.

    Raises:
        InputError: The shape is wrong; the text begins with DeerFlow's name of the part.
    """
    if not isinstance(document, Mapping) or {"user", "history", "facts"}.isdisjoint(document):
        raise InputError("memory_data must be an object with user, history and facts")
    for group in ("user", "history"):
        if not isinstance(document.get(group, {}), Mapping):
            raise InputError(f"memory_data.{group} must be an object of sections")
    facts = document.get("facts", [])
    if not isinstance(facts, list) or not all(isinstance(fact, Mapping) for fact in facts):
        raise InputError("memory_data.facts must be a list of objects")
    return CheckedDocument(facts, {key: value for key, value in document.items() if key != "facts"})


def _sections(memory: Memory, stated: Mapping[str, object]) -> dict[str, PlainDocument]:
    """Return the stated sections by group, with an empty one for each present section that is not stated."""
    groups: dict[str, PlainDocument] = {}
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


def _confidence(stated: object) -> float:
    """Read a confidence as DeerFlow does: clamp it to 0 to 1; 0.5 if it is not a number."""
    if isinstance(stated, bool) or not isinstance(stated, int | float | str):
        return _UNSTATED_CONFIDENCE
    try:
        sure = float(stated)
    except (ValueError, OverflowError):
        return _UNSTATED_CONFIDENCE
    return min(max(sure, 0.0), 1.0) if math.isfinite(sure) else _UNSTATED_CONFIDENCE


def _plain(stated: msgspec.Struct) -> PlainDocument:
    """Convert a struct to plain objects with lists instead of tuples, as a host expects."""
    plain: PlainDocument = msgspec.json.decode(msgspec.json.encode(stated))
    return plain


def _without_tags(context: Context) -> str:
    return context.text.removeprefix(OPENING).removesuffix(CLOSING).strip("\n")
