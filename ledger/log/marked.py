"""Marked texts in a command: which candidates repeat them, and whether a user said them again.

The rules about marks are pure (`rules.marks`), and so are those about evidence (`rules.screening`). What they need of
the transcript and of the scope's secret is looked up here, when a command is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from backstory.ledger.core.commands import AddFact, Command, EditFact, Extract, withheld
from backstory.ledger.core.dedup import mark_key
from backstory.ledger.core.events import Candidate, Consolidation, NewFact, Spoken, Turn, TurnRange
from backstory.ledger.core.memory import Mark, Memory
from backstory.ledger.erasure.digest import MARKED, sealing
from backstory.ledger.rules.marks import highest_share, is_said_again, marked
from backstory.ledger.threads.transcript import Thread

Secret = Callable[[], bytes | None]
"""Returns the key of the digests of erased texts; None if it is gone, and with it what they could recognise."""


class Marked:
    """The marks of a memory, and the turns of a conversation, as they concern the candidates of one command.

    Args:
        memory: the state that the command is decided on.
        secret: asked only if the memory has marks of erased texts.
        thread: the conversation that a model answered about; None for a command without one.
        turns: the turns that it answered about.
    """

    def __init__(
        self, memory: Memory, secret: Secret, thread: Thread | None = None, turns: TurnRange | None = None
    ) -> None:
        self._memory = memory
        self._thread = thread
        self._turns = turns
        key = secret() if memory.erased else None
        self._seal = None if key is None else sealing(key)

    def completed(self, command: Command) -> Command:
        """Return a command with what the rules about marks and about evidence need to know."""
        if isinstance(command, Extract) and self._thread is not None and self._turns is not None:
            command = _with_cited(command, self._thread, self._turns)
        if not self._memory.marks and self._seal is None:
            return command
        if isinstance(command, Extract):
            return self._extract(command)
        if isinstance(command, AddFact) and command.by_model:
            return msgspec.structs.replace(command, erased=self._erased(command.fact.content) is not None)
        if isinstance(command, EditFact) and command.by_model and command.edit.content is not None:
            return msgspec.structs.replace(command, erased=self._erased(command.edit.content) is not None)
        return command

    def _extract(self, command: Extract) -> Extract:
        candidates: list[Candidate] = []
        said_again: dict[str, float] = {}
        for candidate in command.proposal.candidates:
            kept = candidate
            if isinstance(candidate, NewFact | Consolidation):
                content = candidate.content
                mark, erased = marked(self._memory, content), self._erased(content)
                if mark is not None:
                    said_again[candidate.place] = self._share(candidate, mark)
                if erased is not None and not is_said_again(self._memory, self._share(candidate, erased)):
                    kept = withheld(candidate.place)
            candidates.append(kept)
        proposal = command.proposal
        if any(one is not other for one, other in zip(candidates, proposal.candidates, strict=True)):
            # The digest of the answer has no salt, so it could confirm a guess of what was erased.
            proposal = msgspec.structs.replace(proposal, candidates=tuple(candidates), digest="")
        return msgspec.structs.replace(command, proposal=proposal, said_again=said_again)

    def _erased(self, content: str) -> Mark | None:
        return None if self._seal is None else self._memory.erased.get(self._seal(MARKED, mark_key(content)))

    def _share(self, candidate: NewFact | Consolidation, mark: Mark) -> float:
        cited = candidate.evidence if isinstance(candidate, NewFact) else ()
        return highest_share(candidate.content, self._users_words(cited, mark))

    def _users_words(self, cited: Iterable[str], mark: Mark) -> list[str]:
        """Return what the user said in the answered and the cited turns, as far as it was said after a mark."""
        thread = self._thread
        if thread is None:
            return []
        ordinals = set() if self._turns is None else set(range(self._turns.first, self._turns.last + 1))
        ordinals |= {thread.latest[turn] for turn in cited if turn in thread.latest}
        recorded = (n for n in sorted(ordinals) if n <= len(thread.turns) and thread.seqs[n - 1] > mark.after)
        found = (turn for n in recorded if (turn := thread.turns[n - 1]) is not None and thread.stands(n))
        # What was recorded later may be an old conversation.
        return [turn.content for turn in found if turn.role == "user" and turn.at >= mark.at]


def _with_cited(command: Extract, thread: Thread, answered: TurnRange) -> Extract:
    turns = thread.standing(answered.first, answered.last)
    # Two turns may have one id: the latest one counts, and an id of the host before one of ours.
    here = {turn.id: turn for turn in sorted(turns, key=lambda turn: (not turn.anonymous, turn.n))}
    candidates = command.proposal.candidates
    ids = dict.fromkeys(each for one in candidates if isinstance(one, NewFact) for each in one.evidence)
    cited = {each: turn for each in ids if (turn := here.get(each) or thread.find(each)) is not None}
    return msgspec.structs.replace(
        command,
        answered=Spoken.of_all(map(_spoken, turns)),
        cited={each: _spoken(turn) for each, turn in cited.items()},
    )


def _spoken(turn: Turn) -> Spoken:
    return Spoken(turn.at, "assistant" if turn.role == "assistant" else "user")
