"""Incident: a memory test made of a fact, or of a commit, so that what went wrong once is tested from then on.

It holds the updates that led there, with their turns and the answers of the model as the ledger has them. What is
written into a repository is out of reach of an erasure, so the words are shown first, and names can be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from backstory.ledger.core.commands import LISTS, candidates_of
from backstory.ledger.core.errors import InputError, NotFoundError
from backstory.ledger.core.events import (
    Candidate,
    Consolidation,
    Erased,
    Extension,
    Fact,
    FactAdded,
    FactRemoved,
    NewSummary,
    Reinforcement,
    Removal,
    Unread,
)
from backstory.ledger.disk.files import write_given
from backstory.ledger.extraction.models.recorded import RECORDED
from backstory.ledger.rules.admission import commit_named
from backstory.memory import MemoryHandle
from backstory.memory_tests.kept_replies import KeptReply, prompt_key
from backstory.memory_tests.steps import MessageFields, Step, message_of, turns_of
from backstory.projections.history.views import LogEntry

_UNDONE = {"hand", "revert", "rollback", "clear", "import"}
"""The reasons of a removal that say that the fact was wrong; after the others it was true once."""
_FIRST_UPDATE = 2
"""The commit of the first update in a scratch ledger: the one before it puts the policy in force."""


class Incident(msgspec.Struct, frozen=True):
    """A memory test to write.

    Attributes:
        files: The content of each file, by its path; the test itself comes last.
        words: The texts in them that were said or learned, in order.
        notes: What of the history is not in them.
    """

    files: dict[str, str]
    words: tuple[str, ...]
    notes: tuple[str, ...]

    def must_be_new(self) -> None:
        """Refuse to overwrite a file.

        Raises:
            InputError: One of the files is there already.
        """
        for name in self.files:
            if Path(name).exists():
                raise InputError(f"{name} is there already: name another file for the test")

    def write(self) -> None:
        """Write the files.

        Raises:
            StoreError: One cannot be written.
        """
        for name, text in self.files.items():
            write_given(Path(name), text.encode())


def incident_of(memory: MemoryHandle, what: str, path: Path | None, names: Mapping[str, str]) -> Incident:
    """Make a test of a fact or a commit.

    Args:
        memory: The memory.
        what: A fact's id, or a commit.
        path: The file of the test; named after the fact or the commit unless given.
        names: Names to replace, each with what comes in its place; case does not matter.

    Raises:
        NotFoundError: There is no such fact or commit, no update of a model led to it, or its words were erased.
    """
    if what.startswith("fact_"):
        fact_id = memory.fact_id(what)
        name, updates = fact_id, _updates(memory.log(fact=fact_id))
    else:
        seq = memory.seq_of(what)
        fact_id, name = None, f"commit_{seq}"
        updates = _updates(_commit(memory, seq))
    if not updates:
        raise NotFoundError(f"no update of a model led to {what}, so there is nothing to replay: see `log`")
    history = _History(memory, updates)
    expect = _expectations(memory, updates, fact_id)
    test = Path(f"{name}.test.yaml") if path is None else path
    return _written(history, expect, test, _Names(names))


def _commit(memory: MemoryHandle, seq: int) -> list[LogEntry]:
    """Return a commit, or the one that it undid."""
    found = [one for one in memory.log(before=seq + 1, limit=1) if one.seq == seq]
    undone = [one.cause.target for one in found if one.cause.kind == "revert" and one.cause.target is not None]
    return _commit(memory, undone[0]) if undone else found


def _updates(entries: Iterable[LogEntry]) -> list[LogEntry]:
    return [one for one in entries if one.cause.kind == "extraction" and one.cause.turns is not None]


def _expectations(memory: MemoryHandle, updates: Sequence[LogEntry], fact_id: str | None) -> list[dict[str, str]]:
    """Return what must hold: facts that live are remembered, undone ones never learned, others forgotten."""
    live = {fact.id: fact for fact in memory.facts(joined=False)}
    touched: dict[str, Fact] = {}
    for update in sorted(updates, key=lambda one: one.seq):
        for event in update.events:
            if isinstance(event, FactAdded | FactRemoved):
                touched.setdefault(event.fact.id, event.fact)
    found = []
    for one in touched.values():
        if one.id in live:
            # Of an update beside the point only what it took away is at stake.
            if fact_id in (None, one.id) or _was_removed(one.id, updates):
                found.append({"remembers": live[one.id].content})
        elif (gone := memory.why(one.id).removed) is not None and gone.reason in _UNDONE:
            found.append({"never": one.content})
        elif fact_id in (None, one.id):
            found.append({"forgets": one.content})
    return found


def _was_removed(fact_id: str, updates: Sequence[LogEntry]) -> bool:
    return any(isinstance(event, FactRemoved) and event.fact.id == fact_id for one in updates for event in one.events)


class _History:
    """The updates that others depend on, and these, oldest first, with the turns of each.

    Raises:
        NotFoundError: Words or an answer were erased.
    """

    def __init__(self, memory: MemoryHandle, updates: Sequence[LogEntry]) -> None:
        self.notes: list[str] = []
        waiting, known = list(updates), {one.seq: one for one in updates}
        while waiting:
            for fact_id in sorted(_ids_in(waiting.pop())):
                added = [one for one in memory.log(fact=fact_id) if _adds(one, fact_id)]
                if not _updates(added):
                    self.notes.append(f"{fact_id} was not learned from a conversation, so the test lacks it")
                for one in _updates(added):
                    if one.seq not in known:
                        known[one.seq] = one
                        waiting.append(one)
        self.updates = [known[seq] for seq in sorted(known)]
        self.seqs = _seqs(memory, self.updates)
        self.turns = [_turns(memory, one) for one in self.updates]

    def renamed(self, fact_id: str) -> str:
        """Return the id that a fact gets when only these updates are made."""
        seq = commit_named(fact_id)
        return f"fact_{self.seqs[seq]}_{fact_id.split('_', 2)[2]}" if seq in self.seqs else fact_id


def _seqs(memory: MemoryHandle, updates: Sequence[LogEntry]) -> dict[int, int]:
    """Return the commit that each update gets when only these are made.

    Before an update there may be one in which facts expire. It counts where it is about a fact of these updates.
    """
    known = {one.seq for one in updates}
    expiries = [
        one.seq
        for one in memory.log(since=updates[0].seq)
        if one.cause.kind == "expiry"
        and any(isinstance(event, FactRemoved) and event.fact.seq in known for event in one.events)
    ]
    seqs: dict[int, int] = {}
    seq, before = _FIRST_UPDATE - 1, 0
    for update in updates:
        seq += 2 if any(before < expiry < update.seq for expiry in expiries) else 1
        seqs[update.seq] = seq
        before = update.seq
    return seqs


def _adds(entry: LogEntry, fact_id: str) -> bool:
    return any(isinstance(event, FactAdded) and event.fact.id == fact_id for event in entry.events)


def _ids_in(update: LogEntry) -> Iterator[str]:
    """Yield the facts that an answer refers to."""
    if any(isinstance(event, Erased) for event in update.events):
        raise NotFoundError(f"content of commit {update.seq} was erased, so its answer cannot be replayed")
    for candidate in candidates_of(update.events):
        if isinstance(candidate, Removal | Reinforcement | Extension):
            yield candidate.id
        elif isinstance(candidate, Consolidation):
            yield from candidate.sources


def _turns(memory: MemoryHandle, update: LogEntry) -> list[MessageFields]:
    found = [message_of(turn) for turn in turns_of(memory, update.cause)]
    if not found:
        raise NotFoundError(
            f"the words of commit {update.seq} (thread {update.cause.thread}) were erased or taken back, so it cannot "
            "be replayed"
        )
    return found


class _Names:
    """Names to replace, each with what comes in its place."""

    def __init__(self, names: Mapping[str, str]) -> None:
        # Scripts without spaces have no ends of words.
        self._patterns = [
            (re.compile(rf"(?<!\w){re.escape(old)}(?!\w)" if old.isascii() else re.escape(old), re.IGNORECASE), new)
            for old, new in names.items()
        ]

    def text(self, text: str) -> str:
        """Return a text with the names replaced."""
        for pattern, new in self._patterns:
            text = pattern.sub(new.replace("\\", r"\\"), text)
        return text

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return an object with the names in its texts replaced."""
        return {key: self._value(inner) for key, inner in fields.items()}

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self.fields(value)
        return [self._value(inner) for inner in value] if isinstance(value, list | tuple) else value


