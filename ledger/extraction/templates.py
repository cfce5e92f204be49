"""The templates of the prompt (row D8): packaged files, each of which a folder may override.

`system.md` is the system message and `update.md` the question. `hints.md` with one file a signal in `hints`,
`staleness.md` and `consolidation.md` are parts that `update.md` makes room for and that are filled in when there is
something to ask. `summary_system.md` with `summary.md` or `summary_merging.md` asks for a summary of a long thread,
from its turns or from its summaries. Slots are written {{so}}; a folder may leave out any but the conversation.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.extraction.signals import SIGNALS
from backstory.ledger.text.tokens import estimate_tokens

__all__ = ["NAMES", "SUMMARY_NAMES", "Templates", "fill", "load_summary_templates", "load_templates"]

_PACKAGED = Path(__file__).parent / "prompts"
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_SLOTS = frozenset({"memory", "thread", "when", "conversation", "hints", "staleness", "consolidation"})
_SLOTS_OF_PARTS = {
    "hints.md": frozenset({"signals"}),
    "staleness.md": frozenset({"facts", "most"}),
    "consolidation.md": frozenset({"facts", "fewest", "sources", "most"}),
}
_PAGES = ("system.md", "update.md")
_SLOTS_OF_SUMMARIES = {
    "summary.md": frozenset({"thread", "when", "chars", "conversation"}),
    "summary_merging.md": frozenset({"thread", "when", "chars", "summaries"}),
    "summary_system.md": frozenset({"thread", "when", "chars"}),
}
_NEEDED = {"summary.md": "conversation", "summary_merging.md": "summaries"}
_MEANT_AS_SLOT = re.compile(r"\{\{([ \t]*[\w-]+[ \t]*)\}\}")

NAMES = (
    "consolidation.md",
    "hints.md",
    *(f"hints/{signal}.md" for signal in sorted(SIGNALS)),
    "staleness.md",
    "system.md",
    "update.md",
)
"""Every template of an extraction, in the order of the digest."""

SUMMARY_NAMES = tuple(sorted(_SLOTS_OF_SUMMARIES))
"""Every template of a summary, in the order of the digest."""


class Templates(msgspec.Struct, frozen=True):
    """The set in force: texts by file name, and what identifies the set."""

    texts: dict[str, str]
    digest: str

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    @property
    def size(self) -> int:
        """Tokens of all of them together: what is left of a prompt's bound is for memory and conversation."""
        return sum(map(estimate_tokens, self.texts.values()))

    def asks_for(self, slot: str) -> bool:
        """Whether the prompt has a place for something."""
        return any(slot in _SLOT.findall(self.texts[name]) for name in _PAGES)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values into a template's slots; a slot without a value stays as it is."""
    # One pass, so that a turn that says {{memory}} is not filled in itself.
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), template)


def load_templates(folder: Path | None = None) -> Templates:
    """Read the packaged templates, and in their place those that the folder has.

    The digest is that of the set that was in force, also of the parts that one prompt has no use for: the sha256 of
    what `sha256sum` prints for all files, sorted by name. They are read anew for each prompt: whoever edits a template
    of a running worker sees what it does.

    Raises:
        ConfigError: the folder is not there, a template cannot be read, has a slot twice or one that there is not, or
            there is no place for the conversation, or a file of the folder overrides nothing.
    """
    templates = _read(NAMES, folder)
    texts = templates.texts
    for names in (_PAGES, *((name,) for name in NAMES if name not in _PAGES)):
        known = _SLOTS if names == _PAGES else _SLOTS_OF_PARTS.get(names[0], frozenset())
        for name in names:
            _must_know_slots(name, texts[name], known)
        _must_fill_once(names, texts)
    if not any("conversation" in _SLOT.findall(texts[name]) for name in _PAGES):
        # Turns that no model was shown would count as learned from.
        raise ConfigError(
            f"the prompt templates {' and '.join(_PAGES)} in {folder} have no slot {{{{conversation}}}}; give one of "
            "them the slot, or the model is asked about nothing"
        )
    return templates


def load_summary_templates(folder: Path | None = None) -> Templates:
    """Read the templates that ask for summaries; see `load_templates`.

    Raises:
        ConfigError: as `load_templates`; the place that there has to be is that for what is to be summed up.
    """
    templates = _read(SUMMARY_NAMES, folder)
    for name, text in templates.texts.items():
        _must_know_slots(name, text, _SLOTS_OF_SUMMARIES[name])
        _must_fill_once((name,), templates.texts)
        needed = _NEEDED.get(name)
        if needed is not None and needed not in _SLOT.findall(text):
            raise ConfigError(
                f"the prompt template {name} in {folder} has no slot {{{{{needed}}}}}; give it the slot, or the model "
                "is asked to sum up nothing"
            )
    return templates


def _read(names: Sequence[str], folder: Path | None) -> Templates:
    if folder is not None:
        _must_override(folder)
    texts = {}
    digest = hashlib.sha256()
    for name in names:
        path = (folder or _PACKAGED) / name
        try:
            path = path if path.exists() else _PACKAGED / name
            content = path.read_bytes()
            texts[name] = content.decode().replace("\r\n", "\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the prompt template {path} cannot be read: {error}") from error
        digest.update(f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode())
    return Templates(texts, digest.hexdigest())


def _must_know_slots(name: str, text: str, known: frozenset[str]) -> None:
    """Refuse what looks like a slot and would stand in the prompt as it is."""
    for meant in _MEANT_AS_SLOT.findall(text):
        if meant in known:
            continue
        near = get_close_matches(meant.strip(), sorted(known), 1, 0.5)
        there = ", ".join(f"{{{{{slot}}}}}" for slot in sorted(known)) or "none"
        hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"its slots are: {there}"
        raise ConfigError(
            f"the prompt template {name} has the slot {{{{{meant}}}}}, and there is none of that name; {hint}"
        )


def _must_fill_once(names: tuple[str, ...], texts: Mapping[str, str]) -> None:
    """Refuse what would say a thing twice: the bound of a prompt counts it once."""
    counts = Counter(slot for name in names for slot in _SLOT.findall(texts[name]))
    for slot, count in counts.items():
        if count > 1:
            raise ConfigError(
                f"the prompt template {' with '.join(names)} has the slot {{{{{slot}}}}} {count} times; leave one"
            )


def _must_override(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"the folder of prompt templates {folder} is not there; set prompts_dir to one that is")
    for path in sorted([*folder.glob("*.md"), *folder.glob("hints/*.md")]):
        name = path.relative_to(folder).as_posix()
        known = (*NAMES, *SUMMARY_NAMES)
        if name not in known and path.stem.casefold() != "readme":
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}?" if near else f"templates are {', '.join(known)}"
            raise ConfigError(f"{path} overrides no prompt template; {meant}")
