"""Installation of hooks: what changes in the settings file of a host; what others have put there stays."""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from backstory.hooks.hosts import Host
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.disk.files import make_folder, put_in_place

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
        for event in host.events:
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
