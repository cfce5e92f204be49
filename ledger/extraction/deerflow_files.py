"""DeerFlow's own prompt templates and signal patterns: its YAML files, which an operator may bring along.

`memory_update.chat.yaml` stands for `system.md` and `update.md`, `staleness_review.yaml` for `staleness.md` and
`consolidation.yaml` for `consolidation.md`. Their placeholders `{name}` become our slots and nothing else: no
attribute, index, conversion or format is evaluated. A folder named after an agent overrides them for that agent; the
agent without a name is `__default__`. `fact_extraction.yaml` is read by nothing in DeerFlow, and so here.

A file of patterns is a list of regular expressions, or of mappings of `pattern` and `flags`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Annotated, TypeVar

import msgspec

from backstory.ledger.core.errors import ConfigError

TEMPLATES: Mapping[str, str] = {
    "consolidation.md": "consolidation.yaml",
    "staleness.md": "staleness_review.yaml",
    "system.md": "memory_update.chat.yaml",
    "update.md": "memory_update.chat.yaml",
}
"""DeerFlow's file for each of our templates that it has."""

TRIVIAL = "trivial"
"""The name of the patterns of messages that nothing is learned from."""

_LEAD = "__default__"
_UNUSED = "fact_extraction.yaml"
_SLOTS: Mapping[str, Mapping[str, str]] = {
    "consolidation.yaml": {"consolidation_groups": "facts", "max_groups": "most"},
    "staleness_review.yaml": {"stale_facts": "facts"},
    "memory_update.chat.yaml": {
        "current_memory": "memory",
        "conversation": "conversation",
        "correction_hint": "hints",
        "staleness_review_section": "staleness",
        "consolidation_section": "consolidation",
    },
}
"""Our slot for each placeholder of each file."""
_SLOT = re.compile(r"\{\{(\w+)\}\}")


class _Text(msgspec.Struct):
    """A template of one text."""

    template: Annotated[str, msgspec.Meta(min_length=1)]
    format: str = "text"


class _Message(msgspec.Struct):
    """A message of a template of several."""

    content: str
    role: str = "user"


class _Chat(msgspec.Struct):
    """A template of several messages."""

    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    format: str = "chat"


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A pattern with its flags."""

    pattern: str
    flags: list[str] | None = None


_Shape = TypeVar("_Shape", _Text, _Chat)


def template_file(folder: Path, name: str, agent: str | None) -> Path | None:
    """Return DeerFlow's file that overrides a template of ours; None if there is none.

    Raises:
        ConfigError: There is also our own file, so that either may be meant.
    """
    theirs = TEMPLATES.get(name)
    if theirs is None:
        return None
    own = folder / (agent or _LEAD) / theirs
    if own.is_file():
        return own
    file = folder / theirs
    if not file.is_file():
        return None
    if (folder / name).is_file():
        raise ConfigError(f"{file} and {folder / name} override the same prompt template: keep one of them")
    return file


def agents_with_templates(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders that override templates for an agent."""
    return tuple(sorted({path.parent.name for path in folder.glob("*/*.y*ml")}))


def check_names(folder: Path) -> None:
    """Refuse YAML files that override nothing.

    Raises:
        ConfigError: There is one.
    """
    known = {*TEMPLATES.values(), _UNUSED}
    for path in sorted([*folder.glob("*.y*ml"), *folder.glob("*/*.y*ml")]):
        if path.name not in known:
            raise ConfigError(
                f"{path} overrides no prompt template; of DeerFlow's files these can be used: "
                f"{', '.join(sorted(known - {_UNUSED}))}"
            )


def read_template(path: Path, name: str) -> str:
    """Return the text of one of our templates, as DeerFlow's file states it.

    Raises:
        ConfigError: The file cannot be used.
    """
    if path.name != TEMPLATES["system.md"]:
        text = _with_our_slots(_converted(path, _Text, "text").template, path)
        _must_stand_once([text], path)
        return text
    chat = _converted(path, _Chat, "chat")
    for message in chat.messages:
        if message.role not in ("system", "user"):
            raise ConfigError(f"{path} has a message of the role {message.role!r}; the roles are system and user")
    parts = [_with_our_slots(message.content, path) for message in chat.messages]
    _must_stand_once(parts, path)
    if "{{conversation}}" not in "".join(parts):
        raise ConfigError(f"{path} has no placeholder {{conversation}}, so the model would have nothing to learn from")
    roles = [message.role for message in chat.messages]
    wanted = "system" if name == "system.md" else "user"
    return "\n\n".join(part for role, part in zip(roles, parts, strict=True) if role == wanted)


def _must_stand_once(texts: Sequence[str], path: Path) -> None:
    """Refuse repeated placeholders: the size of a prompt counts each value once."""
    ours = {slot: placeholder for placeholder, slot in _SLOTS[path.name].items()}
    for slot, count in Counter(slot for text in texts for slot in _SLOT.findall(text)).items():
        if count > 1:
            raise ConfigError(f"{path} has the placeholder {{{ours[slot]}}} {count} times; leave one")


def _converted(path: Path, shape: type[_Shape], format_: str) -> _Shape:
    try:
        read = msgspec.convert(_parsed(path), shape)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no prompt template of DeerFlow: {error}") from error
    if read.format != format_:
        raise ConfigError(f"{path} has the format {read.format!r}; this file has the format {format_!r}")
    return read


def _parsed(path: Path) -> object:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error


def _with_our_slots(text: str, path: Path) -> str:
    known = _SLOTS[path.name]
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(f"{path} has a brace that is neither a placeholder nor doubled: {error}") from error
    result, slots = "", []
    for literal, placeholder, format_, conversion in pieces:
        result += literal
        if placeholder is None:
            continue
        if placeholder not in known or format_ or conversion:
            stated = placeholder + (f"!{conversion}" if conversion else "") + (f":{format_}" if format_ else "")
            names = ", ".join(f"{{{name}}}" for name in known)
            raise ConfigError(
                f"{path} has the placeholder {{{stated}}}; its placeholders are {names}, and a literal brace is doubled"
            )
        slots.append(known[placeholder])
        result += f"{{{{{slots[-1]}}}}}"
    if _SLOT.findall(result) != slots:
        raise ConfigError(f"{path} has a word in two pairs of literal braces, which is a slot here: leave out one pair")
    return result


def read_patterns(path: Path) -> Iterator[re.Pattern[str]]:
    """Yield the patterns of a file.

    Raises:
        ConfigError: The file cannot be used.
    """
    try:
        entries = msgspec.convert(_parsed(path) or [], list[str | _Entry])
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path} must be a list of regular expressions, or of mappings of `pattern` and `flags`: {error}"
        ) from error
    for number, entry in enumerate(entries, 1):
        where = f"{path}: entry {number}"
        stated = entry if isinstance(entry, str) else entry.pattern
        flags = () if isinstance(entry, str) else entry.flags or ()
        unknown = sorted(set(flags) - {"ignorecase"})
        if unknown:
            raise ConfigError(f"{where} has the flag {unknown[0]!r}; the only flag is ignorecase")
        yield compiled(stated, re.IGNORECASE if flags else re.NOFLAG, f"{where}, {stated[:80]!r},")


def compiled(pattern: str, flags: re.RegexFlag, where: str) -> re.Pattern[str]:
    """Compile a pattern of a file.

    Raises:
        ConfigError: It is no regular expression, or matches every message; the text begins with `where`.
    """
    try:
        found = re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where} is not a regular expression: {error}") from error
    if found.fullmatch(""):
        raise ConfigError(f"{where} matches every message; make it match at least one character")
    return found
