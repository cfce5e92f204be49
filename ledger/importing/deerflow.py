"""Reader of a DeerFlow home: the user's summaries and the facts of one agent.

`deerflow_paths` finds the files of a scope; this module reads and combines them. DeerFlow 2 keeps each fact in a file:
Markdown with YAML front matter, a title, and the text of the fact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import Candidate, Unread
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing.deerflow_paths import (
    MEMORY,
    MemoryPlace,
    check_journal,
    find,
    holds_nothing,
    is_agents_own,
    users_folders,
)
from backstory.ledger.importing.document import fact_candidate, is_document, section_candidates, unread
from backstory.ledger.importing.json_file import read_json_file

if TYPE_CHECKING:
    import yaml


_LONGEST = 1 << 20
_LONGEST_FRONT = 1 << 16
_PARTS = re.compile(r"---\n(?P<front>.*?\n)??---(?:\n(?P<body>.*))?", re.DOTALL)


class FactFile(msgspec.Struct, frozen=True):
    """The fields of a fact file, with its text as `content`; the whole file; and the problem if it is not a fact."""

    stated: dict[str, object]
    text: str
    problem: str = ""


def read_fact_file(path: Path) -> FactFile:
    """Read a fact file; if it is not valid, `problem` says why."""
    text = ""
    try:
        data = _bytes_of(path)
        text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
        data.decode()
        return FactFile(_stated(text), text)
    except UnicodeDecodeError as error:
        return FactFile({}, text, f"it is no UTF-8 (byte {error.start})")
    except InputError as error:
        return FactFile({}, text, str(error))


def _bytes_of(path: Path) -> bytes:
    try:
        # To open a pipe would block.
        if not path.is_file():
            raise InputError("it is no file")
        size = path.stat().st_size
        if size > _LONGEST:
            raise InputError(f"it has {size:,} bytes; at most {_LONGEST:,} are read")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror or error}") from error


def _stated(text: str) -> dict[str, object]:
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise InputError("it does not begin with YAML front matter between two lines of ---")
    stated = {str(key): value for key, value in _front(parts["front"] or "").items()}
    lines = (parts["body"] or "").lstrip("\n").split("\n")
    if lines[0].startswith("# "):
        # The title repeats the beginning of the fact.
        del lines[0]
    stated["content"] = "\n".join(lines)
    return stated


def _front(front: str) -> dict[object, object]:
    import yaml

    if len(front) > _LONGEST_FRONT:
        raise InputError(f"its front matter has {len(front):,} characters; at most {_LONGEST_FRONT:,} are read")
    try:
        stated = yaml.load(front, Loader=_loader())  # noqa: S506 a safe loader without aliases
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 2}" if error.problem_mark is not None else ""
        raise InputError(f"its front matter is no YAML{where}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"its front matter is no YAML: {error}") from error
    if not isinstance(stated, dict):
        raise InputError("its front matter states no fields")
    return stated


@lru_cache(maxsize=1)
def _loader() -> type[yaml.SafeLoader]:
    # DeerFlow writes no aliases, and a few lines of them can use up all memory.
    import yaml

    class Plain(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise InputError("its front matter uses aliases, which are not read: write each value out")
            return super().compose_node(parent, index)

    return Plain


_Document = Mapping[str, object]


class _Item(msgspec.Struct, frozen=True):
    """A possible fact: its fields, the file it is in, the file's text, and the problem if it is not a fact."""

    stated: object
    where: str
    text: str | None = None
    problem: str = ""

    def order(self) -> tuple[bool, str, str]:
        """Return the sort key: by time of creation, items with a problem last."""
        stated = self.stated if isinstance(self.stated, Mapping) else {}
        return (bool(self.problem), str(stated.get("createdAt", "")), self.where)

    def candidate(self, index: int) -> Candidate:
        place = f"facts/{index}"
        if self.problem:
            return unread(place, self.text or "", f"{self.where}: {self.problem}")
        return fact_candidate(place, self.stated, text=self.text, origin=f"{self.where}: ")


