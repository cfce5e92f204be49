"""A DeerFlow home, read whole: a user's summaries, and the facts of the agent that is asked for.

What lies where, and whose it is, is `places`' business; here it is read and put together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.events import Candidate, Unread
from backstory.ledger.core.scope import Scope
from backstory.ledger.importing.deerflow_paths import (
    MEMORY,
    Place,
    find,
    holds_nothing,
    is_agents_own,
    must_be_settled,
    users_folders,
)
from backstory.ledger.importing.document import fact_candidate, is_document, section_candidates, unread
from backstory.ledger.importing.fact_file import read_fact_file
from backstory.ledger.importing.json_file import read_json_file

__all__ = ["read_home", "read_home_if_any"]

Document = Mapping[str, object]


class _Item(msgspec.Struct, frozen=True):
    """What may be a fact: what it states, where that stands, its text, and why it is none."""

    stated: object
    where: str
    text: str | None = None
    problem: str = ""

    def made(self) -> tuple[bool, str, str]:
        """Its place in the order in which facts were made; what is none comes last."""
        stated = self.stated if isinstance(self.stated, Mapping) else {}
        return (bool(self.problem), str(stated.get("createdAt", "")), self.where)

    def candidate(self, index: int) -> Candidate:
        place = f"facts/{index}"
        if self.problem:
            return unread(place, self.text or "", f"{self.where}: {self.problem}")
        return fact_candidate(place, self.stated, text=self.text, origin=f"{self.where}: ")


def read_home(folder: Path, scope: Scope) -> tuple[Candidate, ...]:
    """Read a scope's part of a home; `folder` is its root, the folder of the user, or that of the agent.

    Of an agent it is what DeerFlow shows it: its own facts, and the user's summaries unless it has some of its own. A
    file that cannot be read is an Unread candidate that names it.

    Raises:
        InputError: nothing of the scope is there, or DeerFlow was interrupted while it wrote.
    """
    place = find(folder, scope)
    candidates = _read(folder, place)
    if candidates is None:
        raise holds_nothing(folder, place, scope)
    return candidates


def read_home_if_any(folder: Path, scope: Scope) -> tuple[Candidate, ...] | None:
    """Read a scope's part of a home as `read_home` does; None where nothing is there, of an agent nothing of its own.

    Raises:
        InputError: what is there cannot be read, or DeerFlow was interrupted while it wrote.
    """
    place = find(folder, scope, tell=False)
    if scope.agent is not None and not any(map(is_agents_own, place.agents)):
        return None
    return _read(folder, place)


def _read(folder: Path, place: Place) -> tuple[Candidate, ...] | None:
    if not place.whole and not place.agents:
        return None
    must_be_settled(place)
    home = _Home(folder, place)
    candidates = tuple(home.candidates())
    if home.documents or home.facts:
        return candidates
    if not candidates:
        return None
    raise InputError(f"nothing in {folder} can be read: {'; '.join(map(_detail, candidates))}")


def _detail(candidate: Candidate) -> str:
    return candidate.detail if isinstance(candidate, Unread) else ""


class _Home:
    """The part of a home that belongs to one scope; files are named from the folder that was given."""

    def __init__(self, folder: Path, place: Place) -> None:
        self._folder = folder
        self._place = place
        self._broken: list[Candidate] = []
        own = self._documents(place.agents)
        shared = self._documents(() if place.bucket is None else (place.bucket,))
        self.documents = [*own.values(), *shared.values()]
        self._sections = next((d for d in self.documents if "user" in d or "history" in d), {})
        files: dict[Path, str | None] = {}
        self.facts: list[_Item] = []
        for where, document in (own | shared if place.whole else own).items():
            self.facts += self._listed(where, document, files)
        for agent in place.agents:
            self.facts += self._below(agent, files)
        self.facts += sorted((self._fact(file, agent) for file, agent in files.items()), key=_Item.made)

    def candidates(self) -> Iterator[Candidate]:
        """Sections, then facts, each at a place of its own, then the documents that cannot be read."""
        yield from section_candidates(self._sections)
        for index, item in enumerate(self.facts):
            yield item.candidate(index)
        yield from self._broken

    def _named(self, path: Path) -> str:
        return os.path.relpath(path, self._folder)

    def _documents(self, folders: Iterable[Path]) -> dict[Path, Document]:
        return {folder: document for folder in folders if (document := self._document(folder)) is not None}

    def _document(self, folder: Path) -> Document | None:
        path = folder / MEMORY
        if not path.exists():
            return None
        try:
            document = read_json_file(path)
        except InputError as error:
            problem = str(error)
        else:
            if isinstance(document, Mapping) and is_document(document):
                return document
            problem = "it is no memory document: it has neither user nor history nor facts"
        name = self._named(path)
        self._broken.append(unread(f"files/{len(self._broken)}", "", f"{name}: {problem}"))
        return None

    def _listed(self, folder: Path, document: Document, files: dict[Path, str | None]) -> list[_Item]:
        """Facts in the document itself; where it only says which files they are in, those are put down."""
        facts = document.get("facts", [])
        name = self._named(folder / MEMORY)
        if isinstance(facts, list):
            return [_Item(fact, f"{name}, facts/{index}") for index, fact in enumerate(facts)]
        if not isinstance(facts, Mapping):
            return [_Item(None, name, problem="facts is neither a list nor an index of files")]
        items = []
        for fact_id, entry in facts.items():
            told = entry.get("path") if isinstance(entry, Mapping) else None
            path = (folder / told).resolve() if isinstance(told, str) and "\0" not in told else None
            if path is not None and path.is_relative_to(folder.resolve()):
                files.setdefault(path, None)
            else:
                items.append(_Item(None, f"{name}, facts/{fact_id}", problem="it names no file of this memory"))
        return items

    def _below(self, agent: Path, files: dict[Path, str | None]) -> list[_Item]:
        """Put down the files below an agent's facts; return the folders that cannot be looked into."""
        items: list[_Item] = []

        def told(error: OSError) -> None:
            items.append(_Item(None, self._named(Path(error.filename)), problem=error.strerror or str(error)))

        facts = agent / "facts"
        # A folder that was copied elsewhere need not be called as its agent is.
        owner = agent.name if agent.parent.name == "agents" else None
        for folder, _, names in os.walk(facts, onerror=told) if facts.exists() else ():
            for name in names:
                if name.endswith(".md"):
                    files[Path(folder, name).absolute()] = owner
        return items

    def _fact(self, path: Path, agent: str | None) -> _Item:
        file = read_fact_file(path)
        problem = file.problem or self._misplaced(path, agent, file.stated)
        stated = {"id": path.stem, **file.stated}
        stated["id"] = str(stated["id"])
        extension = stated.get("categoryExtension")
        if stated.get("category") == "other" and isinstance(extension, str):
            # DeerFlow 2 has other categories than DeerFlow 1, whose word it keeps here.
            stated["category"] = extension
        return _Item(stated, self._named(path), file.text, problem)

    def _misplaced(self, path: Path, agent: str | None, stated: Document) -> str:
        """Tell why DeerFlow itself would not take a fact for one of this memory; "" where it would."""
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
