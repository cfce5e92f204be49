"""Nearest names: which user or agent of a home a name that is not known may have meant.

The names are those of the store's folders, so no log is opened but those of the few best candidates.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from backstory.ledger.core.errors import CorruptLogError, StoreError
from backstory.ledger.core.scope import LEDGER, TRANSCRIPT, Scope

if TYPE_CHECKING:
    from backstory.home import Backstory

_CANDIDATES = 5
_NAMED = 10
_LIKENESS = 0.6
_LOOK_ALIKE = str.maketrans("авеѕіјкмнорстухьԁԍѡαβεικνορτυχ01", "abesijkmhopctyxbdgwaβeiknoptyxol")
"""Cyrillic and Greek letters, and digits, that look like Latin letters, after case folding."""


def missing(bs: Backstory, scope: Scope) -> str | None:
    """Say that a home does not know a user or an agent, and which known one is nearest.

    Args:
        bs: The home.
        scope: The scope that is asked for.

    Returns:
        A sentence for people; None where the scope is known, or is the global one of a home without users.
    """
    if _is_known(bs, scope):
        return None
    if scope == Scope():
        return _only_others(bs)
    if scope.user is not None and not _has_user(bs, scope.user):
        found = _nearest(scope.user, (other.user for other in _in_folder(bs, "users")), lambda n: _has_user(bs, n))
        where = bs.store if bs.store.capabilities().path is None else bs.home
        return f"no user {_spelled(scope.user, found)} is known in {where}{_hint('user', scope.user, found)}"
    if scope.agent is None:
        return None
    user = Scope(scope.user)
    names = (other.agent for other in _in_folder(bs, f"{user.folder}/agents".lstrip("/")))
    found = _nearest(scope.agent, names, lambda name: _is_known(bs, Scope(scope.user, name)))
    owner = "the global memory" if scope.user is None else str(user)
    settings = bs.config.settings
    reads = _READS[settings.agent_reads] if not settings.shared_summaries else "it shows its user's sections"
    return f"{owner} has no agent {scope.agent!r}{_hint('agent', scope.agent, found)}; {reads}"


_READS = {
    "both": "an agent reads its user's facts in `context`, `search` and `fact list`",
    "fallback": "an agent without a memory of its own reads its user's",
    "own": "an agent reads its own facts only",
}


def _only_others(bs: Backstory) -> str | None:
    """Name the users of a home whose global memory has no log, or its agents without a user; None without any."""
    for folder, kind in (("users", "user"), ("agents", "agent")):
        others = (other for other in _in_folder(bs, folder) if _has_user(bs, other.user) or _is_known(bs, other))
        names = sorted(repr(other.user or other.agent) for other in islice(others, _NAMED + 1))
        if names:
            more = ", and more: see `scopes`" if len(names) > _NAMED else ""
            return (
                f"nothing was recorded without a user; the {kind}s here are {', '.join(names[:_NAMED])}{more}: "
                f"name one with --{kind}"
            )
    return None


def _is_known(bs: Backstory, scope: Scope) -> bool:
    """Whether a scope has a log. A damaged or unreadable one counts: the verb says what is wrong with it.

    Raises:
        StoreError: An engine does not answer. The verb would wait for it as long once more.
    """
    try:
        return any(bs.store.head(scope.stream(kind)).seq for kind in (LEDGER, TRANSCRIPT))
    except CorruptLogError:
        return True
    except StoreError:
        if bs.store.capabilities().path is None:
            raise
        return True


def _has_user(bs: Backstory, user: str | None) -> bool:
    """Whether a user, or an agent of the user, has a log."""
    if user is None:
        return False
    scope = Scope(user)
    if _is_known(bs, scope):
        return True
    return any(_is_known(bs, Scope(user, other.agent)) for other in _in_folder(bs, f"{scope.folder}/agents"))


def _in_folder(bs: Backstory, folder: str) -> Iterator[Scope]:
    """Yield the scopes that the names in a folder of the store stand for; a shortened name stands for none."""
    with suppress(StoreError):
        for name in bs.store.folders(folder):
            scope = Scope.in_folder(f"{folder}/{name}")
            if scope is not None:
                yield scope


def _nearest(name: str, names: Iterator[str | None], is_known: Callable[[str], bool]) -> str | None:
    """Return the known name that looks most like another: the same but for case and look-alikes, else a close one."""
    wanted = _skeleton(name)
    by_skeleton: dict[str, list[str]] = {}
    for other in names:
        if other is not None and other != name:
            by_skeleton.setdefault(_skeleton(other), []).append(other)
    for skeleton in get_close_matches(wanted, by_skeleton, _CANDIDATES, _LIKENESS):
        for other in sorted(by_skeleton[skeleton])[:_CANDIDATES]:
            if is_known(other):
                return other
    return None


def _skeleton(name: str) -> str:
    """Return a name without what is easily mistaken: case, accents, width, letters of another script, outer spaces."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(char for char in plain if not unicodedata.combining(char)).translate(_LOOK_ALIKE).strip()


def _hint(kind: str, name: str, found: str | None) -> str:
    return "" if found is None else f"; the nearest {kind} is {_spelled(found, name)}"


def _spelled(name: str, other: str | None) -> str:
    """Quote a name; where it looks like the other one, its foreign letters are shown by their numbers."""
    return ascii(name) if other is not None and _skeleton(name) == _skeleton(other) else repr(name)