def read_home(folder: Path, scope: Scope) -> tuple[Candidate, ...]:
    """Read a scope's part of a DeerFlow home.

    An agent's part is what DeerFlow shows the agent: its own facts, and its own summaries or else the user's. A file
    that cannot be read becomes an Unread candidate.

    Args:
        folder: the root of the home, the user's folder or the agent's folder.
        scope: whose part to read.

    Raises:
        InputError: The home holds nothing of the scope, or DeerFlow is writing it or was interrupted.
    """
    place = find(folder, scope)
    candidates = _read(folder, place)
    if candidates is None:
        raise holds_nothing(folder, place, scope)
    return candidates


def read_home_if_any(folder: Path, scope: Scope, *, users_sections: bool = True) -> tuple[Candidate, ...] | None:
    """Read a scope's part of a home as `read_home` does; None if the user or the agent has no memory of its own there.

    Args:
        folder: the root of the home, the user's folder or the agent's folder.
        scope: whose part to read.
        users_sections: whether an agent without summaries of its own gets the user's.

    Raises:
        InputError: No file of the scope can be read, or DeerFlow is writing it or was interrupted.
    """
    place = find(folder, scope, warn=False)
    if scope.agent is not None and not any(map(is_agents_own, place.agents)):
        return None
    return _read(folder, place, users_sections=users_sections or scope.agent is None)


def _read(folder: Path, place: MemoryPlace, *, users_sections: bool = True) -> tuple[Candidate, ...] | None:
    if not place.whole and not place.agents:
        return None
    check_journal(place)
    home = _Home(folder, place, users_sections=users_sections)
    candidates = tuple(home.candidates())
    if home.documents or home.facts:
        return candidates
    if not candidates:
        return None
    details = (candidate.detail for candidate in candidates if isinstance(candidate, Unread))
    raise InputError(f"nothing in {folder} can be read: {'; '.join(details)}")


