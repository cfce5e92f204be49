"""Call of a hook: what memory gives goes to standard output, what was said into the memory of the project.

No failure reaches the host: it becomes a line in the log of the home, and the exit code is 0. What is given is given
within a limit of time or not at all. What was said is recorded by a child process, which the host does not wait for.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from backstory.hooks.hosts import GIVES, HOSTS, RECORDS, agent_of, home_folder, lies_in, project_of
from backstory.ledger.core.errors import BackstoryError, InputError

if TYPE_CHECKING:
    from backstory.memory import MemoryHandle

OPTIONS = ("--home", "--user", "--agent", "--config", "--store")
LOG = "hooks.log"
PAUSED = "hooks.paused"

_LIMIT_SECONDS = 0.25
"""Of the 300 ms that a host may wait, the rest is the start and the end of the interpreter."""
_LARGEST = 1 << 23
_LARGEST_LOG = 1 << 20
_LONGEST_LINE = 400


class Call(msgspec.Struct):
    """What a host says on standard input, as far as it is read."""

    hook_event_name: str
    cwd: str
    prompt: str = ""
    transcript_path: str | None = None


def called(words: list[str]) -> tuple[str, dict[str, str]] | None:
    """Return the host and the options of a command line that is a call of a hook; None if it is another."""
    options = dict(zip(words[:-2:2], words[1:-2:2], strict=False))
    stated = len(words) % 2 == 0 and 2 * len(options) == len(words) - 2 and options.keys() <= {*OPTIONS}
    return (words[-1], options) if stated and words[-2:-1] == ["hook"] and words[-1] in HOSTS else None


def run(name: str, options: Mapping[str, str]) -> None:
    """Answer the call of a hook that stands on standard input, with the global options given; it never fails."""
    hook = _Hook(name, options)
    limit = threading.Timer(_LIMIT_SECONDS, hook.give_up)
    limit.daemon = True
    limit.start()
    try:
        if (hook.folder / PAUSED).exists():
            return
        hook.read(sys.stdin.buffer)
        if hook.event in RECORDS:
            limit.cancel()
            limit.join()
            if _is_child():
                hook.record()
        elif hook.event in GIVES:
            hook.give(limit)
        else:
            hook.note("this event is not handled: only those that `backstory hook install` lists are")
    except BackstoryError as error:
        hook.note(str(error))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 a hook never stops its host
        # The text of another error may quote what was said.
        said = f" {error.filename or ''}: {error.strerror}" if isinstance(error, OSError) else ""
        hook.note(f"unexpected {type(error).__name__}{said}")
    finally:
        limit.cancel()


def _is_child() -> bool:
    """Go on in a child that the host does not wait for; False in the process that it waits for. No thread runs yet."""
    if os.fork():
        return False
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    gc.enable()
    return True


class _Hook:
    """One call: the host, what it says, and the memory of its project."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.host = HOSTS[name]
        self.folder = home_folder(options.get("--home"))
        self.event = "-"
        self._options = {option: value for option, value in options.items() if value}
        self._call = Call("", "")

    def read(self, stream: BinaryIO) -> None:
        """Read what the host says."""
        given = stream.read(_LARGEST + 1)
        try:
            self._call = msgspec.json.decode(given, type=Call)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InputError(f"standard input is no call of a hook ({len(given)} bytes)") from error
        self.event = self._call.hook_event_name
        if not Path(self._call.cwd).is_absolute():
            raise InputError("the call names no absolute folder (cwd)")

    def give(self, limit: threading.Timer) -> None:
        """Print what memory has: at a session's start what stands, for a prompt what it brings besides."""
        with self._memory() as memory:
            if memory is None:
                return
            begins = self.event == "SessionStart"
            text = memory.context().standing if begins else memory.context(self._call.prompt).found
            limit.cancel()
            if text:
                said = {"hookEventName": self.event, "additionalContext": text}
                sys.stdout.write(json.dumps({"hookSpecificOutput": said}) + "\n")
                sys.stdout.flush()

    def record(self) -> None:
        """Record what the session file holds that is new."""
        with self._memory() as memory:
            if memory is not None:
                memory.import_file(self.host.transcript(self._call.transcript_path), format_name=self.host.name)

    @contextmanager
    def _memory(self) -> Iterator[MemoryHandle | None]:
        """Open the memory of the project; None where the configuration leaves its folder out."""
        from backstory.home import Backstory
        from backstory.ledger.core.scope import Scope

        folder = Path(os.environ.get(self.host.began_in) or self._call.cwd)
        project, stated = project_of(folder), self._options
        with Backstory.open(
            stated.get("--home"),
            config=stated.get("--config"),
            event_store=stated.get("--store"),
            background=False,
            as_hosted=True,
            # A process has no time to load a vocabulary, or to index all that was ever said.
            token_counting="char",  # noqa: S106 no password
            context_turns=False,
        ) as home:
            left_out = home.config.settings.hooks_leave_out
            if any(lies_in(place, left_out) for place in (Path(self._call.cwd), folder, project)):
                yield None
                return
            user = stated.get("--user") or os.environ.get("BACKSTORY_USER") or None
            yield home.memory_of(Scope.of(user, stated.get("--agent") or agent_of(project)))

    def give_up(self) -> None:
        """End without an answer, in the thread of the limit: nothing here may import a module or wait for a lock."""
        self.note("it took longer than 300 ms, so nothing was given")
        os._exit(0)

    def note(self, what: str) -> None:
        """Write a line to the log of the home, as far as that is possible."""
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {self.host.name} {self.event}: {what}"
        shown = "".join(one if one.isprintable() else " " for one in line)[:_LONGEST_LINE]
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with open(os.open(self.folder / LOG, flags, 0o600), "wb", buffering=0) as log:  # noqa: PTH123 a descriptor
                if os.fstat(log.fileno()).st_size > _LARGEST_LOG:
                    log.truncate(0)
                log.write(f"{shown}\n".encode(errors="replace"))
