"""Context block: chooses the facts, sections and summaries that fit into a budget of tokens.

It has two parts. What stands is a function of memory and policy, and of the conversation's summaries: so it is the same
text, to the byte, while memory is the same, and stays in a prompt cache. What is found depends on the question.

Standing are: facts of the guaranteed categories, within their own budget; sections; summaries of this conversation, up
to a third of the budget; then the facts that rank highest by themselves, up to the share of the budget that is not kept
for what is found. If all facts fit, all of them stand. Found are the other facts that are like the question, as far as
they fit. A line that does not fit is skipped. The exact size of the block is known after every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from backstory.ledger.concurrency.background_load import BackgroundLoad
from backstory.ledger.core.commit import Head
from backstory.ledger.core.events import Fact
from backstory.ledger.core.memory import Memory, birth
from backstory.ledger.core.policy import Policy, named_category, rule_category
from backstory.ledger.core.summaries import ThreadSummaryText
from backstory.projections.context.counting import Counter
from backstory.projections.context.given import Given, GivenTurn, Quote, given_digest
from backstory.projections.context.joined import Joined, join
from backstory.projections.context.lines import (
    CONVERSATION,
    FACTS,
    FOUND,
    GAP,
    QUOTES,
    SECTIONS,
    Line,
    Prepared,
    Sheet,
    Standing,
    narrowed,
    prepare,
    summary_line,
)
from backstory.projections.read_model import ReadModel

_SKIPPED = 4
"""Quotes that do not fit before the part is full: the others are as long, mostly."""
_QUOTED = 0.93
"""Of what is kept for a question the share that is for turns."""


class Shares(msgspec.Struct, frozen=True):
    """Budgets and ranking weights of a block.

    Attributes:
        max_tokens: the size of the block.
        guaranteed_categories: the categories of facts that come first.
        guaranteed_tokens: the budget of these facts.
        similarity_weight: the weight of a fact's similarity to the conversation.
        confidence_weight: the weight of a fact's confidence.
        found_share: the share of the block that is kept for what a question finds, from 0 to 1.
    """

    max_tokens: int = 2000
    guaranteed_categories: tuple[str, ...] = ("correction",)
    guaranteed_tokens: int = 500
    similarity_weight: float = 0.6
    confidence_weight: float = 0.4
    found_share: float = 0.7

    def for_quotes(self, room: int) -> int:
        """Return the tokens for turns, of those that facts and turns have together."""
        return int(room * self.found_share * _QUOTED)


class Context(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A block and its contents; as text (`str`, in an f-string) it is the whole block.

    Attributes:
        text: the whole block; empty where there is nothing to show.
        tokens: the size of the whole text, tags included; never more than `max_tokens`.
        counter: the name of the token counter.
        standing: the part for the system message: the same text as long as memory is the same.
        found: the part for directly before the newest question: what the question brings besides.
        facts: the ids of the facts used, in order: those that stand, then those that were found. Those of an agent's
            user begin with `user:`.
        turns: the turns quoted, in order.
        sections: the names of the sections used.
        summaries: the number of summaries used.
        left_out: the number of facts without room, and of those that the question does not bring.
        sections_left_out: the number of sections without room.
        summaries_left_out: the number of summaries without room.
        max_tokens: the budget.
        seq: the commit that memory stood at.
        digest: a digest of that commit and of the ids used; no text can be guessed from it.
        of_user: whether an agent without a memory of its own was given its user's.
        users_seq: where an agent reads its user's facts beside its own, the commit that the user's memory stood at.
    """

    text: str
    tokens: int
    counter: str
    standing: str = ""
    found: str = ""
    facts: tuple[str, ...] = ()
    turns: tuple[GivenTurn, ...] = ()
    sections: tuple[str, ...] = ()
    summaries: int = 0
    left_out: int = 0
    sections_left_out: int = 0
    summaries_left_out: int = 0
    max_tokens: int = 0
    seq: int = 0
    digest: str = ""
    of_user: bool = False
    users_seq: int = 0

    def given_at(self, head: Head, *, of_user: bool = False, users: Head | None = None) -> Context:
        """Return the block with where memory stood when it was made, and the user's memory where that was read, too."""
        if not self.text:
            return self
        digest = given_digest((head,) if users is None else (head, users), self.facts, self.turns)
        users_seq = 0 if users is None else users.seq
        return msgspec.structs.replace(self, seq=head.seq, digest=digest, of_user=of_user, users_seq=users_seq)

    def __str__(self) -> str:
        return self.text

    def note(self) -> dict[str, object]:
        """Return what to keep of the block with the answer, in its `metadata`: ids and a digest, and no text."""
        if not self.text:
            return {}
        return Given(self.seq, self.digest, self.facts, self.turns, self.of_user, self.users_seq).noted()


