"""Screening of a model's answer: the refusals that need no competition for room.

Each candidate is checked alone first, then against the other candidates of the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import assert_never

import msgspec

from backstory.ledger.core.commands import Extract, RemoveFact, labels_of
from backstory.ledger.core.dedup import dedup_key, mark_key
from backstory.ledger.core.events import (
    Candidate,
    Consolidation,
    Edit,
    Extension,
    Fact,
    NewFact,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.core.kinds import Rule
from backstory.ledger.core.memory import Memory
from backstory.ledger.core.moments import begins, ends
from backstory.ledger.core.policy import Policy, is_protected, rule_category
from backstory.ledger.core.sanitize import MAX_FACT, MAX_SUMMARY
from backstory.ledger.rules.admission import Verdict
from backstory.ledger.rules.marks import ERASED, is_withheld, removed_by_hand
from backstory.ledger.rules.ranking import Ranking
from backstory.ledger.rules.review import fragmented, is_stale, stale_facts
from backstory.ledger.text.uploads import is_upload_event, scrub_uploads

PROTECTED = Verdict("by_hand", "a person entered this fact; only a person changes it")
"""The refusal of a model's change of a fact that was entered by hand."""
_KEPT = {"scope": "user", "durability": "durable", "authority": "descriptive"}
"""The labels that the gate lets pass: about the user in general, lasting, and a statement rather than an order."""
INSIDE, OUTSIDE, NEVER = "inside", "outside", "never"
"""The labels of a topic: remembered by the instructions, not remembered by them, and never to be kept."""
NEVER_KEPT = Verdict("topic", "the instructions say never to keep such a thing, and nothing of it is kept")
"""The refusal of a candidate that was labelled `never`: place, rule and time stay, and no text."""
_FEWEST_SOURCES = 2
_STALE = "staleFacts"
_STALE_REMOVALS = "staleFactsToRemove/"
_BINDING: frozenset[Rule] = frozenset({"gate", "older_evidence"})
"""The rules that refuse a removal together with the fact that replaces it."""


def screen(memory: Memory, command: Extract, ranking: Ranking) -> dict[str, Verdict]:
    """Return the refusals of a model's answer by the candidate's place, before duplicates and the cap."""
    return _Screening(memory, command, ranking).verdicts()


def is_never_kept(candidate: Unread) -> bool:
    """Whether a candidate stands for one that was labelled `never`."""
    return candidate == _stub(candidate.place)


def _stub(place: str) -> Unread:
    return Unread(place=place, text="", detail=NEVER)


def without_never(command: Extract, instructions: str) -> Extract:
    """Return a command without the texts of the candidates that the model labelled `never`.

    The digest of the answer goes with them: it has no salt, so it could confirm a guess of what they said.
    """
    if not instructions:
        return command
    proposal = command.proposal
    kept = tuple(_stub(c.place) if _is_never(c) else c for c in proposal.candidates)
    if kept == proposal.candidates:
        return command
    return msgspec.structs.replace(command, proposal=msgspec.structs.replace(proposal, candidates=kept, digest=""))


def _is_never(candidate: Candidate) -> bool:
    if isinstance(candidate, Edit | Unread) or candidate.topic is None:
        return False
    return candidate.topic.strip().casefold() == NEVER


def screen_fact(content: str, confidence: float, policy: Policy) -> Verdict | None:
    """Return why a model's fact is refused on its own; None if it is not."""
    return _empty_verdict(content) or threshold_verdict(confidence, policy)


def period_verdict(stated: NewFact | Fact, at: str) -> Verdict | None:
    """Return why a fact may not state the times that it states, at a moment; None if it may."""
    since, until, expiry = stated.valid_from, stated.valid_until, stated.expires_at
    if since is not None and until is not None and begins(since) >= ends(until):
        return Verdict("malformed", f"it would be valid until {until}, which is not after {since}")
    if expiry is not None and ends(expiry) <= at:
        return Verdict("expired", f"it was to be remembered until {expiry}")
    return None


def ending_verdict(fact: Fact, removal: Removal | RemoveFact) -> Verdict | None:
    """Return why a fact cannot have ended when a removal says so; None if it can."""
    since, until = fact.valid_from, removal.valid_until
    if removal.ended and since is not None and until is not None and begins(since) >= ends(until):
        return Verdict("malformed", f"it would have ended with {until}, which is not after {since}, when it began")
    return None


