"""The story told by `backstory demo`: an agent learns, goes wrong, explains itself and is put right.

Every step is a command that a reader could type, run through the same door; nothing shown is made up.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from backstory.cli.pages.page import page
from backstory.home import Backstory
from backstory.ledger.core.errors import NoModelError, StoreError, UsageError
from backstory.ledger.core.events import Fact
from backstory.memory import MemoryHandle

__all__ = ["Step", "Summary", "play"]

_USER = "ada"
_DATA = Path(__file__).parent / "demo_data"
_ASKED = "Do peanuts go into the dinner on Sunday?"


class Step(msgspec.Struct, frozen=True):
    """A command that was run, and its exit code."""

    command: str
    exit: int


class Summary(msgspec.Struct, frozen=True):
    """How the story went; `home` is None where it was temporary."""

    ok: bool
    exit: int
    live: bool
    home: str | None
    steps: tuple[Step, ...]


class _StoppedError(Exception):
    """A step ended otherwise than the story needs; it has said why itself."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def play(*, config: str | None = None, live: bool = False, keep: str | None = None) -> Summary:
    """Play the story on standard output, in a temporary home or, with `keep`, in a folder that stays.

    Raises:
        NoModelError: `live`, and no model is configured.
        UsageError: the folder to keep is not empty.
    """
    chosen = str(Path(config).absolute()) if config and live else None
    with _folder(keep) as folder, _surroundings(folder / "home", live=live):
        if live:
            _must_have_a_model(folder / "home", chosen)
        for file in _DATA.glob("*.jsonl"):
            shutil.copy(file, folder)
        stage = _Stage(folder / "home", chosen, live=live)
        with contextlib.chdir(folder):
            try:
                _story(stage)
                code = 0
            except _StoppedError as stopped:
                code = stopped.code or 1
    if keep is None:
        stage.say("This story's home was temporary and is gone; `backstory demo --keep DIR` leaves one to play in.")
    else:
        stage.say(
            f"This story's home stays in {folder}: `export BACKSTORY_HOME={folder / 'home'}` and ask it yourself,"
        )
        stage.say(f'for instance `backstory --user {_USER} why-not "likes Thai food"`, `log`, or `diff 2 3`.')
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
            raise UsageError(f"{folder} is not empty: name a new folder to play in")
    except OSError as error:
        raise StoreError(f"cannot play in {folder}: {error.strerror or error}; name another folder") from error
    yield folder


@contextlib.contextmanager
def _surroundings(home: Path, *, live: bool) -> Iterator[None]:
    """Put the home in the environment; a recorded story is not to depend on anything else that stands there."""
    before = dict(os.environ)
    if not live:
        for name in before:
            if name.startswith(("BACKSTORY_", "OPENAI_")):
                del os.environ[name]
    else:
        # It beats a storage_path that a configuration file may state.
        os.environ["BACKSTORY_STORAGE_PATH"] = str(home)
    os.environ["BACKSTORY_HOME"] = str(home)
    # The heads of a story's Ada are not those of the user's own.
    os.environ["BACKSTORY_WITNESS"] = ""
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _must_have_a_model(home: Path, config: str | None) -> None:
    with Backstory.open(home, config=config, background=False) as bs:
        if bs.memory(_USER).status().model is None:
            raise NoModelError(
                "--live asks a real model and none is configured: set OPENAI_API_KEY, or leave out --live"
            )