def fill(
    prepared: Prepared,
    similarity: Mapping[str, float] | None,
    summaries: Sequence[ThreadSummaryText],
    shares: Shares,
    max_tokens: int,
    *,
    facts: bool = True,
    quotes: Iterable[Quote] | None = None,
) -> Context:
    """Return the block of a memory.

    Args:
        prepared: the lines of the memory.
        similarity: the similarity of facts to the conversation, from 0 to 1, by id; facts without one are not like it.
            None where there is no conversation: then the facts that rank next by themselves are found.
        summaries: the summaries of the conversation, oldest first.
        shares: the budgets and weights.
        max_tokens: the size of the block.
        facts: whether to include facts; without them the agent searches for facts, and for turns.
        quotes: the turns that search found, the best first. They have most of the room of what is found; the facts that
            rank first have the rest, and what the turns leave. None: turns are not quoted, and take no room.
    """
    wanted = _Wanted(tuple(summaries), shares, max_tokens, facts, quotes is not None)
    # What stands is the same for each question, so it is kept with the lines of the memory.
    stands = prepared.kept(wanted, lambda: _standing(prepared, wanted))
    room = max_tokens - stands.tokens - (prepared.gap if stands.tokens else 0)
    found = Sheet(prepared, room)
    taken: list[str] = []
    turns: list[GivenTurn] = []
    if shares.found_share:
        alike = stands.left
        if similarity is not None:
            alike = _by_score([pair for pair in stands.left if pair[0].id in similarity], similarity, shares)
        if quotes is not None:
            found.max_tokens = room - shares.for_quotes(max_tokens - stands.first)
            taken = found.take_facts(FOUND, alike)
            found.max_tokens = room
            turns = _take_quotes(found, quotes)
            if stands.all_fit:
                known = {fact.id for fact, _ in alike}
                alike = [*alike, *(pair for pair in stands.left if pair[0].id not in known)]
        more = {*taken, *found.take_facts(FOUND, alike, but=taken)}
        taken = [fact.id for fact, _ in alike if fact.id in more]
    both = [part for part in (stands.text, found.text()) if part]
    return msgspec.structs.replace(
        _whole(prepared, stands, max_tokens),
        text=GAP.join(both),
        tokens=stands.tokens + found.tokens + (prepared.gap if len(both) > 1 else 0),
        found=found.text(),
        facts=(*stands.taken, *taken),
        turns=tuple(turns),
        left_out=len(stands.left) - len(taken),
    )


def fill_whole(
    prepared: Prepared,
    similarity: Mapping[str, float],
    summaries: Sequence[ThreadSummaryText],
    shares: Shares,
    max_tokens: int,
    *,
    facts: bool = True,
) -> Context:
    """Return a block of one part, for a host that has one place for it; the facts are in ledger order.

    Which facts are in it depends on the conversation, if not all fit. The arguments are those of `fill`.
    """
    ranked = _by_score(prepared.facts, similarity, shares) if facts else []
    stands = _stand(prepared, ranked, _Wanted(tuple(summaries), shares, max_tokens, facts))
    return _whole(prepared, stands, max_tokens)


class _Wanted(msgspec.Struct, frozen=True):
    """What a block is made of besides the memory and the question."""

    summaries: tuple[ThreadSummaryText, ...]
    shares: Shares
    max_tokens: int
    facts: bool
    quoting: bool = False


def _whole(prepared: Prepared, stands: Standing, max_tokens: int) -> Context:
    """Return the block of what stands alone."""
    return Context(
        text=stands.text,
        tokens=stands.tokens,
        counter=prepared.counter.name,
        standing=stands.text,
        facts=stands.taken,
        sections=stands.sections,
        summaries=stands.summaries,
        left_out=len(stands.left),
        sections_left_out=len(prepared.sections) - len(stands.sections),
        summaries_left_out=stands.summaries_left_out,
        max_tokens=max_tokens,
    )