class _Home:
    """The part of a home that belongs to one scope; paths in messages are relative to the given folder."""

    def __init__(self, folder: Path, place: MemoryPlace, *, users_sections: bool) -> None:
        self._folder = folder
        self._place = place
        within = place.bucket is not None and folder.absolute().is_relative_to(place.bucket)
        # Of an agent's own folder the user's, around it, is read too.
        self._root = (place.bucket if within and place.bucket is not None else folder).resolve()
        self._broken: list[Candidate] = []
        own = self._documents(place.agents)
        shared = self._documents(() if place.bucket is None else (place.bucket,))
        self.documents = [*own.values(), *shared.values()]
        stating = self.documents if users_sections else own.values()
        self._sections = next((d for d in stating if "user" in d or "history" in d), {})
        files: dict[Path, str | None] = {}
        self.facts: list[_Item] = []
        for where, document in (own | shared if place.whole else own).items():
            self.facts += self._listed(where, document, files)
        for agent in place.agents:
            self.facts += self._below(agent, files)
        self.facts += sorted((self._fact(file, agent) for file, agent in files.items()), key=_Item.order)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the sections, then the facts, then the documents that cannot be read."""
        yield from section_candidates(self._sections)
        for index, item in enumerate(self.facts):
            yield item.candidate(index)
        yield from self._broken

    def _named(self, path: Path) -> str:
        return os.path.relpath(path, self._folder)

    def _leaves(self, path: Path) -> str:
        """Return why a file is not read that a link leads out of the home to; "" for any other."""
        away = path.resolve()
        return "" if away.is_relative_to(self._root) else f"a link leads out of {self._root}, to {away}: copy the file"

    def _documents(self, folders: Iterable[Path]) -> dict[Path, _Document]:
        return {folder: document for folder in folders if (document := self._document(folder)) is not None}

    def _document(self, folder: Path) -> _Document | None:
        path = folder / MEMORY
        if not path.exists():
            return None
        problem = self._leaves(path)
        try:
            document = None if problem else read_json_file(path)
        except InputError as error:
            problem = str(error)
        else:
            if isinstance(document, Mapping) and is_document(document):
                return document
            problem = problem or "it is no memory document: it has neither user nor history nor facts"
        name = self._named(path)
        self._broken.append(unread(f"files/{len(self._broken)}", "", f"{name}: {problem}"))
        return None

    def _listed(self, folder: Path, document: _Document, files: dict[Path, str | None]) -> list[_Item]:
        """Return the facts of a document; if it only lists files of facts, add these to `files`."""
        facts = document.get("facts", [])
        name = self._named(folder / MEMORY)
        if isinstance(facts, list):
            return [_Item(fact, f"{name}, facts/{index}") for index, fact in enumerate(facts)]
        if not isinstance(facts, Mapping):
            return [_Item(None, name, problem="facts is neither a list nor an index of files")]
        items = []
        for fact_id, entry in facts.items():
            named = entry.get("path") if isinstance(entry, Mapping) else None
            path = (folder / named).resolve() if isinstance(named, str) and "\0" not in named else None
            if path is not None and path.is_relative_to(folder.resolve()):
                files.setdefault(path, None)
            else:
                items.append(_Item(None, f"{name}, facts/{fact_id}", problem="it names no file of this memory"))
        return items

    def _below(self, agent: Path, files: dict[Path, str | None]) -> list[_Item]:
        """Add the files of an agent's facts to `files`; return the folders that cannot be read."""
        items: list[_Item] = []

        def on_error(error: OSError) -> None:
            items.append(_Item(None, self._named(Path(error.filename)), problem=error.strerror or str(error)))

        facts = agent / "facts"
        # A folder that was copied elsewhere may have another name than its agent.
        owner = agent.name if agent.parent.name == "agents" else None
        for folder, _, names in os.walk(facts, onerror=on_error) if facts.exists() else ():
            for name in names:
                if name.endswith(".md"):
                    files[Path(folder, name).absolute()] = owner
        return items

    def _fact(self, path: Path, agent: str | None) -> _Item:
        away = self._leaves(path)
        if away:
            return _Item(None, self._named(path), problem=away)
        file = read_fact_file(path)
        problem = file.problem or self._misplaced(path, agent, file.stated)
        stated = {"id": path.stem, **file.stated}
        stated["id"] = str(stated["id"])
        extension = stated.get("categoryExtension")
        if stated.get("category") == "other" and isinstance(extension, str):
            # DeerFlow 2 has other categories than DeerFlow 1 and keeps the former category here.
            stated["category"] = extension
        source = stated.get("source")
        if not self._place.whole and (source.get("type") if isinstance(source, Mapping) else source) == "manual":
            # Only the agent's own tools can have stored it: DeerFlow's gateway, which serves people, names no agent.
            stated["source"] = None
        return _Item(stated, self._named(path), file.text, problem)

    def _misplaced(self, path: Path, agent: str | None, stated: _Document) -> str:
        """Return why DeerFlow would not count a fact as part of this memory; "" if it would."""
        fact_id, owner, user = stated.get("id"), stated.get("agent_name"), stated.get("user_id")
        if fact_id is not None and str(fact_id) != path.stem:
            return f"it says that it is {fact_id}, and its name is another"
        if stated.get("status", "active") != "active":
            return f"its status is {stated.get('status')}, and memory is what is active"
        if agent is not None and owner is not None and str(owner).casefold() != agent.casefold():
            return f"it says that it belongs to agent {owner}"
        bucket = self._place.bucket
        if user is not None and bucket is not None and bucket.parent.name == "users":
            return "" if bucket.name in users_folders(str(user)) else f"it says that it belongs to user {user}"
        return ""
