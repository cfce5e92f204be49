"""Reader of a DeerFlow 2 fact file: Markdown with YAML front matter, a title, and the text of the fact."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.ledger.core.errors import InputError

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
