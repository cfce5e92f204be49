"""Paths of a scope's memory in a DeerFlow home.

    ROOT/users/USER/memory.json                         the user's sections, and in version 1 the facts
    ROOT/users/USER/agents/AGENT/facts/XX/FACT_ID.md    a fact (version 2)
    ROOT/users/USER/agents/AGENT/memory.json            an agent's own memory (version 1)

Without users the same files are in ROOT itself. The default agent is `__default__`, formerly `lead-agent`. Our own
homes have the layout of version 1, so their documents are found, too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path

import msgspec

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import safe_text
from backstory.ledger.core.scope import Scope

_log = logging.getLogger(__name__)

MEMORY = "memory.json"
_JOURNAL = ".memory.journal.json"
_DEFAULT = "__default__"
_FORMER_DEFAULT = "lead-agent"
_NAMES = 10


class MemoryPlace(msgspec.Struct, frozen=True):
    """The folders of a memory: the user's and the agents'; `whole` if the user's own facts belong to it."""

    bucket: Path | None
    agents: tuple[Path, ...]
    whole: bool


def users_folders(user: str) -> tuple[str, ...]:
    """Return the folder names that a user's memory may have: DeerFlow's, then ours."""
    user = safe_text(user)
    plain = re.sub(r"[^A-Za-z0-9_\-]", "-", user)
    digest = hashlib.sha256(user.encode()).hexdigest()[:16]
    theirs = plain if plain == user else f"{plain}-{digest}"
    return tuple(dict.fromkeys((theirs, Scope(user).folder.rpartition("/")[2])))


def find(folder: Path, scope: Scope, *, warn: bool = True) -> MemoryPlace:
    """Find a scope's memory in a home.

    Args:
        folder: the root of the home, or the folder of a user or agent; that one is used whatever the scope's names are.
        scope: whose memory to find.
        warn: log a warning if the home holds memories of other agents.
    """
    folder = folder.absolute()
    if is_agents_own(folder):
        bucket = folder.parent.parent if folder.parent.name == "agents" else None
        return MemoryPlace(bucket, (folder,), whole=folder.name == _DEFAULT)
    bucket = _bucket(folder, scope)
    below = bucket / "agents"
    if scope.agent is None:
        agents = [agent for agent in (below / _DEFAULT, below / _FORMER_DEFAULT) if _is_default_agent(agent)]
        if warn:
            _warn_of_others(below, agents)
    else:
        agents = [agent for name in (scope.agent, scope.agent.lower()) if (agent := below / name).is_dir()][:1]
    return MemoryPlace(bucket, tuple(agents), whole=scope.agent is None)


def is_agents_own(folder: Path) -> bool:
    """Whether a folder is an agent's: its parent is `agents`, or it was copied and holds facts but no document."""
    document, facts = (folder / MEMORY).exists(), (folder / "facts").is_dir()
    return (document or facts) if folder.parent.name == "agents" else facts and not document


def _bucket(folder: Path, scope: Scope) -> Path:
    users = folder / "users"
    if scope.user is None or not users.is_dir():
        return folder
    candidates = [users / name for name in users_folders(scope.user)]
    return next((bucket for bucket in candidates if bucket.is_dir()), candidates[0])


def _is_default_agent(agent: Path) -> bool:
    # A custom agent may be called `lead-agent`; it has a configuration.
    return agent.is_dir() and (agent.name == _DEFAULT or not (agent / "config.yaml").exists())


def _warn_of_others(below: Path, taken: list[Path]) -> None:
    names = [agent.name for agent in _folders(below) if agent not in taken and is_agents_own(agent)]
    if names:
        _log.warning("%s: agents' own memories are not imported; import each with --agent: %s", below, _listed(names))


def check_journal(place: MemoryPlace) -> None:
    """Refuse a memory that DeerFlow has not finished writing.

    Raises:
        InputError: The journal is there and does not say that the write is complete.
    """
    if place.bucket is None:
        return
    journal = place.bucket / _JOURNAL
    try:
        stated = json.loads(journal.read_bytes())
        if isinstance(stated, dict) and stated.get("state") == "committed":
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        pass
    raise InputError(
        f"{journal}: DeerFlow is writing this memory or was interrupted; try again, or start DeerFlow once to repair it"
    )


def holds_nothing(folder: Path, place: MemoryPlace, scope: Scope) -> InputError:
    """Return the error for a home that holds nothing of a scope; it names the users or agents that the home has."""
    users = [one.name for one in _folders(folder / "users")]
    agents = [] if place.bucket is None else [one.name for one in _folders(place.bucket / "agents")]
    hint = "a DeerFlow home has a memory.json, or a folder users or agents"
    if agents:
        hint = f"the agents there are {_listed(agents)}: name one with --agent"
    elif users and (place.bucket is None or not place.bucket.is_dir() or scope.user is None):
        hint = f"the users there are {_listed(users)}: name one with --user"
    return InputError(f"{folder} holds no memory of {scope if scope != Scope() else 'the default user'}; {hint}")


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir())
    except OSError:
        return []


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
