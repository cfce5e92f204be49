"""Where in a DeerFlow home a scope's memory lies.

    ROOT/users/USER/memory.json                         the user's sections, and in version 1 the facts
    ROOT/users/USER/agents/AGENT/facts/XX/FACT_ID.md    a fact (version 2)
    ROOT/users/USER/agents/AGENT/memory.json            an agent's own memory (version 1)

Without users the same lies in ROOT itself. Who names no agent is `__default__`, and was `lead-agent` once. A home of
ours has the shape of version 1, so that its documents are found here, too.
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

__all__ = ["MEMORY", "Place", "find", "holds_nothing", "is_agents_own", "must_be_settled", "users_folders"]

_log = logging.getLogger(__name__)

MEMORY = "memory.json"
_JOURNAL = ".memory.journal.json"
_DEFAULT = "__default__"
_FORMER_DEFAULT = "lead-agent"
_NAMES = 10


class Place(msgspec.Struct, frozen=True):
    """Where a memory lies: the user's folder, and those of agents; `whole` where the user's own facts belong to it."""

    bucket: Path | None
    agents: tuple[Path, ...]
    whole: bool


def users_folders(user: str) -> tuple[str, ...]:
    """Name the folders that a user's memory may have, first DeerFlow's, then ours."""
    user = safe_text(user)
    plain = re.sub(r"[^A-Za-z0-9_\-]", "-", user)
    digest = hashlib.sha256(user.encode()).hexdigest()[:16]
    theirs = plain if plain == user else f"{plain}-{digest}"
    return tuple(dict.fromkeys((theirs, Scope(user).folder.rpartition("/")[2])))


def find(folder: Path, scope: Scope, *, tell: bool = True) -> Place:
    """Find a scope's memory below a folder, or the memory that the folder itself is.

    A folder that is a user's or an agent's own is taken at its word, whatever the scope's names are. Unless `tell` is
    off, whose memories are left there is said in the log.
    """
    folder = folder.absolute()
    if is_agents_own(folder):
        bucket = folder.parent.parent if folder.parent.name == "agents" else None
        return Place(bucket, (folder,), whole=folder.name == _DEFAULT)
    bucket = _bucket(folder, scope)
    below = bucket / "agents"
    if scope.agent is None:
        agents = [agent for agent in (below / _DEFAULT, below / _FORMER_DEFAULT) if _is_nobodys(agent)]
        if tell:
            _tell_of_others(below, agents)
    else:
        agents = [agent for name in (scope.agent, scope.agent.lower()) if (agent := below / name).is_dir()][:1]
    return Place(bucket, tuple(agents), whole=scope.agent is None)


def is_agents_own(folder: Path) -> bool:
    """Whether a folder is an agent's: it lies among agents, or was copied from there and has nothing but facts."""
    document, facts = (folder / MEMORY).exists(), (folder / "facts").is_dir()
    return (document or facts) if folder.parent.name == "agents" else facts and not document


def _bucket(folder: Path, scope: Scope) -> Path:
    users = folder / "users"
    if scope.user is None or not users.is_dir():
        return folder
    candidates = [users / name for name in users_folders(scope.user)]
    return next((bucket for bucket in candidates if bucket.is_dir()), candidates[0])


def _is_nobodys(agent: Path) -> bool:
    """Whether an agent's folder is where DeerFlow keeps what was said to no agent in particular."""
    return agent.is_dir() and (agent.name == _DEFAULT or not (agent / "config.yaml").exists())


def _tell_of_others(below: Path, taken: list[Path]) -> None:
    names = [agent.name for agent in _folders(below) if agent not in taken and is_agents_own(agent)]
    if names:
        _log.warning("%s: not taken are the agents' own memories; import each with --agent: %s", below, _listed(names))


def must_be_settled(place: Place) -> None:
    """Refuse a memory that DeerFlow has only half written.

    Raises:
        InputError: its journal says so.
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
        f"{journal}: DeerFlow is writing here, or was interrupted: try again, or start DeerFlow once to put it right"
    )


def holds_nothing(folder: Path, place: Place, scope: Scope) -> InputError:
    """Say that nothing of a scope is there, and whose memories are."""
    users = [one.name for one in _folders(folder / "users")]
    agents = [] if place.bucket is None else [one.name for one in _folders(place.bucket / "agents")]
    told = "a DeerFlow home has a memory.json, or a folder users or agents"
    if agents:
        told = f"the agents there are {_listed(agents)}: name one with --agent"
    elif users and (place.bucket is None or not place.bucket.is_dir() or scope.user is None):
        told = f"the users there are {_listed(users)}: name one with --user"
    return InputError(f"{folder} holds no memory of {scope if scope != Scope() else 'nobody in particular'}; {told}")


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir())
    except OSError:
        return []


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
