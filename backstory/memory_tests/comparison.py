"""Comparison of two results: what another prompt, model or policy changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.policy import POLICY_KEYS, PolicyValue
from backstory.ledger.disk.files import read_given
from backstory.memory_tests.run import FileResult, RememberedFact, TestResult


class Changed(msgspec.Struct, frozen=True):
    """A value that differs; None where a result has none."""

    before: PolicyValue | tuple[str, ...] | None
    after: PolicyValue | tuple[str, ...] | None


class FileComparison(msgspec.Struct, frozen=True):
    """What differs in one file.

    Attributes:
        file: The file.
        new: Whether the earlier result does not have it.
        expectations: By each expectation whose outcome differs, in how many of its runs it holds, such as `1 of 1`.
        added: The facts that are in memory now and were not.
        removed: The facts that were and are not.
        refused: By each rule, how many candidates it refused, where that differs.
        policy: By each policy key its values, where they differ.
        counts: The updates, failed updates and tokens, where they differ.
        model: The models, where they differ.
        prompts: The digests of the prompt templates, where they differ.
    """

    file: str
    new: bool
    expectations: dict[str, Changed]
    added: tuple[RememberedFact, ...]
    removed: tuple[RememberedFact, ...]
    refused: dict[str, Changed]
    policy: dict[str, Changed]
    counts: dict[str, Changed]
    model: Changed | None
    prompts: Changed | None


class Compared(TestResult, frozen=True):
    """A result, and what differs from an earlier one, file by file."""

    compared: tuple[FileComparison, ...] = ()


def compare(result: TestResult, earlier: Path) -> Compared:
    """Compare a result with an earlier one, as `--json` printed it.

    Raises:
        InputError: The file cannot be read, or is no such result.
    """
    data = read_given(earlier, "name a file that `backstory --json test` wrote")
    try:
        before = msgspec.json.decode(data, type=TestResult)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{earlier} is not a result of `backstory --json test` ({error}): write one with its output"
        ) from error
    known = {one.file: one for one in before.files}
    compared = tuple(_compared(one, known.get(one.file)) for one in result.files)
    return Compared(result.ok, result.passed, result.failed, result.files, compared)


def _compared(after: FileResult, before: FileResult | None) -> FileComparison:
    if before is None:
        return FileComparison(after.file, True, {}, (), (), {}, {}, {}, None, None)
    held = [{one.expect: f"{one.held} of {one.runs}" for one in result.expectations} for result in (before, after)]
    names = ("updates", "failed", "tokens_in", "tokens_out")
    policies = [{key: getattr(result.policy, key) for key in POLICY_KEYS} for result in (before, after)]
    counts = [{name: getattr(result, name) for name in names} for result in (before, after)]
    return FileComparison(
        file=after.file,
        new=False,
        expectations=_changes(*held),
        added=_only_in(after, before),
        removed=_only_in(before, after),
        refused=_changes(before.refused, after.refused, absent=0),
        policy=_changes(*policies),
        counts=_changes(*counts),
        model=None if before.model == after.model else Changed(before.model, after.model),
        prompts=None if before.prompts == after.prompts else Changed(before.prompts, after.prompts),
    )


def _changes(
    before: dict[str, PolicyValue] | dict[str, str] | dict[str, int],
    after: dict[str, PolicyValue] | dict[str, str] | dict[str, int],
    *,
    absent: int | None = None,
) -> dict[str, Changed]:
    pairs = {key: Changed(before.get(key, absent), after.get(key, absent)) for key in {**before, **after}}
    return {key: changed for key, changed in pairs.items() if changed.before != changed.after}


def _only_in(result: FileResult, other: FileResult) -> tuple[RememberedFact, ...]:
    """Return the facts that the other result has not; ids do not count, since they name commits."""
    left = Counter((fact.content, fact.category) for fact in other.memory)
    found = []
    for fact in result.memory:
        key = fact.content, fact.category
        if left[key]:
            left[key] -= 1
        else:
            found.append(fact)
    return tuple(found)
