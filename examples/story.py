"""The story that every example tells: an agent learns, uses what it knows, is misled by a bad update, and is put right.

How an agent is given its memory is each example's own business; this is what happens with it, whichever agent it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from backstory import MemoryHandle

USER = "ada"
_QUESTION = "Can you remind me where I live?"

Talk = Callable[[str, str], str]
"""Says something to the agent in a conversation, by the conversation's name; returns the agent's answer."""


def options(about: str | None) -> argparse.Namespace:
    """Read the command line: `live`, `model` and `home`, a folder or None. Wrong use ends with exit code 2."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="ask a real model: OPENAI_API_KEY, OPENAI_BASE_URL")
    parser.add_argument("--model", default="gpt-5-mini", help="which one (default: %(default)s)")
    parser.add_argument("--home", type=Path, metavar="DIR", help="a new folder to keep the memory in (default: none)")
    given = parser.parse_args()
    if given.live and not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        parser.error(
            "--live asks a real model: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own, or leave it out"
        )
    if given.home and given.home.exists() and not (given.home.is_dir() and not any(given.home.iterdir())):
        parser.error(f"{given.home} is there already: name a new folder, so that no memory is mixed up with Ada's")
    return given


@contextlib.contextmanager
def home_in(folder: Path | None) -> Iterator[Path]:
    """Yield the folder, or a temporary one."""
    if folder is not None:
        yield folder
        print(f"\nLook around: backstory --home {folder} --user {USER} log")
        return
    with tempfile.TemporaryDirectory(prefix="backstory-example-") as temporary:
        yield Path(temporary)


def play(memory: MemoryHandle, talk: Talk) -> int:
    """Tell the story on standard output; returns the exit code, 0 where the truth is back in the end."""

    def say(thread: str, words: str) -> None:
        print(f"\n[{thread}]\n  Ada:   {words}\n  Agent: {talk(thread, words)}")
        # An agent at work does not wait: memory is learned from once a conversation has been quiet for a while.
        memory.flush()

    print("1. The agent learns.")
    say("monday", "Hi, I'm Ada. I live in Bergen, and I play the cello.")
    _show(memory)
    truth = next((fact for fact in memory.facts() if "Bergen" in fact.content), None)
    if truth is None:
        print("  The model learned nothing about where Ada lives, so the story ends here.")
        for parked in memory.status().parked:
            print(f"  The update failed ({parked.reason}): {parked.detail}")
        return 1

    print("\n2. Another conversation, and it knows.")
    say("tuesday", _QUESTION)

    print("\n3. A bad update.")
    say("wednesday", "Big news: my sister has moved to Lisbon!")
    bad, fact_id = _harm(memory, truth.id)
    _show(memory)
    say("thursday", _QUESTION)

    print("\n4. Why does it believe that?")
    why = memory.why(fact_id)
    print(f'  "{why.fact.content if why.fact else fact_id}": commit {why.added.seq}, by {why.added.cause.model}, from')
    for words in why.evidence:
        print(f'    {words.thread}, {words.role}: "{words.content}"')

    undone = memory.revert(bad)
    if undone.commit is None:
        print("  A later update stands in the way of undoing it:", "; ".join(note.detail for note in undone.conflicts))
        return 1
    print(f"\n5. Take it back: commit {undone.commit} undoes commit {bad}.")
    _show(memory)

    print("\n6. The next conversation rests on the truth again.")
    say("friday", _QUESTION)
    back = any(fact.id == truth.id and fact.content == truth.content for fact in memory.facts())
    chain = "holds" if memory.verify().ok else "is broken"
    print(f"\nThe truth is {'back' if back else 'lost'}; the hash chain {chain}.")
    return 0 if back else 1


def _harm(memory: MemoryHandle, fact_id: str) -> tuple[int, str]:
    """Find the commit that took the truth away, and the fact that stands in its place."""
    removed = memory.why(fact_id).removed
    if removed is not None:
        return removed.seq, next((fact.id for fact in memory.facts() if fact.seq == removed.seq), fact_id)
    print("  This model kept Ada and her sister apart, so let a slip of the hand do the harm.")
    return memory.edit_fact(fact_id, "User lives in Lisbon").commit, fact_id


def _show(memory: MemoryHandle) -> None:
    print("  Memory:", " · ".join(fact.content for fact in memory.facts()) or "(nothing)")
