"""Signal detector: finds corrections, preferences, goals and the like in the user's latest messages.

Signals become hints for the model and set the order of the queue. The patterns are data: one TOML file per signal in
`patterns`, which a configured folder may override. A file holds lists of regular expressions under any names
(`english`, `chinese`). A sentence that matches a pattern under `unless` shows no signal. `patterns/correction.toml`
describes the text that patterns are matched against, and how to write one.

The folder may hold DeerFlow's own YAML files instead, whose patterns are matched against a message as it is. Its
`trivial.yaml` names messages that nothing is learned from, nor from the answers to them.
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
from backstory.ledger.extraction.deerflow_files import TRIVIAL, read_patterns
from backstory.ledger.extraction.statements import simplified, statements
from backstory.ledger.text.acknowledgements import is_acknowledgement

SIGNALS = ("correction", "reinforcement", "preference", "identity", "goal", "decision")
"""Every signal, in the order in which they are reported."""

_PACKAGED = Path(__file__).parent / "patterns"
_ENDINGS = (".toml", ".yaml", ".yml")
_WINDOW = 6
_EXCEPTIONS = "unless"
_TRAIL = " \t\n\r.。,，!！?？;；"
"""What may stand behind a trivial message."""

_Patterns = tuple[re.Pattern[str], ...]
_Stamp = tuple[str, int, int]


class _Rule(NamedTuple):
    """The patterns that show a signal, and those that exclude a sentence from it.

    `literal` ones are matched against a message as it is.
    """

    shows: _Patterns
    unless: _Patterns = ()
    literal: bool = False


class Signals:
    """The patterns of every signal, and of trivial messages; immutable, so safe for threads."""

    def __init__(self, rules: Mapping[str, _Rule], trivial: _Patterns = ()) -> None:
        self._rules = rules
        self._trivial = trivial

    def seen_in(self, turns: Sequence[Turn]) -> tuple[str, ...]:
        """Return the signals in the user's turns among the last six messages, in the order of `SIGNALS`.

        An acknowledgement shows no signal. Questions, quotes and the words of others are ignored.
        """
        latest = islice((turn for turn in reversed(turns) if turn.role in ("user", "assistant")), _WINDOW)
        said = [turn.content for turn in latest if turn.role == "user" and not is_acknowledgement(turn.content)]
        stated = [statements(text) for text in said]
        return tuple(name for name in SIGNALS if self._is_shown(self._rules[name], said, stated))

    def _is_shown(self, rule: _Rule, said: Sequence[str], stated: Sequence[str]) -> bool:
        if rule.literal:
            return any(pattern.search(text.strip()) for text in said for pattern in rule.shows)
        return any(_shows(rule, text) for text in stated)

    def telling(self, turns: Sequence[Turn]) -> Sequence[Turn]:
        """Return the turns without trivial messages of the user and the answers to them."""
        if not self._trivial:
            return turns
        left, answers_trivial = [], False
        for turn in turns:
            if turn.role == "user":
                text = turn.content.strip().rstrip(_TRAIL)
                answers_trivial = bool(text) and any(pattern.fullmatch(text) for pattern in self._trivial)
            if not answers_trivial:
                left.append(turn)
        return left


def _shows(rule: _Rule, stated: str) -> bool:
    if not any(pattern.search(stated) for pattern in rule.shows):
        return False
    if not any(pattern.search(stated) for pattern in rule.unless):
        return True
    # An exception applies only to its own sentence.
    left = "\n".join(line for line in stated.split("\n") if not any(pattern.search(line) for pattern in rule.unless))
    return any(pattern.search(left) for pattern in rule.shows)


def load_signals(folder: Path | None = None) -> Signals:
    """Return the packaged patterns; a file of the folder replaces the packaged one of the same name.

    The patterns are cached, and read again when a file of the folder changes.

    Raises:
        ConfigError: the folder is missing, one of its files cannot be read or is not named after a signal, or an
            entry is not a valid pattern; the message names the file and the entry.
    """
    return _load(folder, () if folder is None else _stamps(folder))


def _stamps(folder: Path) -> tuple[_Stamp, ...]:
    """Return name, modification time and size of each file of patterns in a folder."""
    try:
        with os.scandir(folder) as entries:
            files = [(e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in entries if e.name.endswith(_ENDINGS)]
    except OSError as error:
        raise ConfigError(
            f"the folder of signal patterns {folder} cannot be read: {error.strerror}; set patterns_dir to one that can"
        ) from error
    known = {*(f"{name}.toml" for name in SIGNALS), *(f"{name}.yaml" for name in (*SIGNALS, TRIVIAL))}
    names = {name for name, _, _ in files}
    for name in names:
        if name.endswith(".toml") and (twin := f"{name.removesuffix('.toml')}.yaml") in names:
            raise ConfigError(
                f"{folder / name} and {folder / twin} override the same signal patterns: keep one of them"
            )
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

    def rule(name: str) -> _Rule:
        if folder is not None and f"{name}.yaml" in own:
            return _Rule(tuple(read_patterns(folder / f"{name}.yaml")), literal=True)
        file = f"{name}.toml"
        return _rule((folder if folder is not None and file in own else _PACKAGED) / file)

    trivial = tuple(read_patterns(folder / f"{TRIVIAL}.yaml")) if folder and f"{TRIVIAL}.yaml" in own else ()
    return Signals({name: rule(name) for name in SIGNALS}, trivial)


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
            raise ConfigError(f"{path}: {group} must be a list of regular expressions, got {type(entries).__name__}")
        found = unless if group == _EXCEPTIONS else shows
        found += [_pattern(entry, f"{path}: entry {n} of {group}") for n, entry in enumerate(entries, 1)]
    return _Rule(tuple(shows), tuple(unless))


def _pattern(entry: object, where: str) -> re.Pattern[str]:
    if not isinstance(entry, str):
        raise ConfigError(f"{where} must be a regular expression in quotes, got {type(entry).__name__}")
    # The text is casefolded, so a capital letter would never match it.
    case = re.NOFLAG if entry == entry.lower() else re.IGNORECASE
    try:
        pattern = re.compile(simplified(entry), re.MULTILINE | case)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}, {entry[:80]!r}, is not a regular expression: {error}") from error
    if pattern.search(""):
        raise ConfigError(f"{where}, {entry[:80]!r}, matches every message; make it match at least one character")
    return pattern
