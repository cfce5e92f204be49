"""Demo: an agent learns a fact, loses it to a wrong update, gets it back with `why` and `revert`, and tests for it.

Each step is a real command, run by the same code as a typed one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from backstory.cli.pages.page import page
from backstory.home import Backstory
from backstory.ledger.core.errors import NoModelError, StoreError, UsageError
from backstory.ledger.core.events import Fact
from backstory.memory import MemoryHandle

_USER = "ada"
_DATA = Path(__file__).parent / "demo_data"
_TESTS = Path(__file__).parent / "demo_tests"
"""A memory test of the story. It lies apart, since the pictures of the page show the story without it."""
_ASKED = "Do peanuts go into the dinner on Sunday?"

RunCommand: TypeAlias = Callable[[list[str]], object]
"""Runs a command from its arguments; ends in SystemExit."""


class DemoStep(msgspec.Struct, frozen=True):
    """A command that was run, and its exit code."""

    command: str
    exit: int


class Summary(msgspec.Struct, frozen=True):
    """The outcome of the demo. `home` is None if it was temporary."""

    ok: bool
    exit: int
    live: bool
    home: str | None
    steps: tuple[DemoStep, ...]


class _StoppedError(Exception):
    """A step failed, and has reported why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def play(
    run_command: RunCommand,
    *,
    config: str | None = None,
    live: bool = False,
    keep: str | None = None,
    before_undo: bool = False,
) -> Summary:
    """Play the demo on standard output.

    Args:
        run_command: Runs one command of the command line.
        config: A configuration file, used with `live` only.
        live: Ask the configured model instead of playing recorded replies.
        keep: A new or empty folder that the demo leaves behind. Default: a temporary one.
        before_undo: Stop while the wrong fact is in memory. Needs `keep`.

    Raises:
        NoModelError: `live` is set and no model is configured.
        UsageError: The folder `keep` is not empty, or `before_undo` is set without `keep`.
    """
    if before_undo and keep is None:
        raise UsageError("--before-undo leaves memory for you to mend: name a folder for it with --keep DIR")
    chosen = str(Path(config).absolute()) if config and live else None
    with _folder(keep) as folder, _environment(folder / "home", live=live):
        if live:
            _check_model(folder / "home", chosen)
        for file in (*_DATA.iterdir(), *_TESTS.iterdir()):
            shutil.copy(file, folder)
        stage = _Stage(run_command, folder / "home", chosen, live=live)
        with contextlib.chdir(folder):
            try:
                seq, main_fact = _play_mistake(stage)
                if not before_undo:
                    _play_undo(stage, seq, main_fact)
                    _play_test(stage, main_fact)
                code = 0
            except _StoppedError as stopped:
                code = stopped.code or 1
    if keep is None:
        stage.say("The home of this demo was temporary. `backstory demo --keep DIR` keeps it for you to try commands.")
    elif before_undo and code == 0:
        stage.say(
            f"The wrong fact is still in memory. Find out why, and undo it: `backstory --home {folder / 'home'} serve`"
        )
        stage.say(f"opens a page for that; in a terminal, `backstory --user {_USER} revert {seq}` does it.")
    else:
        stage.say(f"The home of this demo stays in {folder}. Run `export BACKSTORY_HOME={folder / 'home'}`, then")
        stage.say(f'for example `backstory --user {_USER} why-not "likes Thai food"`, `log`, or `diff 2 3`.')
    return Summary(code == 0, code, live, None if keep is None else str(folder / "home"), tuple(stage.steps))


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="backstory-demo-") as temporary:
            yield Path(temporary).resolve()
        return
    folder = Path(keep).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty: name a new folder")
    except OSError as error:
        raise StoreError(f"cannot use the folder {folder}: {error.strerror or error}; name another one") from error
    yield folder


@contextlib.contextmanager
def _environment(home: Path, *, live: bool) -> Iterator[None]:
    """Set the home in the environment. Without `live` all other settings in it are removed for the time."""
    before = dict(os.environ)
    if not live:
        for name in before:
            if name.startswith(("BACKSTORY_", "OPENAI_")):
                del os.environ[name]
    else:
        # This overrides a storage_path in the configuration file.
        os.environ["BACKSTORY_STORAGE_PATH"] = str(home)
    os.environ["BACKSTORY_HOME"] = str(home)
    for name in ("BACKSTORY_USER", "BACKSTORY_AGENT"):
        os.environ.pop(name, None)
    # The user's witness must not get heads of the demo.
    os.environ["BACKSTORY_WITNESS"] = ""
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _check_model(home: Path, config: str | None) -> None:
    with Backstory.open(home, config=config, background=False) as bs:
        if bs.memory(_USER).status().model is None:
            raise NoModelError(
                "--live asks a real model, and none is configured: set OPENAI_API_KEY, or leave out --live"
            )


