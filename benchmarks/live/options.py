"""What `make live` can be told, and what it takes for granted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

__all__ = ["PROMPTS", "Options", "parse"]

PROMPTS: dict[str, Path | None] = {"packaged": None, "short": Path(__file__).parent / "prompts"}
"""The prompts that are tried: ours, and one page for a model too small to follow ours."""


class Options(msgspec.Struct, frozen=True):
    """`live` is the server's environment; `context` and `max_tokens` are tokens, `patience` seconds: fewer
    than the client's own two minutes, so that a call that takes too long is counted once, as what it is.

    `user` None is the first of the file, `threads` 0 all of theirs; `home` None is a temporary one; with an `address`
    no server is started.
    """

    data: Path
    live: Path = Path(".live")
    gguf: Path | None = None
    address: str | None = None
    user: str | None = None
    threads: int = 4
    prompts: tuple[str, ...] = tuple(PROMPTS)
    max_tokens: int = 256
    context: int = 8192
    temperature: float = 0.0
    patience: float = 110.0
    minutes: float = 8.0
    home: Path | None = None
    test: Path | None = None
    """A memory test to run in the end; its replies come from the model."""


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line; wrong use ends the program with what is right."""
    parser = argparse.ArgumentParser(prog="make live", description="The whole path against a real local model server.")
    told = Options(data=Path())
    add = parser.add_argument
    add(
        "--data", type=Path, required=True, help="a conversation: JSONL or a JSON array, as `backstory record` takes it"
    )
    add("--user", help="whose lines of it; else the first user's")
    add("--threads", type=_whole, default=told.threads, help="learn from so many threads, 0: all (%(default)s)")
    add("--prompts", choices=[*PROMPTS, "both"], default="both", help="whose words the model is asked in (%(default)s)")
    add("--max-tokens", type=_whole, default=told.max_tokens, help="an answer's bound (%(default)s)")
    add("--context", type=_whole, default=told.context, help="the server's context, in tokens (%(default)s)")
    add("--temperature", type=float, default=told.temperature, help="chance in an answer (%(default)s)")
    add("--patience", type=float, default=told.patience, help="seconds to wait for a silent server (%(default)s)")
    add("--minutes", type=float, default=told.minutes, help="ask nothing new after so many, in all (%(default)s)")
    add("--live", type=Path, default=told.live, help="the environment the server is installed in (%(default)s)")
    add("--gguf", type=Path, help="another model's file")
    add("--address", help="a server that runs already, as http://127.0.0.1:8080/v1; none is started then")
    add("--home", type=Path, help="keep the memory here, to look at; else it is gone afterwards")
    add("--test", type=Path, help="a memory test to run in the end; its replies come from the model")
    given = vars(parser.parse_args(arguments))
    given["prompts"] = tuple(PROMPTS) if given["prompts"] == "both" else (given["prompts"],)
    return Options(**given)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)