class _Stage:
    """Where the story is told and its commands are run."""

    def __init__(self, home: Path, config: str | None, *, live: bool) -> None:
        self.home = home
        self.config = config
        self.live = live
        self.steps: list[Step] = []
        self._spoken = False

    def title(self, text: str) -> None:
        """Write a heading, apart from what stands above it."""
        if self._spoken:
            page().line()
        page().line((text, "bold magenta"))

    def say(self, text: str) -> None:
        """Tell a sentence."""
        page().line((text, "italic"))
        self._spoken = True

    def run(self, *words: str) -> None:
        """Run a command as if it had been typed."""
        from backstory.cli.app import app

        given = [*(("--config", self.config) if self.config else ()), "--user", _USER, *words]
        command = shlex.join(["backstory", *given])
        page().line((f"$ {command}", "bold cyan"))
        try:
            app(given)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        self.steps.append(Step(command, code))
        page().line()
        self._spoken = False
        if code:
            raise _StoppedError(code)

    @contextlib.contextmanager
    def memory(self) -> Iterator[MemoryHandle]:
        """Look into the memory behind the scenes, to know which fact the story goes on with."""
        with Backstory.open(self.home, background=False) as bs:
            yield bs.memory(_USER)

    def learn(self, thread: str) -> None:
        """Take a conversation in, and learn from it."""
        self.run("record", f"{thread}.jsonl")
        self.run("extract", "--clock", "turns", *(() if self.live else ("--replies", f"{thread}.reply.jsonl")))


def _story(stage: _Stage) -> None:
    stage.title("Backstory: why does my agent believe that, and how do I take it back?")
    if stage.live:
        stage.say("A real model is asked; it may see things otherwise than this story expects.")
    else:
        stage.say(
            "The model's answers are recorded ones: no key, no network. `backstory demo --live` asks a real model."
        )
    page().line((f"$ export BACKSTORY_HOME={shlex.quote(str(stage.home))}", "bold cyan"))
    stage.title("Monday: the agent learns")
    stage.say("Ada tells her agent about herself. What was said is kept; what a model makes of it becomes facts.")
    stage.learn("monday")
    stage.run("show")
    hero = _hero(stage)
    stage.title("Friday: an update goes wrong")
    stage.say("Ada has good news, about her sister.")
    stage.learn("friday")
    seq, culprit = _harm(stage, hero)
    stage.say(f'If Ada now asks "{_ASKED}", this is put before the model that answers her:')
    stage.run("context", "--for", _ASKED)
    stage.title("Why does it believe that?")
    stage.say("Every fact has a backstory: which update brought it, which model, and the words that were said.")
    stage.run("why", hero.id if culprit is None else culprit.id)
    stage.title("Take it back")
    stage.say(f"Commit {seq} is to blame, so it alone is undone. Nothing is deleted: the undo is a commit, too.")
    stage.run("revert", str(seq))
    stage.say("The true fact lives again, the same one as before; its history now tells the whole story.")
    stage.run("why", hero.id)
    stage.say("And the next answer rests on it again:")
    stage.run("context", "--for", _ASKED)
    stage.title("Can I believe the history itself?")
    stage.say("Each commit is chained to the one before by its hash, so nobody changes the past unseen.")
    stage.run("verify")
    with stage.memory() as memory:
        if hero.id not in {fact.id for fact in memory.facts()}:
            stage.say("The fact is not back: that is not how this story should end.")
            raise _StoppedError(1)


def _hero(stage: _Stage) -> Fact:
    """Choose the fact that the story is about: the allergy, if it was learned."""
    with stage.memory() as memory:
        facts = memory.facts()
    if not facts:
        stage.say("The model learned no fact at all, so the story ends here; play it again, or without --live.")
        raise _StoppedError(1)
    marks: Mapping[str, int] = {"peanut": 2, "allerg": 2, "vegetarian": 1}
    return max(facts, key=lambda fact: sum(worth for mark, worth in marks.items() if mark in fact.content.casefold()))


def _harm(stage: _Stage, hero: Fact) -> tuple[int, Fact | None]:
    """Show what became of the fact; returns the commit to blame, and what it put in the fact's place."""
    with stage.memory() as memory:
        removed = memory.why(hero.id).removed
        facts = memory.facts()
    if removed is None:
        stage.say("This time the model kept Ada and her sister apart. So let a slip of the hand do the harm:")
        stage.run("fact", "remove", hero.id)
        with stage.memory() as memory:
            seq = memory.head().seq
    else:
        seq = removed.seq
    stage.run("show")
    if stage.live:
        stage.say(f'"{hero.content}" is gone: an agent that reads this memory does not know it any more.')
    else:
        stage.say("The model took the sister's allergy for Ada's. An agent that reads this may well serve her peanuts.")
    return seq, next((fact for fact in facts if fact.seq == seq), None)
