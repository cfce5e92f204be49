"""Many conversations at once, and whether each of their turns was learned from, and learned from once.

A stand-in for a model answers at once: it takes down which turns it was shown, and makes one fact of each thing a user
said. A fact says nothing but which turn it is of, so that what memory holds in the end does not depend on who came
first, nor on how many turns an update covered; each has a confidence of its own, so that where memory is full, too,
only one set of facts can be left. Order, ids and times are free: what is compared is each thread's facts by content,
category and confidence.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import msgspec

from backstory import Backstory, MemoryHandle
from backstory.ledger.extraction.models.model import Answer, Prompt

__all__ = ["Deliver", "Findings", "StandIn", "Talk", "compared", "deliver", "generated", "opened", "real", "talked"]

PATIENCE = 600.0
"""Seconds that the workers are waited for."""

_THREAD = re.compile(r'<conversation thread="([^"]*)"')
_TURN = re.compile(r"^\[(\d+)\] (user|assistant)\b.*$", re.MULTILINE)
_CLOSING = ("That is all I wanted to talk about today.", "Then I wish you a good evening.")

_GOING_ON = 8

Message = dict[str, object]


class Talk(msgspec.Struct, frozen=True):
    """One conversation: whose it is, and what was said, the user's words before the agent's."""

    user: str
    thread: str
    messages: tuple[Message, ...]

    def turns(self) -> Iterator[int]:
        """Yield after how many messages the agent has answered, turn by turn."""
        for n, message in enumerate(self.messages, 1):
            if message["role"] == "assistant" and (n == len(self.messages) or self.messages[n]["role"] == "user"):
                yield n


class StandIn:
    """A model that answers at once; `seen` counts how often it was shown each turn, by thread and number."""

    name = "stand-in"

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, int]] = Counter()
        self.calls = 0
        self._mutex = threading.Lock()

    def ask(self, prompt: Prompt) -> Answer:
        """Answer the prompt, once."""
        begins = _THREAD.search(prompt.user)
        if begins is None:
            raise ValueError("this is no prompt about a conversation")
        thread = html.unescape(begins[1])
        lines = list(_TURN.finditer(prompt.user, begins.end()))
        with self._mutex:
            self.calls += 1
            self.seen.update((thread, int(line[1])) for line in lines)
        facts = [_fact(thread, int(line[1]), line[0]) for line in lines if line[2] == "user"]
        return Answer(json.dumps({"newFacts": facts}), self.name)


def _fact(thread: str, n: int, line: str) -> dict[str, object]:
    digest = hashlib.sha256(f"{thread}\n{line}".encode()).digest()
    return {
        "content": f"In {thread} the user said {digest[:8].hex()} at {n}",
        "category": ("preference", "knowledge", "context", "goal")[digest[0] % 4],
        "confidence": 0.75 + int.from_bytes(digest[:6]) / 2**50,
        "evidence": [n],
    }


# What is said.


def generated(count: int, users: int = 1) -> list[Talk]:
    """Make up so many conversations of two to five turns, with acknowledgements and words that are said twice."""
    talks = []
    for number in range(count):
        said: list[tuple[str, str]] = []
        for turn in range(1 + number % 4):
            quiet = (number + turn) % 5 == 4
            said.append(("user", "ok, thanks!" if quiet else f"I took walk {turn} of {number % 97} along the river."))
            said.append(("assistant", "You are welcome." if turn % 2 else f"Walk {turn} it is."))
        talks.append(_talk(number, users, f"talk/{number}", said))
    return talks


def real(data: Path, count: int, users: int = 1) -> list[Talk]:
    """Take so many conversations of those below a folder (NAME.conversation.jsonl), again and again."""
    known = []
    for path in sorted(data.rglob("*.conversation.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        known += [
            [(str(row["role"]), str(row["content"])) for row in turns]
            for _, turns in groupby(rows, key=lambda row: (row.get("user_id"), row["thread_id"]))
        ]
    chosen = itertools.islice(itertools.cycle(known), count)
    return [_talk(number, users, f"talk/{number}", said) for number, said in enumerate(chosen)]


def _talk(number: int, users: int, thread: str, said: Sequence[tuple[str, str]]) -> Talk:
    """A last exchange says something, so that nothing quiet is left to wait for more; every second one has ids."""
    spoken = [*said, *zip(("user", "assistant"), _CLOSING, strict=True)]
    messages: list[Message] = [{"role": role, "content": content} for role, content in spoken]
    if number % 2:
        messages = [{**message, "id": f"{thread}#{n}"} for n, message in enumerate(messages)]
    # Not by the remainder alone: sixteen threads that take them in turn would have a user each.
    return Talk(f"user{number // 16 % users}", thread, tuple(messages))


# Talking.

Deliver = Callable[[Backstory, Talk], Iterator[object]]
"""Has a conversation, a turn with each step."""


def opened(home: Path, model: StandIn, *, background: bool, **settings: object) -> Backstory:
    """Open a home in which everything is due at once; nothing is summed up, for that would show turns again."""
    stated: dict[str, object] = {
        "debounce_seconds": 0,
        "min_seconds_between_calls": 0,
        "summary_min_turns": 0,
        **settings,
    }
    return Backstory.open(home, model=model, background=background, **stated)  # type: ignore[arg-type]


def deliver(bs: Backstory, talk: Talk) -> Iterator[object]:
    """Record after each of the agent's answers, as a host does: mostly all of it again, else what is new.

    Now and then it is waited until everything so far is learned.
    """
    memory, before, number = bs.memory(talk.user), 0, int(talk.thread.rpartition("/")[2])
    for end in talk.turns():
        yield memory.record(talk.thread, talk.messages[before if number % 4 == 1 else 0 : end])
        before = end
        if number % 23 == 0:
            memory.flush(PATIENCE)


class Spent(msgspec.Struct, frozen=True):
    """Seconds: until everything was said, and until everything was learned."""

    said: float
    learned: float


def talked(bs: Backstory, talks: Sequence[Talk], *, threads: int, deliver: Deliver = deliver) -> Spent:
    """Have so many threads talk at once, each every so-many-th conversation, and wait until all of it is learned.

    A thread has eight conversations going on, a turn of each after the other, so that some of it is learned meanwhile.

    Raises:
        TimeoutError: it took too long, or something could not be learned.
    """
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(_each, bs, talks[first::threads], deliver) for first in range(threads)]:
            done.result()
    said = time.perf_counter() - start
    for user in sorted({talk.user for talk in talks}):
        if not bs.memory(user).flush(PATIENCE):
            raise TimeoutError(f"not everything that {user} said was learned")
    return Spent(said, time.perf_counter() - start)


def _each(bs: Backstory, talks: Sequence[Talk], deliver: Deliver) -> None:
    for first in range(0, len(talks), _GOING_ON):
        for _ in itertools.zip_longest(*[deliver(bs, talk) for talk in talks[first : first + _GOING_ON]]):
            pass


def _alone(home: Path, talks: Sequence[Talk], settings: dict[str, object]) -> dict[str, Counter[object]]:
    """What one thread learns, conversation by conversation, each in one update; nobody works in the background."""
    with opened(home, StandIn(), background=False, **settings) as bs:
        for talk in talks:
            memory = bs.memory(talk.user)
            memory.record(talk.thread, talk.messages)
            memory.extract(thread=talk.thread)
        return _learned(bs, talks)


def _learned(bs: Backstory, talks: Sequence[Talk]) -> dict[str, Counter[object]]:
    """Every thread's memory: the facts that came of it, each with whose memory it is in."""
    found: dict[str, Counter[object]] = {}
    for user in sorted({talk.user for talk in talks}):
        for fact in bs.memory(user).facts():
            found.setdefault(fact.source, Counter())[user, fact.content, fact.category, fact.confidence] += 1
    return found