def _written(history: _History, expect: list[dict[str, str]], test: Path, names: _Names) -> Incident:
    import yaml

    stem = test.name.removesuffix(test.suffix).removesuffix(".test")
    conversations: list[list[Step]] = []
    replies: list[bytes] = []
    words: list[str] = []
    for update, turns in zip(history.updates, history.turns, strict=True):
        messages = tuple(map(names.fields, turns))
        step = Step(str(messages[0]["thread_id"]), messages)
        if not conversations or conversations[-1][-1].thread == step.thread:
            # Lines of one thread that follow each other would make one update.
            conversations.append([])
        conversations[-1].append(step)
        reply = names.fields(_reply(update, history))
        replies.append(_kept(update, step, reply))
        words += [f"{message['role']}: {message['content']}" for message in messages]
        words += _texts(reply)
    files = {
        _name(stem, number): "".join(_line(message) for step in steps for message in step.messages)
        for number, steps in enumerate(conversations, 1)
    }
    whole = {
        "conversations": list(files),
        "replies": f"{stem}.replies.jsonl",
        "expect": list(map(names.fields, expect)),
    }
    files[f"{stem}.replies.jsonl"] = b"".join(replies).decode()
    files[test.name] = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=1000)
    paths = {str(test.with_name(name)): text for name, text in files.items()}
    return Incident(paths, tuple(words), tuple(history.notes))


