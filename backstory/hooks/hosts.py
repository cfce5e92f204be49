"""Hosts of hooks: the coding agents, their folders and projects, and what changes in the settings file of a host.

What others have put into the settings file stays.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from backstory.ledger.core.errors import ConfigError, InputError
from backstory.ledger.disk.files import make_folder, put_in_place

GIVES = ("SessionStart", "UserPromptSubmit")
"""The events for which memory gives something."""
RECORDS = ("Stop", "SessionEnd")
"""The events that record what was said."""

_LONGEST_NAME = 64
_DIGITS = 8
_POINTER = 4096
"""The most bytes of a `.git` that is a file."""
_OTHERS = re.compile(r"[^A-Za-z0-9]+")


class Host(NamedTuple):
    """A coding agent: its name, which is that of the format of its session files, and where its files are."""

    name: str
    variable: str
    """The environment variable that names its folder; `default` is that below the user's."""
    default: str
    settings: str
    began_in: str = ""
    """The environment variable that names the folder that a session began in, since its `cwd` may move on."""

    def folder(self) -> Path:
        """Return the host's own folder."""
        stated = os.environ.get(self.variable)
        return Path(stated).absolute() if stated else Path.home() / self.default

    def transcript(self, stated: str | None) -> Path:
        """Return the session file that a call names: only one below the host's own folder that no link leads to."""
        if not stated:
            raise InputError("the call names no session file, so nothing was recorded")
        path, folder = Path(stated), self.folder()
        root = next((root for root in (folder, folder.resolve()) if path.is_relative_to(root)), None)
        if root is None or ".." in path.parts or path.suffix != ".jsonl":
            raise InputError(f"the session file is no .jsonl file below {folder}, so it was not read")
        steps = [path, *path.parents][: len(path.relative_to(root).parts)]
        if any(step.is_symlink() for step in steps) or not path.is_file():
            raise InputError("the session file is missing, or a link leads to it, so it was not read")
        return path


_ALL = (
    Host("claude-code", "CLAUDE_CONFIG_DIR", ".claude", "settings.json", "CLAUDE_PROJECT_DIR"),
    Host("codex", "CODEX_HOME", ".codex", "hooks.json"),
)
HOSTS: Mapping[str, Host] = {host.name: host for host in _ALL}


def home_folder(stated: str | None) -> Path:
    """Return the folder of the log and of the mark of a pause: `stated`, else $BACKSTORY_HOME, else ~/.backstory."""
    place = stated or os.environ.get("BACKSTORY_HOME") or "~/.backstory"
    return Path(os.path.expanduser(place)).absolute()  # noqa: PTH111 that of a path raises errors


def project_of(folder: Path) -> Path:
    """Return the project of a folder: the nearest above with `.git`, for a worktree the main one; else itself."""
    for place in (folder, *folder.parents):
        found = place / ".git"
        if found.is_dir():
            return place
        if found.is_file():
            return _of_worktree(place, found)
    return folder


def _of_worktree(place: Path, pointer: Path) -> Path:
    """Follow a `.git` that is a file; that of a submodule leads to no other project."""
    with pointer.open(encoding="utf-8", errors="replace") as stream:
        said = stream.read(_POINTER)
    gitdir = place / said.removeprefix("gitdir:").strip()
    if not said.startswith("gitdir:") or gitdir.parent.name != "worktrees":
        return place
    common = Path(os.path.normpath(gitdir.parent.parent))
    # A bare repository is the project itself, unless it is hidden in it.
    return common.parent if common.name.startswith(".") else common.with_name(common.name.removesuffix(".git"))


def agent_of(project: Path) -> str | None:
    """Return the name of the agent whose memory is a project's; None for the root of the file system."""
    name = project.name
    plain = _OTHERS.sub("-", name).strip("-").lower()
    if not name or (name.isascii() and plain and len(plain) <= _LONGEST_NAME):
        return plain or None
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:_DIGITS]
    return f"{plain[: _LONGEST_NAME - _DIGITS - 1].strip('-') or 'project'}-{digest}"


def lies_in(folder: Path, others: Iterable[str]) -> bool:
    """Whether a folder is one of others, or below one; links are followed."""
    real = Path(os.path.realpath(folder))
    return any(real.is_relative_to(os.path.realpath(Path(other).expanduser())) for other in others)


_WAIT_SECONDS = 5
_WAIT_AT_END = 3
"""The most that Codex grants to the hook of a session's end; it warns of more."""


class HookChange(msgspec.Struct, frozen=True):
    """The change of a host's settings file, as a unified diff ("" for none), and whether it was made."""

    file: str
    diff: str
    written: bool


def change(host: Host, command: Sequence[str] | None, *, write: bool) -> HookChange:
    """Have hooks run a command, by the settings of a host; None takes the hooks out.

    Raises:
        ConfigError: The file is no JSON object with hooks, or cannot be read or written.
    """
    # A settings file is often a link into a repository of such files.
    path = Path(os.path.realpath(host.folder() / host.settings))
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = _changed(before, path, host, command)
        if write and after != before:
            mode = path.stat().st_mode if path.exists() else 0o600
            make_folder(path.parent)
            put_in_place(path, after.encode())
            path.chmod(mode & 0o777)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot change {path}: {error}; check the file and its mode") from error
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), lineterm="")
    return HookChange(str(path), "\n".join(lines), write and after != before)


def _changed(before: str, path: Path, host: Host, command: Sequence[str] | None) -> str:
    try:
        settings = json.loads(before) if before.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON ({error}): mend it, then run this again") from error
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise ConfigError(f"{path} is no object with lists of hooks below `hooks`: mend it, then run this again")
    left = {event: [*_without_ours(groups, host)] for event, groups in hooks.items()}
    if command is not None:
        for event in (*GIVES, *RECORDS):
            wait = _WAIT_AT_END if event == "SessionEnd" else _WAIT_SECONDS
            entry = {"type": "command", "command": shlex.join(command), "timeout": wait}
            left.setdefault(event, []).append({"hooks": [entry]})
    left = {event: groups for event, groups in left.items() if groups or not hooks.get(event)}
    if left == hooks:
        return before
    settings = {key: value for key, value in settings.items() if key != "hooks" or left}
    return json.dumps(settings | ({"hooks": left} if left else {}), indent=2, ensure_ascii=False) + "\n"


def _without_ours(groups: Sequence[object], host: Host) -> Iterator[object]:
    """Yield the groups without our commands; none of which nothing is left."""
    for group in groups:
        entries = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(entries, list):
            yield group
        elif kept := [entry for entry in entries if not _is_ours(entry, host)]:
            yield {**group, "hooks": kept}


def _is_ours(entry: object, host: Host) -> bool:
    command = str(entry.get("command")) if isinstance(entry, dict) else ""
    return "backstory" in command and command.endswith(f" hook {host.name}")