# What came of it.


class Findings(msgspec.Struct, frozen=True):
    """What became of the turns; all that follows `quiet` is 0 where all is well.

    `quiet` are those that go along with what is said next: an answer that came after its question was learned from.
    `lost` were said and are not in the transcript, or nothing covers them and they do not wait either; `doubled` are
    there twice, or two updates cover them. `unseen` are covered and the model was never shown them, `seen_again` it was
    shown more than once. `unfinished` are threads of which something is due or parked; `differing` those whose memory
    is not what a single thread leaves.
    """

    turns: int
    updates: int
    facts: int
    quiet: int
    lost: int
    doubled: int
    unseen: int
    seen_again: int
    unfinished: int
    differing: int

    @property
    def faults(self) -> int:
        """How many there are in all."""
        return self.lost + self.doubled + self.unseen + self.seen_again + self.unfinished + self.differing


def compared(bs: Backstory, model: StandIn, talks: Sequence[Talk], alone: Path, **settings: object) -> Findings:
    """Look at every turn, and at what a single thread learns of the same in the home `alone`."""
    updates = quiet = lost = doubled = unfinished = 0
    learned: Counter[tuple[str, int]] = Counter()
    for user in sorted({talk.user for talk in talks}):
        memory = bs.memory(user)
        status = memory.status()
        not_due = [thread for thread in status.pending if thread.due_in is None or thread.waiting_for == "answer"]
        unfinished += len(status.pending) - len(not_due) + len(status.parked)
        waiting = Counter({thread.thread: thread.turns for thread in (*status.pending, *status.parked)})
        quiet += sum(thread.turns for thread in not_due)
        covered, known = _covered(memory), {thread.thread for thread in memory.threads()}
        updates += sum(entry.cause.kind == "extraction" for entry in memory.log())
        for talk in (talk for talk in talks if talk.user == user):
            said = Counter((message["role"], message["content"]) for message in talk.messages)
            kept = memory.transcript(talk.thread) if talk.thread in known else ()
            there = Counter((turn.role, turn.content) for turn in kept)
            counts = {turn.n: covered[talk.thread, turn.n] for turn in kept}
            learned.update({(talk.thread, n): count for n, count in counts.items()})
            lost += (said - there).total() + abs(list(counts.values()).count(0) - waiting[talk.thread])
            doubled += (there - said).total() + sum(count > 1 for count in counts.values())
    first, then = _alone(alone, talks, settings), _learned(bs, talks)
    return Findings(
        turns=sum(len(talk.messages) for talk in talks),
        updates=updates,
        facts=sum(facts.total() for facts in then.values()),
        quiet=quiet,
        lost=lost,
        doubled=doubled,
        unseen=sum(count > 0 and not model.seen[turn] for turn, count in learned.items()),
        seen_again=sum(count - 1 for count in model.seen.values() if count) + len(model.seen.keys() - learned.keys()),
        unfinished=unfinished,
        differing=sum(first.get(name) != then.get(name) for name in first.keys() | then.keys()),
    )


def _covered(memory: MemoryHandle) -> Counter[tuple[str, int]]:
    """How many updates cover each turn."""
    covered: Counter[tuple[str, int]] = Counter()
    for entry in memory.log():
        turns = entry.cause.turns
        if turns is not None and entry.cause.thread is not None:
            covered.update((entry.cause.thread, n) for n in range(turns.first, turns.last + 1))
    return covered