def _name(stem: str, number: int) -> str:
    return f"{stem}.jsonl" if number == 1 else f"{stem}-{number}.jsonl"


def _line(value: object) -> str:
    return msgspec.json.encode(value).decode() + "\n"


def _kept(update: LogEntry, step: Step, reply: object) -> bytes:
    cause = update.cause
    row = KeptReply(
        step.thread,
        msgspec.Raw(msgspec.json.encode(reply)),
        None if cause.prompt is None else prompt_key(cause.prompt, step),
        None if cause.model == RECORDED else cause.model,
        tokens_in=cause.tokens_in,
        tokens_out=cause.tokens_out,
    )
    return msgspec.json.encode(row) + b"\n"


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a reply that a person reads: contents, reasons and summaries."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"content", "reason", "summary", "sourceError"} and isinstance(inner, str):
                yield f"reply: {inner}"
            else:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str) and value.startswith(("{", "[")):
        yield f"reply: {value}"


def _reply(update: LogEntry, history: _History) -> dict[str, object]:
    """Return a model's answer as the ledger has it, with the ids that the facts get in a replay."""
    reply: dict[str, object] = {}
    lists: dict[str, dict[int, object]] = {}
    for candidate in candidates_of(update.events):
        name, _, index = candidate.place.partition("/")
        if isinstance(candidate, NewSummary):
            group, _, key = name.partition(".")
            section = {"summary": candidate.summary, "shouldUpdate": True, **_labels(candidate)}
            reply[group] = {**_object(reply.get(group)), key: section}
        elif name in LISTS and index.isdecimal():
            lists.setdefault(name, {})[int(index)] = _item(candidate, history)
    for name, items in lists.items():
        # An index is part of the id of a fact, so a gap stays one.
        reply[name] = [items.get(index) for index in range(max(items) + 1)]
    return reply or {"newFacts": []}


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _labels(candidate: Candidate) -> dict[str, object]:
    given = {name: getattr(candidate, name, None) for name in ("scope", "durability", "authority")}
    return {name: value for name, value in given.items() if value is not None}


def _item(candidate: Candidate, history: _History) -> object:
    fields = msgspec.to_builtins(candidate)
    del fields["kind"], fields["place"]
    if isinstance(candidate, Unread):
        try:
            item: object = msgspec.json.decode(candidate.text)
        except msgspec.DecodeError:
            item = candidate.text
        return item
    if isinstance(candidate, Consolidation):
        del fields["sources"]
        return {"sourceIds": [history.renamed(one) for one in candidate.sources], "consolidated": fields}
    # The names of these two fields are longer in an answer.
    for name, stated in (("replacement", "replacementFactIndex"), ("days", "extendByDays")):
        if fields.get(name) is not None:
            fields[stated] = fields[name]
        fields.pop(name, None)
    if "id" in fields:
        fields["id"] = history.renamed(fields["id"])
    return fields
