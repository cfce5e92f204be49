"""Verifies the memories of a home, as many as go in a bounded time, and says where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from backstory.ledger.core.errors import BackstoryError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.log.clock import Clock
from backstory.ledger.log.store.jsonl import JsonlStore
from backstory.ledger.log.writer import read_commits
from backstory.projections.integrity.remedies import Check, told
from backstory.projections.integrity.verify import Problem, verify
from backstory.projections.turns.superseded import superseded_turns

__all__ = ["Differing", "examine_logs"]

Differing = Callable[[Scope], Iterable[str]]
"""Tells in what a scope's index differs from its logs."""

_VERIFIED_BYTES = 64 << 20
_PROBLEMS = 100


def examine_logs(
    home: Path, folders: Iterable[Path], clock: Clock, *, differing: Differing | None = None, all_of: Path | None = None
) -> tuple[list[Check], list[Scope]]:
    """Verify scopes as far as 64 MiB of logs go, that in the folder `all_of` in any case.

    Returns the checks, and the scopes in which nothing was found.
    """
    store = JsonlStore(home)
    checks: list[Check] = []
    sound: list[Scope] = []
    left, verified, passed = _VERIFIED_BYTES, 0, 0
    for folder in folders:
        size = sum(_size(folder / f"{kind}.jsonl") for kind in (LEDGER, TRANSCRIPT))
        if size > left and folder != all_of:
            passed += 1
            continue
        left -= size
        verified += 1
        found = _examine_scope(store, folder, clock, differing)
        checks += found.checks
        if found.scope is not None:
            sound.append(found.scope)
    more = f"; {passed} larger ones were not: run `verify --all`" if passed else ""
    summary = Check("logs", not checks, f"{verified} of the memories here were verified{more}")
    return [summary, *checks], sound


class _Found:
    """What was found in one scope; `scope` where nothing was."""

    def __init__(self, checks: list[Check], scope: Scope | None = None) -> None:
        self.checks = checks
        self.scope = scope


def _examine_scope(store: JsonlStore, folder: Path, clock: Clock, differing: Differing | None) -> _Found:
    below = folder.relative_to(store.home).as_posix().removeprefix(".")
    try:
        scope = _scope_in(store, below)
        if scope is None:
            return _Found([Check("owner", False, f"{folder}: this is no scope's place; move it where it belongs")])
        index = None if differing is None else (lambda: tuple(differing(scope)))
        result = verify(store, scope, document=folder / "memory.json", index=index, clock=clock)
    except BackstoryError as error:
        return _Found([Check("logs", False, str(error))])
    found = [told(problem) for problem in map(_placed(below), result.problems[:_PROBLEMS])]
    if len(result.problems) > _PROBLEMS:
        found.append(Check("logs", False, f"{folder}: {len(result.problems) - _PROBLEMS} more findings: run `verify`"))
    if found:
        return _Found(found)
    return _Found(list(_cut_threads(store, scope)), scope)


def _cut_threads(store: JsonlStore, scope: Scope) -> Iterator[Check]:
    """Threads that lost turns to a delivery which does not show that it told the whole conversation."""
    cut = Counter(
        turn.thread for turn in superseded_turns(read_commits(store, scope.stream(TRANSCRIPT))) if not turn.proven
    )
    for thread, count in cut.items():
        turns = "1 turn" if count == 1 else f"{count} turns"
        yield Check(
            "superseded turns",
            False,
            f"{turns} of thread {thread} of {scope} stand no longer, but nothing shows that the delivery which "
            f"superseded them told the whole conversation: `turns {thread} --superseded` lists them, and "
            f"`turns restore {thread}` brings them back",
        )


def _placed(below: str) -> Callable[[Problem], Problem]:
    """Say whose memory.json or index it is, where a problem names only the file."""
    names = {"memory.json": f"{below}/memory.json", "index.sqlite": f"{below}/index.sqlite"} if below else {}
    return lambda p: Problem(p.kind, names.get(p.stream, p.stream), p.line, p.byte, p.message)


def _scope_in(store: JsonlStore, below: str) -> Scope | None:
    """Whose folder it is: by its name, or where that is cut too short by the first commit."""
    scope = Scope.in_folder(below)
    if scope is not None:
        return scope
    for kind in (LEDGER, TRANSCRIPT):
        first = next(read_commits(store, f"{below}/{kind}"), None)
        if first is not None:
            owner = Scope(first.cause.user, first.cause.agent)
            return owner if owner.folder == below else None
    return None


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
