"""Run of memory tests: each file replayed once or several times, its expectations judged; values, or JUnit's XML.

In the XML a file is a suite, and an expectation a case.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec

from backstory.config.embedder_factory import as_embedder
from backstory.config.loading import Loaded, chosen_model, load_settings
from backstory.home import Backstory
from backstory.ledger.core.commit import Commit
from backstory.ledger.core.errors import InputError, UsageError
from backstory.ledger.core.events import CandidateRejected, Fact, UpdateFailed
from backstory.ledger.core.policy import Policy
from backstory.ledger.core.scope import Scope
from backstory.memory_tests.file import Expectation, read_test
from backstory.memory_tests.judging import Judge, Judgement, Likeness, merged, seq_of
from backstory.memory_tests.kept_replies import KeptReplies
from backstory.memory_tests.replay import Replay, replayed, settings_of
from backstory.memory_tests.steps import steps_of_files, steps_of_home
from backstory.services.services import NO_MODEL

if TYPE_CHECKING:
    from backstory.config.model_factory import ModelLike


class RememberedFact(msgspec.Struct, frozen=True):
    """A fact that is in memory at the end."""

    id: str
    content: str
    category: str
    confidence: float


class FileResult(msgspec.Struct, frozen=True):
    """The result of one file.

    Attributes:
        file: The file, as it was named.
        ok: Whether every expectation holds.
        expectations: The verdicts, in the file's order.
        memory: The facts at the end of the first run, the oldest first.
        updates: How many updates there were, in all runs; as the counts that follow.
        failed: How many of them failed, such as for a reply that is none.
        refused: How many candidates each rule refused.
        tokens_in: Tokens of the prompts, as far as they are known.
        tokens_out: Tokens of the replies, likewise.
        asked: How many replies a model gave here; all others were kept.
        model: The models that the replies came from.
        prompts: The digests of the prompt templates.
        meaning: The embedding model that compared meanings; None where words alone were compared.
        policy: The rules in force.
        notes: What else there is to know.
    """

    file: str
    ok: bool
    expectations: tuple[Judgement, ...]
    memory: tuple[RememberedFact, ...]
    updates: int
    failed: int
    refused: dict[str, int]
    tokens_in: int
    tokens_out: int
    asked: int
    model: tuple[str, ...]
    prompts: tuple[str, ...]
    meaning: str | None
    policy: Policy
    notes: tuple[str, ...]


class TestResult(msgspec.Struct, frozen=True):
    """The result of all files; `passed` and `failed` count expectations."""

    __test__ = False  # pytest must not take it for a class of tests

    ok: bool
    passed: int
    failed: int
    files: tuple[FileResult, ...]


def run_tests(
    files: Sequence[str | Path],
    *,
    home: str | Path | None = None,
    config: str | Path | Mapping[str, object] | None = None,
    model: ModelLike | None = None,
    record: bool = False,
    times: int = 1,
) -> TestResult:
    """Run the memory tests of files.

    Args:
        files: The files.
        home: The home that a file's `home` names parts of.
        config: A YAML file, or a mapping of keys; its policy is today's.
        model: The model to ask where no reply is kept; that of the file or of the configuration unless given. Where a
            file has `replies`, it is asked only if `record` is set.
        record: Ask for the replies that are missing, and keep them.
        times: How often to run each file.

    Returns:
        What holds, and why the rest does not.

    Raises:
        InputError: A file is wrong or missing, or a reply is missing.
        ConfigError: The configuration, or the policy of a file, is wrong.
        NotFoundError: The home has no such conversation.
    """
    if times < 1:
        raise UsageError(f"times must be at least 1, got {times}")
    if not files:
        raise UsageError("name the file of a memory test, such as ada.test.yaml")
    base = load_settings(config, home=home, as_hosted=True)
    likeness = Likeness(as_embedder(base.settings))
    found = tuple(
        _Run(Path(file), base, home, config, likeness, model=model, record=record).result(times) for file in files
    )
    verdicts = [verdict for result in found for verdict in result.expectations]
    passed = sum(verdict.ok for verdict in verdicts)
    return TestResult(passed == len(verdicts), passed, len(verdicts) - passed, found)


class _Run:
    """The runs of one file."""

    def __init__(
        self,
        path: Path,
        loaded: Loaded,
        home: str | Path | None,
        config: str | Path | Mapping[str, object] | None,
        likeness: Likeness,
        *,
        model: ModelLike | None,
        record: bool,
    ) -> None:
        self._path = path
        self._test = test = read_test(path)
        self._likeness = likeness
        self._number = 1
        policy: dict[str, object] = {}
        if test.home is None:
            self._scope, self._steps = steps_of_files(test, path.parent)
        else:
            with Backstory.open(home, config=config, background=False, as_hosted=True) as opened:
                self._scope = Scope.of(test.home.user, test.home.agent)
                memory = opened.memory_of(self._scope)
                self._steps = steps_of_home(memory, test.home)
                policy = msgspec.structs.asdict(memory.policy().policy)
        self._settings = settings_of(loaded, {**policy, **test.overrides})
        kept = None if test.replies is None else path.parent / test.replies
        asks = record or kept is None
        chosen = chosen_model(model or test.model, loaded) if asks else None
        if record and kept is None:
            raise InputError(
                f"{path}: --record needs a file to keep replies in: add `replies: {path.stem}.replies.jsonl`"
            )
        if asks and chosen is None:
            missing = (
                "it names no file of `replies`, which --record makes, so a model is asked; " if kept is None else ""
            )
            raise InputError(f"{path}: {missing}{NO_MODEL}")
        self._replies = KeptReplies(kept, chosen, named=test.model)

    def result(self, times: int) -> FileResult:
        """Run the file several times."""
        runs: list[list[Judgement]] = []
        updates: list[Commit] = []
        notes: dict[str, None] = {}
        facts: Sequence[Fact] = ()
        policy = Policy()
        for self._number in range(1, times + 1):
            self._replies.begin(self._number)
            with replayed(self._scope, self._steps, self._settings, self._replies) as replay:
                if self._number == 1:
                    facts, policy = replay.memory.facts(joined=False), replay.memory.policy().policy
                made = [commit for commit in replay.commits if commit.cause.kind == "extraction"]
                updates += made
                notes |= dict.fromkeys(
                    f"the update of thread {commit.cause.thread} failed: {event.detail}"
                    for commit in made
                    for event in commit.events
                    if isinstance(event, UpdateFailed)
                )
                if unused := self._replies.unused:
                    notes[f"kept replies that were not used, by thread: {', '.join(unused)}"] = None
                runs.append(self._verdicts(replay))
        verdicts = merged(runs)
        events = [event for commit in updates for event in commit.events]
        refused = Counter(event.rule for event in events if isinstance(event, CandidateRejected))
        return FileResult(
            file=str(self._path),
            ok=all(verdict.ok for verdict in verdicts),
            expectations=verdicts,
            memory=tuple(RememberedFact(one.id, one.content, one.category, one.confidence) for one in facts),
            updates=len(updates),
            failed=sum(isinstance(event, UpdateFailed) for event in events),
            refused={rule: refused[rule] for rule in sorted(refused)},
            tokens_in=sum(commit.cause.tokens_in or 0 for commit in updates),
            tokens_out=sum(commit.cause.tokens_out or 0 for commit in updates),
            asked=self._replies.asked,
            model=tuple(sorted({commit.cause.model for commit in updates if commit.cause.model is not None})),
            prompts=tuple(sorted(self._replies.templates)),
            meaning=self._likeness.name,
            policy=policy,
            notes=tuple(notes),
        )

    def _verdicts(self, replay: Replay) -> list[Judgement]:
        last = Judge(replay, replay.seq, self._likeness)
        return [
            last.verdict(expected) if expected.at is None else self._earlier(expected, replay)
            for expected in self._test.expect
        ]

    def _earlier(self, expected: Expectation, replay: Replay) -> Judgement:
        seq = seq_of(expected.at, replay)
        if expected.context is None:
            return Judge(replay, seq, self._likeness).verdict(expected)
        # A block is made of memory as it is: so the updates up to there are made once more.
        steps = [step for step, last in zip(self._steps, replay.after, strict=True) if last <= seq]
        self._replies.begin(self._number)
        with replayed(self._scope, steps, self._settings, self._replies) as then:
            return Judge(then, then.seq, self._likeness).verdict(expected)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: TestResult) -> bytes:
    """Return the XML of a result; without times, so that equal results are equal bytes."""
    total = result.passed + result.failed
    root = Element("testsuites", tests=str(total), failures=str(result.failed), errors="0")
    for one in result.files:
        failed = sum(not verdict.ok for verdict in one.expectations)
        suite = SubElement(
            root, "testsuite", name=_text(one.file), tests=str(len(one.expectations)), failures=str(failed), errors="0"
        )
        for verdict in one.expectations:
            case = SubElement(suite, "testcase", classname=_text(one.file), name=_text(verdict.expect))
            if not verdict.ok:
                SubElement(case, "failure", message=_text(verdict.why)).text = _text(verdict.text)
    indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, "unicode").encode() + b"\n"


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