def merged_confidence(candidate: Consolidation, sources: Sequence[Fact]) -> float:
    """Return the confidence of a merged fact: the stated one, but at most the highest of its sources."""
    highest = max(fact.confidence for fact in sources)
    return highest if candidate.confidence is None else min(candidate.confidence, highest)


def too_long(candidate: Candidate) -> Verdict | None:
    """Return the refusal of a candidate with a text over its limit; None if it has none."""
    for name, text, most in _limited_texts(candidate):
        if text is not None and len(text) > most:
            return Verdict("too_long", f"the {name} has {len(text):,} characters; at most {most:,} are remembered")
    return None


def _limited_texts(candidate: Candidate) -> Iterator[tuple[str, str | None, int]]:
    match candidate:
        case NewFact():
            yield "fact", candidate.content, MAX_FACT
            yield "sourceError", candidate.source_error, MAX_FACT
        case NewSummary():
            yield "section", candidate.summary, MAX_SUMMARY
        case Consolidation():
            yield "merged fact", candidate.content, MAX_FACT
        case Removal() | Extension():
            yield "reason", candidate.reason, MAX_FACT
        case Reinforcement() | Edit() | Unread():
            pass
        case _:
            assert_never(candidate)


class _Screening:
    def __init__(self, memory: Memory, command: Extract, ranking: Ranking) -> None:
        self._memory = memory
        self._policy = memory.policy
        self._command = command
        self._ranking = ranking
        self._candidates = command.proposal.candidates
        self._refused: dict[str, Verdict] = {}

    def verdicts(self) -> dict[str, Verdict]:
        for candidate in self._candidates:
            verdict = self._topic(candidate) or self._gate(candidate) or self._check(candidate)
            if verdict is not None:
                self._refused[candidate.place] = verdict
        self._bind_replacements()
        # In this order: each rule only sees the candidates that those before it have not refused.
        for rule in (
            self._repeated,
            self._too_many_stale,
            self._extended_and_removed,
            self._shared_sources,
            self._too_many_groups,
        ):
            self._refused |= dict(rule())
        return self._refused

    def _accepted(self) -> Iterator[Candidate]:
        return (candidate for candidate in self._candidates if candidate.place not in self._refused)

    # Each candidate alone.

    def _topic(self, candidate: Candidate) -> Verdict | None:
        if not self._policy.instructions or isinstance(candidate, Edit | Unread):
            return None
        label = candidate.topic
        if label is None or label.strip().casefold() == INSIDE:
            return None
        return Verdict("topic", f"topic is {label}; by the instructions only what is {INSIDE} is remembered")

    def _gate(self, candidate: Candidate) -> Verdict | None:
        if not self._policy.gate_enabled or isinstance(candidate, Edit | Unread):
            return None
        for name, label in labels_of(candidate).items():
            if name in _KEPT and label.strip().casefold() != _KEPT[name]:
                return Verdict("gate", f"{name} is {label}; only what is {_KEPT[name]} is remembered")
        return None

    def _check(self, candidate: Candidate) -> Verdict | None:
        if (verdict := too_long(candidate)) is not None:
            return verdict
        match candidate:
            case Unread():
                if is_withheld(candidate):
                    return ERASED
                return NEVER_KEPT if is_never_kept(candidate) else Verdict("malformed", candidate.detail)
            case NewFact():
                verdict = screen_fact(candidate.content, candidate.confidence, self._policy)
                verdict = verdict or period_verdict(candidate, self._command.at)
                return verdict or self._assistant_only(candidate) or self._marked(candidate) or self._taken(candidate)
            case NewSummary():
                return self._summary(candidate)
            case Removal() if candidate.place.startswith(_STALE):
                return self._review(candidate)
            case Extension():
                return self._review(candidate)
            case Removal():
                return self._reference(candidate.id) or ending_verdict(self._memory.facts[candidate.id], candidate)
            case Reinforcement():
                return self._reference(candidate.id)
            case Consolidation():
                return self._consolidation(candidate)
            case Edit():
                return Verdict("malformed", "a model cannot ask for this")
            case _:
                assert_never(candidate)

    def _marked(self, candidate: NewFact | Consolidation) -> Verdict | None:
        share = self._command.said_again.get(candidate.place, 0.0)
        return removed_by_hand(self._memory, candidate.content, share)

    def _assistant_only(self, candidate: NewFact) -> Verdict | None:
        spoken = self._command.spoken(candidate.evidence)
        if self._policy.evidence == "any" or spoken is None or spoken.role == "user":
            return None
        return Verdict("assistant_only", "no turn that it rests on is a user's, and the policy asks for one")

    def _taken(self, candidate: NewFact) -> Verdict | None:
        """Refuse a text that newer words took away."""
        spoken = self._command.spoken(candidate.evidence)
        taken = self._memory.taken.get(mark_key(candidate.content)) if self._memory.taken else None
        if spoken is None or taken is None or spoken.at >= taken:
            return None
        return Verdict("older_evidence", f"words of {taken} took it away, and these are of {spoken.at}")

    def _summary(self, candidate: NewSummary) -> Verdict | None:
        if _has_no_words(candidate.summary):
            return Verdict("empty", "the section's new text has neither a letter nor a digit")
        text, _ = scrub_uploads(candidate.summary)
        if not text:
            return Verdict("upload", "nothing but uploads was said in it")
        if self._command.users is None and text == self._memory.section(candidate.place).summary:
            return Verdict("unchanged", "the section already says exactly this")
        return None

    def _reference(self, fact_id: str) -> Verdict | None:
        fact, shown = self._memory.facts.get(fact_id), self._command.shown
        if fact is None:
            return Verdict("unknown_fact", "no live fact has this id")
        if fact.seq > self._command.basis if shown is None else fact.id not in shown:
            return Verdict("unknown_fact", "the model was not shown this fact")
        if fact.by_hand:
            return PROTECTED
        spoken, rests_on = self._command.spoken(), fact.rests_on
        if spoken is not None and spoken.at < rests_on.at:
            return Verdict("older_evidence", f"the fact rests on words of {rests_on.at}, and these are of {spoken.at}")
        return None

    def _review(self, candidate: Removal | Extension) -> Verdict | None:
        if not self._policy.staleness_review_enabled:
            return Verdict("disabled", "the review of old facts is not enabled")
        if (verdict := self._reference(candidate.id)) is not None:
            return verdict
        fact = self._memory.facts[candidate.id]
        if is_protected(fact.category, self._policy):
            return Verdict("not_due", f"facts of the category {fact.category} are never reviewed")
        if fact.id not in self._up_for_review or not is_stale(fact, self._policy, self._command.at):
            return Verdict("not_due", "the fact was not up for review")
        return ending_verdict(fact, candidate) if isinstance(candidate, Removal) else None

    @cached_property
    def _up_for_review(self) -> frozenset[str]:
        asked = self._command.stale
        if asked is None:
            asked = tuple(fact.id for fact in stale_facts(self._memory, self._command.at))
        return frozenset(asked if len(asked) >= self._policy.staleness_min_candidates else ())

    @cached_property
    def _fragmented(self) -> dict[str, list[Fact]]:
        return fragmented(self._memory)

    def _consolidation(self, candidate: Consolidation) -> Verdict | None:
        if not self._policy.consolidation_enabled:
            return Verdict("disabled", "merging facts is not enabled")
        if (verdict := _empty_verdict(candidate.content)) is not None:
            return verdict
        for source in candidate.sources:
            if (verdict := self._reference(source)) is not None:
                return Verdict(verdict.rule, f"{source}: {verdict.detail}")
        return self._sources(candidate)

    def _sources(self, candidate: Consolidation) -> Verdict | None:
        count, most = len(set(candidate.sources)), self._policy.consolidation_max_sources
        if not _FEWEST_SOURCES <= count <= most or count < len(candidate.sources):
            named = len(candidate.sources)
            return Verdict(
                "sources", f"it names {named} sources; {_FEWEST_SOURCES} to {most} different ones are merged"
            )
        facts = [self._memory.facts[source] for source in candidate.sources]
        categories = {rule_category(fact.category, self._policy) for fact in facts}
        if len(categories) > 1:
            return Verdict("sources", f"its sources are of several categories: {', '.join(sorted(categories))}")
        if len({(fact.valid_from, fact.valid_until, fact.expires_at) for fact in facts}) > 1:
            return Verdict("sources", "its sources hold at different times")
        (category,) = categories
        if category not in self._fragmented:
            return Verdict("sources", f"the category {category} is not up for merging")
        if {dedup_key(fact.content, self._policy.dedup_key) for fact in facts} <= {
            dedup_key(candidate.content, self._policy.dedup_key)
        }:
            return Verdict("unchanged", "it says what its sources say")
        return threshold_verdict(merged_confidence(candidate, facts), self._policy) or self._marked(candidate)

    # Candidates against each other.

    def _bind_replacements(self) -> None:
        """Refuse a new fact that replaces a fact whose removal is gated or late, because both are one change."""
        news = {candidate.place for candidate in self._candidates if isinstance(candidate, NewFact)}
        for candidate in self._candidates:
            verdict = self._refused.get(candidate.place)
            if verdict is None or verdict.rule not in _BINDING or not isinstance(candidate, Removal):
                continue
            place = f"newFacts/{candidate.replacement}"
            if place in news and place not in self._refused:
                self._refused[place] = Verdict(
                    "removal_refused", f"{candidate.place}, which it was to make up for, was refused ({verdict.rule})"
                )

    def _repeated(self) -> Iterator[tuple[str, Verdict]]:
        """Refuse the second and later mention of one fact by the same kind of change."""
        seen: dict[tuple[type, str], str] = {}
        for candidate in self._accepted():
            if isinstance(candidate, Removal | Reinforcement | Extension):
                first = seen.setdefault((type(candidate), candidate.id), candidate.place)
                if first != candidate.place:
                    yield candidate.place, Verdict("repeated", f"{first} already asks for this")

    def _too_many_stale(self) -> Iterator[tuple[str, Verdict]]:
        """Limit the removals of one review to the facts of the lowest rank."""
        asked = [c for c in self._accepted() if isinstance(c, Removal) and c.place.startswith(_STALE_REMOVALS)]
        most = self._policy.staleness_max_removals_per_cycle
        facts = self._memory.facts
        for candidate in sorted(asked, key=lambda c: self._ranking.key(facts[c.id]))[most:]:
            yield candidate.place, Verdict("limit", f"a review removes {most} facts at most, the lowest ranked first")

    def _extended_and_removed(self) -> Iterator[tuple[str, Verdict]]:
        """Refuse to extend a fact that the same answer asks to remove, even if that removal is refused."""
        removals = {candidate.id for candidate in self._candidates if isinstance(candidate, Removal)}
        for candidate in self._accepted():
            if isinstance(candidate, Extension) and candidate.id in removals:
                yield candidate.place, Verdict("gone", f"the same update asks to remove {candidate.id}")

    def _shared_sources(self) -> Iterator[tuple[str, Verdict]]:
        """Refuse to merge facts that the same answer removes or has already merged."""
        removals = ((c.id, c.place) for c in self._accepted() if isinstance(c, Removal))
        taken = dict(removals)
        for candidate in self._accepted():
            if not isinstance(candidate, Consolidation):
                continue
            other = next((taken[source] for source in candidate.sources if source in taken), None)
            if other is not None:
                yield candidate.place, Verdict("repeated", f"{other} already takes one of its sources")
            else:
                taken.update(zip(candidate.sources, [candidate.place] * len(candidate.sources), strict=True))

    def _too_many_groups(self) -> Iterator[tuple[str, Verdict]]:
        most = self._policy.consolidation_max_groups_per_cycle
        groups = [candidate for candidate in self._accepted() if isinstance(candidate, Consolidation)]
        for candidate in groups[most:]:
            yield candidate.place, Verdict("limit", f"an update merges {most} groups of facts at most")


def _has_no_words(text: str) -> bool:
    # Small models copy the dots of a prompt's example, which would wipe out a section.
    return not any(map(str.isalnum, text))


def threshold_verdict(confidence: float, policy: Policy) -> Verdict | None:
    """Return the refusal of a fact that is less sure than the threshold; None if it is sure enough."""
    threshold = policy.fact_confidence_threshold
    if confidence < threshold:
        return Verdict("threshold", f"confidence {confidence:g} is under the threshold of {threshold:g}")
    return None


def _empty_verdict(content: str) -> Verdict | None:
    if _has_no_words(content):
        return Verdict("empty", "the fact has no text" if not content else "the fact has neither a letter nor a digit")
    if is_upload_event(content):
        return Verdict("upload", "that a file was uploaded is no fact about the user")
    return None
