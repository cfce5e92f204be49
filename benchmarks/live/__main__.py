"""Run the whole path against a real local model server, and say what came of it: `make live`.

A conversation is recorded, a small model is asked over OpenAI's protocol what to remember, and what it answers is
decided, stored and verified by another process. Each of the prompts gets a home of its own. Exit 0: the path works,
whatever the model's wit; 1: it does not; 2: wrong use; 3: no server.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from backstory import Backstory
from backstory.cli.inputs import read_conversation
from backstory.ledger.core.errors import BackstoryError, InputError, UsageError
from backstory.ledger.core.scope import Scope
from backstory.memory_tests.run import FileResult, run_tests
from benchmarks.live.options import PROMPTS, Options, parse
from benchmarks.live.report import Report, Update, report_of, rows
from benchmarks.live.server import NAME, Server, ServerError, command, free_port
from benchmarks.live.wire import Wire

_THREAD = "conversation"
"""What the thread of lines that name none is called."""
_ATTEMPTS = 1
"""A call that takes too long on a busy machine would take as long again."""

Threads = dict[str, list[dict[str, object]]]


def conversation(options: Options) -> tuple[str | None, Threads]:
    """Read one user's threads.

    Raises:
        InputError: there is no such file, a line of it is broken, or it says nothing of that user.
    """
    read = read_conversation(str(options.data), user=None, agent=None, thread=_THREAD)
    if read.broken:
        raise InputError(f"{options.data}: {read.broken[0]}")
    users = [group.scope.user for group in read.groups]
    user = options.user if options.user is not None or not users else users[0]
    threads: Threads = {}
    for group, messages in read.groups.items():
        if group.scope.user == user:
            threads.setdefault(group.thread, []).extend(messages)
    if not threads:
        raise InputError(f"{options.data} holds no message of user {user!r}; name another file or --user")
    return user, threads


def play(
    options: Options, address: str, home: Path, prompts: Path | None, progress: Progress, *, until: float
) -> Report:
    """Record everything, learn from some threads, and have another process verify it.

    After `until` (of `time.perf_counter`) no thread but the first is asked about; the others stay pending.
    """
    user, threads = conversation(options)
    names = list(threads)[: options.threads or None]
    start = time.perf_counter()
    with (
        Wire(address, options.max_tokens, options.patience) as wire,
        Backstory.open(
            home,
            model=NAME,
            background=False,
            config={"model": {"base_url": wire.address, "temperature": options.temperature}},
            prompts_dir=None if prompts is None else str(prompts),
            max_attempts=_ATTEMPTS,
            min_seconds_between_calls=0,
            summary_min_turns=0,
        ) as bs,
    ):
        memory = bs.memory_of(Scope(user))
        for thread, messages in threads.items():
            memory.record(thread, messages)
        for thread in progress.track(names, description=f"asking about {len(names)} threads"):
            if thread == names[0] or time.perf_counter() < until:
                memory.extract(thread=thread)
        updates = [Update(entry.cause, entry.events) for entry in memory.log() if entry.cause.kind == "extraction"]
        left = sum(pending.turns for pending in memory.status().pending)
    return report_of(
        updates[::-1],
        wire.calls,
        seconds=time.perf_counter() - start,
        left=left,
        verified=verified_by_another(home, user),
    )


def tested(options: Options, address: str) -> FileResult | None:
    """Run a memory test with the model's replies, in the shortest prompts; None where none is named.

    Raises:
        InputError: the model gave no reply, or the file is wrong.
    """
    if options.test is None:
        return None
    with Wire(address, options.max_tokens, options.patience) as wire:
        config = {
            "model": {"model": NAME, "base_url": wire.address, "temperature": options.temperature},
            "prompts_dir": str(PROMPTS["short"]),
            "max_attempts": _ATTEMPTS,
        }
        return run_tests([options.test], config=config).files[0]


def verified_by_another(home: Path, user: str | None) -> bool:
    """Have another process read everything that was written."""
    whose = [] if user is None else ["--user", user]
    done = subprocess.run(
        [sys.executable, "-m", "backstory.cli", "--home", home, *whose, "verify"], check=False, capture_output=True
    )
    return done.returncode == 0


@contextlib.contextmanager
def serving(options: Options) -> Iterator[str]:
    """Yield a server's address, and end it afterwards if it is ours.

    Raises:
        ServerError: it cannot be started.
    """
    if options.address is not None:
        yield options.address
        return
    port = free_port()
    with Server(command(options, port), port, options.live / "server.log") as server:
        yield server.address


def compare(options: Options, reports: dict[str, Report]) -> Table:
    """Put the reports side by side."""
    table = Table("what", *(f"{name} prompts" for name in reports), title=f"{options.data.name}, {NAME}")
    for what, *figures in zip(*(rows(report) for report in reports.values()), strict=True):
        table.add_row(what[0], what[1], *(figure for _, figure in figures))
    return table


def run(options: Options, console: Console) -> int:
    conversation(options)  # what is wrong with the file shall not be found after the server was started
    reports: dict[str, Report] = {}
    with contextlib.ExitStack() as stack:
        folder = options.home or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="backstory-live-")))
        progress = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        waiting = progress.add_task("starting the server", total=None)
        address = stack.enter_context(serving(options))
        progress.remove_task(waiting)
        start, share = time.perf_counter(), 60 * options.minutes / len(options.prompts)
        for number, name in enumerate(options.prompts, 1):
            until = start + number * share
            reports[name] = play(options, address, folder / name, PROMPTS[name], progress, until=until)
        test = tested(options, address)
    console.print(compare(options, reports))
    for name, report in reports.items():
        for detail in report.details:
            console.print(f"{name}: failed: {detail[:200]}", markup=False, highlight=False)
    if test is not None:
        held = sum(verdict.ok for verdict in test.expectations)
        console.print(
            f"memory test {test.file}: {test.asked} replies asked for, {test.updates} updates ({test.failed} failed), "
            f"{held} of {len(test.expectations)} expectations hold",
            markup=False,
            highlight=False,
        )
    return 0 if all(report.passed for report in reports.values()) else 1


def main() -> int:
    options = parse(sys.argv[1:])
    # As on Ctrl-C, the `with` blocks run to their end, and so does the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(options, Console(width=140))
    except UsageError as error:
        print(f"{error}; `make live LIVE_DATA=FILE` names another file", file=sys.stderr)
        return 2
    except (ServerError, BackstoryError) as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
