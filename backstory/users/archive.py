"""Archive of a user: everything that is kept about one, in a zip file, for an access request.

    README.txt                    what each file is, for the person who asked
    user.json                     the user, and for each memory its folder, counts and head
    FOLDER/memory.json            what is remembered
    FOLDER/MEMORY.md              the same to read
    FOLDER/conversations.jsonl    the turns that stand
    FOLDER/ledger.jsonl           every line of the log of what was learned, and
    FOLDER/transcript.jsonl       of what was said, with what stands no longer

FOLDER is `memory` for the user's own memory and `agents/NAME` for an agent's.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import msgspec

from backstory.ledger.core.errors import NotFoundError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope
from backstory.ledger.engines.port import EventStore
from backstory.memory import MemoryHandle
from backstory.projections.document.markdown import markdown_of
from backstory.results import ArchivedMemory, ArchivedUser
from backstory.users.owners import scopes_of

_README = """\
Everything that this memory of an assistant keeps about one person.
The folder "memory" is the person's own, each folder in "agents" is that of one agent.

MEMORY.md            what is remembered, to read in any editor: a summary in sections, and single facts
memory.json          the same for programs, with times, sources and confidence
conversations.jsonl  what was said, one message on each line, with its time and conversation
ledger.jsonl         how memory came to be what it is: each fact that was added, changed, removed or refused
transcript.jsonl     the record of what was said, with messages that were replaced since
user.json            the person's name here, and how much each folder holds

Texts are in UTF-8. On each line of a .jsonl file is one object of JSON.
"""


def archive_user(
    user: Scope, file: IO[bytes], *, store: EventStore, memory: Callable[[Scope], MemoryHandle]
) -> ArchivedUser:
    """Write the archive of a user; see `Backstory.export_user`."""
    scopes = sorted(scopes_of(store, user), key=lambda scope: scope.agent or "")
    if not scopes:
        raise NotFoundError(f"no {user} is known in {store}: see `scopes`")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        found = ArchivedUser(str(user.user), tuple(_put(archive, memory(scope), store) for scope in scopes))
        archive.writestr("user.json", _json(found))
        archive.writestr("README.txt", _README)
    return found


def _put(archive: zipfile.ZipFile, memory: MemoryHandle, store: EventStore) -> ArchivedMemory:
    scope = memory.scope
    folder = "memory" if scope.agent is None else f"agents/{scope.agent}"
    document, status, head = memory.own.document(), memory.status(), memory.head()
    archive.writestr(f"{folder}/memory.json", _json(document))
    archive.writestr(f"{folder}/MEMORY.md", markdown_of(document))
    _lines(archive, f"{folder}/conversations.jsonl", _turns(memory))
    for kind in (LEDGER, TRANSCRIPT):
        _lines(archive, f"{folder}/{kind}.jsonl", (record.line for record in store.read(f"{scope.folder}/{kind}")))
    return ArchivedMemory(folder, scope.agent, status.seq, status.facts, status.turns, head.hash)


def _turns(memory: MemoryHandle) -> Iterator[bytes]:
    return (msgspec.json.encode(turn) for thread in memory.threads() for turn in memory.transcript(thread.thread))


def _lines(archive: zipfile.ZipFile, name: str, lines: Iterable[bytes]) -> None:
    # A member that is opened by its name alone is dated 1980.
    member_of = zipfile.ZipInfo(name, time.localtime()[:6])
    member_of.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(member_of, "w", force_zip64=True) as member:
        for line in lines:
            member.write(line + b"\n")


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
