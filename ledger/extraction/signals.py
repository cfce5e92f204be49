"""What the user's latest words are about (row D4): hints for the model, and who goes first in the queue.

The patterns are data: one TOML file a signal beside this module, which a folder of one's own may override. A file holds
lists of regular expressions under any names (`english`, `chinese`); a sentence that one under `unless` fits shows
nothing. What a pattern is matched against, and how it has to be written, says `patterns/correction.toml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import Turn
from backstory.ledger.extraction.statements import simplified, statements
from backstory.ledger.text.acknowledgements import is_acknowledgement

__all__ = ["SIGNALS", "Signals", "load_signals"]

SIGNALS = ("correction", "reinforcement", "preference", "identity", "goal", "decision")
"""In the order in which they are told."""

_PACKAGED = Path(__file__).parent / "patterns"
_WINDOW = 6
_EXCEPTIONS = "unless"

_Patterns = tuple[re.Pattern[str], ...]
_Stamp = tuple[str, int, int]


class _Rule(NamedTuple):
    """What shows a signal, and what keeps a sentence from showing it."""

    shows: _Patterns
    unless: _Patterns


class Signals:
    """The patterns of every signal; immutable, so safe for threads."""

    def __init__(self, rules: Mapping[str, _Rule]) -> None:
        self._rules = rules

    def seen_in(self, turns: Sequence[Turn]) -> tuple[str, ...]:
        """Tell which signals the user's words show, among the last six messages, in the order of `SIGNALS`.

        A bare acknowledgement shows none, nor does what a question, a quote or somebody else says.
        """
        said = islice((turn for turn in reversed(turns) if turn.role in ("user", "assistant")), _WINDOW)
        stated = [statements(turn.content) for turn in said if turn.role == "user" and _says_more(turn)]
        return tuple(name for name in SIGNALS if any(_shows(self._rules[name], text) for text in stated))


def _says_more(turn: Turn) -> bool:
    return not is_acknowledgement(turn.content)


def _shows(rule: _Rule, stated: str) -> bool:
    if not any(pattern.search(stated) for pattern in rule.shows):
        return False
    if not any(pattern.search(stated) for pattern in rule.unless):
        return True
    # Both are there, so it matters whether they are in one sentence.
    left = "\n".join(line for line in stated.split("\n") if not any(pattern.search(line) for pattern in rule.unless))
    return any(pattern.search(left) for pattern in rule.shows)


def load_signals(folder: Path | None = None) -> Signals:
    """Return the packaged patterns, with the files of a folder in the place of those of the same name.

    They are read once, and again when a file of the folder was changed.

    Raises:
        ConfigError: the folder is not there, one of its TOML files is no signal's or cannot be read, or an entry is no
            pattern; the text names file and entry.
    """
    return _load(folder, () if folder is None else _stamps(folder))


def _stamps(folder: Path) -> tuple[_Stamp, ...]:
    """Tell the state of a folder's TOML files: name, time of change, size."""
    try:
        with os.scandir(folder) as entries:
            files = [(e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in entries if e.name.endswith(".toml")]
    except OSError as error:
        raise ConfigError(
            f"the folder of signal patterns {folder} cannot be read: {error.strerror}; set patterns_dir to one that can"
        ) from error
    known = {f"{name}.toml" for name in SIGNALS}
    for name, _, _ in files:
        if name not in known:
            raise ConfigError(
                f"{folder / name} overrides no signal patterns; the files that can be overridden are "
                f"{', '.join(sorted(known))}: rename it or move it away"
            )
    return tuple(sorted(files))


@lru_cache(maxsize=8)
def _load(folder: Path | None, stamps: tuple[_Stamp, ...]) -> Signals:
    own = {name for name, _, _ in stamps}
    files = {name: f"{name}.toml" for name in SIGNALS}
    return Signals(
        {
            name: _rule((folder if folder is not None and file in own else _PACKAGED) / file)
            for name, file in files.items()
        }
    )


def _rule(path: Path) -> _Rule:
    import tomllib

    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the file of signal patterns {path} cannot be read: {error}") from error
    shows: list[re.Pattern[str]] = []
    unless: list[re.Pattern[str]] = []
    for group, entries in groups.items():
        if not isinstance(entries, list):
            raise ConfigError(f"{path}: {group} is {type(entries).__name__}; it is a list of regular expressions")
        found = unless if group == _EXCEPTIONS else shows
        found += [_pattern(entry, f"{path}: entry {n} of {group}") for n, entry in enumerate(entries, 1)]
    return _Rule(tuple(shows), tuple(unless))


def _pattern(entry: object, where: str) -> re.Pattern[str]:
    if not isinstance(entry, str):
        raise ConfigError(f"{where} is {type(entry).__name__}; it is a regular expression in quotes")
    # What it is matched against is casefolded, so a capital letter could never be found there.
    case = re.NOFLAG if entry == entry.lower() else re.IGNORECASE
    try:
        pattern = re.compile(simplified(entry), re.MULTILINE | case)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}, {entry[:80]!r}, is no regular expression: {error}") from error
    if pattern.search(""):
        raise ConfigError(f"{where}, {entry[:80]!r}, fits every message: let it ask for at least one character")
    return pattern