def _standing(prepared: Prepared, wanted: _Wanted) -> Standing:
    """Return what stands: all, if that leaves the room for quotes, or the share of it."""
    shares, max_tokens = wanted.shares, wanted.max_tokens
    ranked = sorted(prepared.facts, key=lambda pair: -pair[0].confidence) if wanted.facts else []
    whole = _stand(prepared, ranked, wanted)
    for_quotes = shares.for_quotes(max_tokens - whole.first) if wanted.quoting else 0
    if not shares.found_share or (not whole.left and whole.tokens + for_quotes <= max_tokens):
        return whole
    base = whole.first if wanted.quoting else 0
    part = _stand(prepared, ranked, wanted, base + int((max_tokens - base) * (1 - shares.found_share)))
    return msgspec.structs.replace(part, all_fit=not whole.left)


def _stand(
    prepared: Prepared, ranked: Sequence[tuple[Fact, Line]], wanted: _Wanted, for_facts: int | None = None
) -> Standing:
    """Fill the part that stands; facts that no category guarantees come in while it has at most `for_facts` tokens."""
    shares, max_tokens = wanted.shares, wanted.max_tokens
    sheet = Sheet(prepared, max_tokens)
    categories = {fact.category for fact, _ in ranked}
    named = {category for category in categories if _is_guaranteed(category, prepared.memory.policy, shares)}
    guaranteed = [pair for pair in ranked if pair[0].category in named]
    taken = set(sheet.take_facts(FACTS, guaranteed, within=shares.guaranteed_tokens))
    sections = [name for name, line in prepared.sections.items() if sheet.take(SECTIONS[name][0], line) is not None]
    skipped = _add_summaries(sheet, _summary_lines(wanted.summaries, prepared.counter), within=max_tokens // 3)
    first = sheet.tokens
    sheet.max_tokens = for_facts = max_tokens if for_facts is None else for_facts
    taken.update(sheet.take_facts(FACTS, [pair for pair in ranked if pair[0].id not in taken]))
    skipped = _add_summaries(sheet, skipped, within=for_facts)
    stands = [fact for fact, _ in ranked if fact.id in taken]
    return Standing(
        text=sheet.text(),
        tokens=sheet.tokens,
        first=first,
        taken=tuple(fact.id for fact in sorted(stands, key=birth)),
        left=[pair for pair in ranked if pair[0].id not in taken],
        sections=tuple(sections),
        summaries=len(sheet.parts[CONVERSATION]),
        summaries_left_out=len(skipped),
    )


def _is_guaranteed(category: str, policy: Policy, shares: Shares) -> bool:
    named = named_category(category, policy)
    return (named is not None and named.guaranteed) or rule_category(category, policy) in shares.guaranteed_categories


def _by_score(
    facts: Sequence[tuple[Fact, Line]], similarity: Mapping[str, float], shares: Shares
) -> list[tuple[Fact, Line]]:
    """Return the facts, best first; the stable sort keeps equals as they were."""

    def score(fact: Fact) -> float:
        return shares.similarity_weight * similarity.get(fact.id, 0.0) + shares.confidence_weight * fact.confidence

    return sorted(facts, key=lambda pair: -score(pair[0]))


def _summary_lines(summaries: Sequence[ThreadSummaryText], counter: Counter) -> list[tuple[int, Line]]:
    """Return the lines of the summaries with their positions, newest first."""
    lines = [Line(summary_line(summary), counter) for summary in summaries]
    return [(place, line) for place, line in reversed(list(enumerate(lines))) if line.text]


def _add_summaries(sheet: Sheet, lines: Iterable[tuple[int, Line]], within: int) -> list[tuple[int, Line]]:
    """Add summaries of at most `within` tokens together, and return those that did not fit."""
    skipped = []
    for place, line in lines:
        grown = sheet.take(CONVERSATION, line, place=(place, 0), within=within)
        if grown is None:
            skipped.append((place, line))
        else:
            within -= grown
    return skipped


def _take_quotes(sheet: Sheet, quotes: Iterable[Quote]) -> list[GivenTurn]:
    """Add the quotes that fit, the best first, until some did not fit; return their turns."""
    taken: list[GivenTurn] = []
    skipped = 0
    for rank, quote in enumerate(quotes):
        if sheet.take(QUOTES, Line(quote.text, sheet.counter), place=(rank, 0)) is not None:
            taken += quote.turns
        elif (skipped := skipped + 1) == _SKIPPED:
            break
    return taken


_ONE_USE = timedelta(minutes=1)
_FILTERS = 16
"""Filters by tags whose lines are kept for one memory."""


class Blocks(msgspec.Struct):
    """How a home makes the blocks of its memories.

    Attributes:
        shares: the budgets and weights.
        tokens: the token counter.
        turns: the number of the user's last messages that define what is relevant.
        quoting: whether turns are quoted that are like the newest of these.
        enabled: whether blocks are made at all.
    """

    shares: Shares
    tokens: BackgroundLoad[Counter]
    turns: int = 3
    quoting: bool = True
    enabled: bool = True

    def nothing(self) -> Context:
        """Return an empty block."""
        return Context("", 0, self.tokens.value.name)


class ScopeBlocks(ReadModel):
    """Makes the blocks of one memory, and keeps the prepared lines; safe for threads: two may prepare the same."""

    def __init__(self, blocks: Blocks) -> None:
        self._shares = blocks.shares
        self._tokens = blocks.tokens
        self.start_over()

    def start_over(self) -> None:
        """Drop everything that is kept."""
        self._prepared: Prepared | None = None
        self._tagged: dict[tuple[str, ...], Prepared] = {}
        """What `_prepared` leaves where a filter names tags, by these."""
        self._joined: Joined | None = None
        self._used: dict[str, datetime] = {}

    def block(
        self,
        memory: Memory,
        similarity: Mapping[str, float] | None,
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        max_tokens: int | None = None,
        facts: bool = True,
        tags: tuple[str, ...] = (),
        quotes: Iterable[Quote] | None = None,
    ) -> Context:
        """Return the block of a memory; see `fill`.

        `max_tokens` overrides the configured budget. Facts that are about something else than `tags` are left out.
        """
        most = self._shares.max_tokens if max_tokens is None else max_tokens
        prepared = self._prepare(memory, any_more=quotes is not None)
        if tags:
            prepared = self._narrowed(prepared, tags)
        return fill(prepared, similarity, summaries, self._shares, most, facts=facts, quotes=quotes)

    def whole_block(
        self,
        memory: Memory,
        similarity: Mapping[str, float],
        *,
        summaries: Sequence[ThreadSummaryText] = (),
        facts: bool = True,
    ) -> Context:
        """Return the block of a memory in one part; see `fill_whole`."""
        return fill_whole(
            self._prepare(memory), similarity, summaries, self._shares, self._shares.max_tokens, facts=facts
        )

    def _prepare(self, memory: Memory, *, any_more: bool = False) -> Prepared:
        # Tokens are exact from the first block on, so the first one waits for the vocabulary.
        counter = self._tokens.wait() if memory.facts or memory.sections or any_more else self._tokens.value
        self._prepared = prepared = prepare(memory, counter, self._prepared)
        return prepared

    def _narrowed(self, prepared: Prepared, tags: tuple[str, ...]) -> Prepared:
        found = self._tagged.get(tags)
        if found is None or found.memory is not prepared.memory:
            found = narrowed(prepared, tags)
            kept = {key: one for key, one in self._tagged.items() if one.memory is prepared.memory}
            self._tagged = {tags: found} if len(kept) >= _FILTERS else {**kept, tags: found}
        return found

    def joined(self, own: Memory, users: Memory) -> Joined:
        """Return an agent's memory joined with its user's; see `join`."""
        self._joined = found = join(own, users, self._joined)
        return found

    def newly_used(self, fact_ids: Iterable[str], now: datetime) -> list[str]:
        """Return the facts that were not used within the last minute, and note their use.

        An agent requests a block before every call of its model, perhaps twenty times for one question.
        """
        used = {fact_id: at for fact_id, at in self._used.items() if abs(now - at) < _ONE_USE}
        newly = [fact_id for fact_id in fact_ids if fact_id not in used]
        self._used = used | dict.fromkeys(newly, now)
        return newly
