"""Prompt templates: packaged files, each of which a configured folder may override.

`system.md` is the system message and `update.md` the question. `hints.md` (with one file per signal in `hints`),
`staleness.md` and `consolidation.md` are optional parts of `update.md`, filled in when there is something to ask.
DeerFlow's own files override them, too; see `deerflow_files`.
`summary_system.md` with `summary.md` or `summary_merging.md` asks for a summary of a long thread, from its turns or
from its summaries. A slot is written `{{name}}`. An overriding file may leave out any slot but the conversation.
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
from backstory.ledger.extraction.deerflow_files import check_names, read_template, template_file
from backstory.ledger.extraction.signals import SIGNALS
from backstory.ledger.text.tokens import estimate_tokens

_PACKAGED = Path(__file__).parent / "prompts"
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_PAGES = ("system.md", "update.md")
_SLOTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        _PAGES, frozenset({"memory", "thread", "when", "conversation", "hints", "staleness", "consolidation"})
    ),
    "hints.md": frozenset({"signals"}),
    "staleness.md": frozenset({"facts", "most"}),
    "consolidation.md": frozenset({"facts", "fewest", "sources", "most"}),
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

SUMMARY_NAMES = ("summary.md", "summary_merging.md", "summary_system.md")
"""Every template of a summary, in the order of the digest."""


class Templates(msgspec.Struct, frozen=True):
    """A set of templates: the texts by file name, and the digest of the set."""

    texts: dict[str, str]
    digest: str

    def __getitem__(self, name: str) -> str:
        return self.texts[name]

    @property
    def size(self) -> int:
        """The tokens of all templates together."""
        return sum(map(estimate_tokens, self.texts.values()))

    def asks_for(self, slot: str) -> bool:
        """Whether `system.md` or `update.md` has a slot."""
        return any(slot in _SLOT.findall(self.texts[name]) for name in _PAGES)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values into a template's slots; a slot without a value stays as it is."""
    # One pass, so that a slot in a turn's text is not filled in.
    return _SLOT.sub(lambda slot: values.get(slot[1], slot[0]), template)


def load_templates(folder: Path | None = None, agent: str | None = None) -> Templates:
    """Read the templates of an extraction; a file of the folder replaces the packaged one of the same name.

    DeerFlow's files may replace them for one agent.

    The digest is the sha256 of what `sha256sum` prints for all files of the set, sorted by name, including parts that
    a prompt does not use. The files are read for each prompt, so an edit takes effect in a running worker.

    Raises:
        ConfigError: The folder is missing, a file in it overrides nothing, or a template cannot be read, repeats a
            slot, has an unknown slot or lacks the slot of the conversation.
    """
    templates = _read(NAMES, folder, agent)
    if not templates.asks_for("conversation"):
        # The turns would count as learned from, although the model never saw them.
        raise ConfigError(
            f"the prompt templates {' and '.join(_PAGES)} in {folder} have no slot {{{{conversation}}}}; give one of "
            "them the slot, or the model has nothing to learn from"
        )
    return templates


def load_summary_templates(folder: Path | None = None) -> Templates:
    """Read the templates that ask for summaries; see `load_templates`.

    Raises:
        ConfigError: As `load_templates`; the required slot is that of the text to summarise.
    """
    templates = _read(SUMMARY_NAMES, folder)
    for name, needed in _NEEDED.items():
        if needed not in _SLOT.findall(templates[name]):
            raise ConfigError(
                f"the prompt template {name} in {folder} has no slot {{{{{needed}}}}}; give it the slot, or the model "
                "has nothing to summarise"
            )
    return templates


def _read(names: Sequence[str], folder: Path | None, agent: str | None = None) -> Templates:
    if folder is not None:
        _must_override(folder)
    texts = {}
    digest = hashlib.sha256()
    for name in names:
        path = (folder or _PACKAGED) / name
        theirs = None if folder is None else template_file(folder, name, agent)
        try:
            path = theirs or (path if path.exists() else _PACKAGED / name)
            content = path.read_bytes()
            texts[name] = content.decode().replace("\r\n", "\n") if theirs is None else read_template(theirs, name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the prompt template {path} cannot be read: {error}") from error
        digest.update(f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode())
    pages = tuple(name for name in names if name in _PAGES)
    for together in (pages, *((name,) for name in names if name not in pages)):
        for name in together:
            _must_know_slots(name, texts[name])
        _must_fill_once(together, texts)
    return Templates(texts, digest.hexdigest())


def _must_know_slots(name: str, text: str) -> None:
    """Refuse unknown slots: they would appear in the prompt unfilled."""
    known = _SLOTS.get(name, frozenset())
    for meant in _MEANT_AS_SLOT.findall(text):
        if meant in known:
            continue
        near = get_close_matches(meant.strip(), sorted(known), 1, 0.5)
        slots = ", ".join(f"{{{{{slot}}}}}" for slot in sorted(known)) or "none"
        hint = f"did you mean {{{{{near[0]}}}}}?" if near else f"its slots are: {slots}"
        raise ConfigError(f"the prompt template {name} has the unknown slot {{{{{meant}}}}}; {hint}")


def _must_fill_once(names: tuple[str, ...], texts: Mapping[str, str]) -> None:
    """Refuse repeated slots: the size of a prompt counts each value once."""
    counts = Counter(slot for name in names for slot in _SLOT.findall(texts[name]))
    for slot, count in counts.items():
        if count > 1:
            raise ConfigError(
                f"the prompt template {' with '.join(names)} has the slot {{{{{slot}}}}} {count} times; leave one"
            )


def _must_override(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(
            f"the folder of prompt templates {folder} does not exist; set prompts_dir to an existing folder"
        )
    check_names(folder)
    for path in sorted([*folder.glob("*.md"), *folder.glob("hints/*.md")]):
        name = path.relative_to(folder).as_posix()
        known = (*NAMES, *SUMMARY_NAMES)
        if name not in known and path.stem.casefold() != "readme":
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the templates are: {', '.join(known)}"
            raise ConfigError(f"{path} overrides no prompt template; {hint}")