class _Stage:
    """Prints the text of the demo and runs its commands."""

    def __init__(self, run_command: RunCommand, home: Path, config: str | None, *, live: bool) -> None:
        self._run_command = run_command
        self.home = home
        self.config = config
        self.live = live
        self.steps: list[DemoStep] = []
        self._needs_gap = False

    def title(self, text: str) -> None:
        """Print a heading, after an empty line if text is above it."""
        if self._needs_gap:
            page().line()
        page().line((text, "bold magenta"))

    def say(self, text: str) -> None:
        """Print a sentence."""
        page().line((text, "italic"))
        self._needs_gap = True

    def run(self, *words: str, may_exit: int = 0) -> None:
        """Run a command and record its exit code; any other than 0 and `may_exit` ends the demo."""
        arguments = [*(("--config", self.config) if self.config else ()), "--user", _USER, *words]
        command = shlex.join(["backstory", *arguments])
        page().line((f"$ {command}", "bold cyan"))
        try:
            self._run_command(arguments)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        self.steps.append(DemoStep(command, code))
        page().line()
        self._needs_gap = False
        if code not in (0, may_exit):
            raise _StoppedError(code)

    @contextlib.contextmanager
    def memory(self) -> Iterator[MemoryHandle]:
        """Open the memory directly, to choose the fact that the next step is about."""
        with Backstory.open(self.home, background=False) as bs:
            yield bs.memory(_USER)

    def learn(self, thread: str) -> None:
        """Record a conversation and extract facts from it."""
        self.run("record", f"{thread}.jsonl")
        self.run("extract", "--clock", "turns", *(() if self.live else ("--replies", f"{thread}.reply.jsonl")))


def _play_mistake(stage: _Stage) -> tuple[int, Fact]:
    """Play the story until memory is wrong and explained; return the commit to undo and the fact that it removed."""
    stage.title("Backstory: why does my agent believe that, and how do I undo it?")
    if stage.live:
        stage.say("A real model answers. Its facts may differ from those that this demo expects.")
    else:
        stage.say("The model's replies are recorded: no key, no network. `backstory demo --live` asks a real model.")
    page().line((f"$ export BACKSTORY_HOME={shlex.quote(str(stage.home))}", "bold cyan"))
    stage.title("Monday: the agent learns")
    stage.say("Ada tells her agent about herself. Her words are kept, and a model extracts facts from them.")
    stage.learn("monday")
    stage.run("show")
    main_fact = _main_fact(stage)
    stage.title("Friday: an update goes wrong")
    stage.say("Ada has good news about her sister.")
    stage.learn("friday")
    seq, culprit = _wrong_update(stage, main_fact)
    stage.say(f'If Ada now asks "{_ASKED}", the model that answers her is given this:')
    stage.run("context", "--for", _ASKED)
    stage.title("Why does it believe that?")
    stage.say("Every fact has a backstory: the update that added it, the model, and the words it was learned from.")
    stage.run("why", main_fact.id if culprit is None else culprit.id)
    return seq, main_fact


def _play_undo(stage: _Stage, seq: int, main_fact: Fact) -> None:
    """Play the rest: the undo, and the check of the history."""
    stage.title("Undo it")
    stage.say(f"Commit {seq} did it, so only that commit is reverted. Nothing is deleted: the revert is a commit, too.")
    stage.run("revert", str(seq))
    stage.say("The true fact is back, with the same id. Its history shows the removal and the revert.")
    stage.run("why", main_fact.id)
    stage.say("The next answer can use it again:")
    stage.run("context", "--for", _ASKED)
    stage.title("Can I trust the history?")
    stage.say("Each commit contains the hash of the one before, so a change of the past is detected.")
    stage.run("verify")
    with stage.memory() as memory:
        if main_fact.id not in {fact.id for fact in memory.facts()}:
            stage.say("The fact is not back, so this demo failed.")
            raise _StoppedError(1)


def _play_test(stage: _Stage, main_fact: Fact) -> None:
    """Play the end: the mistake becomes a test, which fails until the model does better."""
    stage.title("Keep it from happening again")
    stage.say("The mistake becomes a test beside the agent's code, with the words and the replies that led to it.")
    stage.run("test", "--from-fact", main_fact.id, "--yes", "incident.test.yaml")
    stage.say("It replays them under today's rules, in a memory of its own.")
    stage.run("test", "incident.test.yaml", may_exit=1)
    if not stage.live:
        stage.say(
            "The model still makes this mistake. A better prompt gets better replies; the demo brings some along:"
        )
        stage.run("test", "ada.test.yaml")


def _main_fact(stage: _Stage) -> Fact:
    """Choose the fact that the demo follows: the allergy, if it was learned."""
    with stage.memory() as memory:
        facts = memory.facts()
    if not facts:
        stage.say("The model learned no fact, so the demo ends here. Run it again, or without --live.")
        raise _StoppedError(1)
    weights: Mapping[str, int] = {"peanut": 2, "allerg": 2, "vegetarian": 1}
    return max(
        facts, key=lambda fact: sum(weight for word, weight in weights.items() if word in fact.content.casefold())
    )


def _wrong_update(stage: _Stage, main_fact: Fact) -> tuple[int, Fact | None]:
    """Show how the fact was lost; return the commit that removed it, and the fact that replaced it."""
    with stage.memory() as memory:
        removed = memory.why(main_fact.id).removed
        facts = memory.facts()
    if removed is None:
        stage.say("This time the model made no mistake. So the demo removes the fact by hand:")
        stage.run("fact", "remove", main_fact.id)
        with stage.memory() as memory:
            seq = memory.head().seq
    else:
        seq = removed.seq
    stage.run("show")
    if stage.live:
        stage.say(f'"{main_fact.content}" is gone: an agent that reads this memory no longer knows it.')
    else:
        stage.say("The model mistook the sister's allergy for Ada's. An agent that reads this may serve her peanuts.")
    return seq, next((fact for fact in facts if fact.seq == seq), None)
