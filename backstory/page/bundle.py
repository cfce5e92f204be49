"""Bundle: the graph view as one HTML file with its data, which opens offline and loads nothing.

A browser loads modules from addresses, and a file that is opened offline has none but its own. So each module becomes a
function that returns its exports, and the functions stand in the order in which they need each other. The forms of
`import` and `export` that the page and its libraries use are read, and a module with any other is refused.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from backstory.projections.graph import Graph, MessageFlow


__all__ = ["PAGE_BEGINS", "graph_page"]

PAGE_BEGINS = "<!doctype html>\n<!-- A graph of memory, written by Backstory. -->\n"
"""How every file begins, so that it can be recognised."""

_ESCAPED = re.compile("[<\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What would end the element that holds the data, or steer a reader of the file; JSON may spell it by its number."""

_WEB = Path(__file__).parent / "web"
_STYLES = ("base", "components", "graph")
_LIBRARIES = ("preact", "htm", "dagre", "dagre-bundled", "panzoom")
_ENTRY = "graph_file.js"


def graph_page(graph: Graph | MessageFlow) -> str:
    """Return a page of HTML that draws a graph, to open in a browser without a server.

    It holds its script, its styles and the graph, and its content security policy allows nothing else. What it shows is
    text only, whatever it says.

    Args:
        graph: What `memory.graph` or `memory.message_flow` returned.
    """
    script, style = _script(), _style()
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    data = _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(graph).decode())
    return f"""{PAGE_BEGINS}<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Backstory: graph of memory</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="graph">{data}</script>
<script type="module">{script}</script>
<script type="text/plain" id="licenses">
{_licenses()}</script>
</body>
</html>
"""


@cache
def _script() -> str:
    # A closing tag inside a script ends it, also in a string.
    return linked(_WEB, _ENTRY).replace("</script", "<\\/script")


@cache
def _licenses() -> str:
    """Return the licences of the libraries in the script."""
    folder = _WEB / "vendor/licenses"
    return "\n".join(f"{name}\n\n{(folder / f'{name}.txt').read_text(encoding='utf-8')}" for name in _LIBRARIES)


@cache
def _style() -> str:
    return "".join((_WEB / "styles" / f"{name}.css").read_text(encoding="utf-8") for name in _STYLES)


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_NAMES = r"\{(?P<names>[^{}]*)\}"
_FROM = r"\s*from\s*[\"'](?P<path>\.[^\"']+)[\"'];?"
_START = r"(?:(?<=^)|(?<=[\n;}]))[ \t]*"
_IMPORT = re.compile(rf"{_START}import\s*(?P<default>[\w$]+)?\s*,?\s*(?:{_NAMES})?{_FROM}")
_PASSED_ON = re.compile(rf"{_START}export\s*{_NAMES}{_FROM}")
_LISTED = re.compile(rf"{_START}export\s*{_NAMES};?")
_DEFAULT = re.compile(rf"{_START}export default\s+")
_DECLARED = re.compile(
    rf"{_START}export\s+(?=(?:const|let|class|function\*?|async\s+function\*?)\s+(?P<name>[\w$]+))",
)
_LEFT = re.compile(rf"{_START}(?:import|export)[\s{{*\"']|\bimport\s*[.(]")


def linked(root: Path, entry: str) -> str:
    """Return one script of a module and of all that it imports.

    Args:
        root: The folder of the modules.
        entry: The module to begin with, by its path below `root`.

    Raises:
        ValueError: A module has a form of import or export that is not read here, or modules import each other in a
            circle.
    """
    found: dict[str, _Module] = {}
    _gather(root, PurePosixPath(entry), found, ())
    numbers = {path: f"$m{number}" for number, path in enumerate(found)}
    return "\n".join(['"use strict";', *(module.as_function(numbers) for module in found.values()), ""])


def _gather(root: Path, path: PurePosixPath, found: dict[str, _Module], above: tuple[PurePosixPath, ...]) -> None:
    """Read a module after those that it imports."""
    if str(path) in found:
        return
    if path in above:
        raise ValueError(f"{path} imports itself by way of {' and '.join(map(str, above))}")
    module = _Module(path, (root / path).read_text(encoding="utf-8"))
    for needed in module.needs:
        _gather(root, needed, found, (*above, path))
    found[str(path)] = module


class _Module:
    """A module, and what it imports and exports."""

    def __init__(self, path: PurePosixPath, source: str) -> None:
        self._path = path
        self.needs: list[PurePosixPath] = []
        self._exports: list[tuple[str, str]] = []
        self._imports: list[tuple[PurePosixPath, str]] = []
        body = _PASSED_ON.sub(self._pass_on, source)
        body = _IMPORT.sub(self._import, body)
        body = _LISTED.sub(self._list, body)
        body = _DECLARED.sub(self._declare, body)
        body = _DEFAULT.sub(self._default, body, count=1)
        if left := _LEFT.search(_without_comments(body)):
            raise ValueError(f"{path} has an import or export that cannot be linked, at {left[0].strip()!r}")
        self._body = body

    def as_function(self, numbers: Mapping[str, str]) -> str:
        """Write the module as a function that is called at once, and give its exports a name."""
        lines = [f"const {numbers[str(self._path)]} = (() => {{"]
        lines += [f"const {{{names}}} = {numbers[str(path)]};" for path, names in self._imports]
        exports = ", ".join(f"{exported}: {local}" for exported, local in self._exports)
        return "\n".join([*lines, self._body.strip(), f"return {{{exports}}};", "})();"])

    def _needed(self, found: re.Match[str]) -> PurePosixPath:
        path = PurePosixPath(posixpath.normpath(self._path.parent / found["path"]))
        self.needs.append(path)
        return path

    def _import(self, found: re.Match[str]) -> str:
        names = [f"{imported}: {local}" for imported, local in _pairs(found["names"])]
        names += [f"default: {found['default']}"] if found["default"] else []
        self._imports.append((self._needed(found), ", ".join(names)))
        return ""

    def _pass_on(self, found: re.Match[str]) -> str:
        pairs = list(_pairs(found["names"]))
        locals_ = [f"$x{len(self._exports) + number}" for number in range(len(pairs))]
        names = ", ".join(f"{imported}: {local}" for (imported, _), local in zip(pairs, locals_, strict=True))
        self._imports.append((self._needed(found), names))
        self._exports += [(exported, local) for (_, exported), local in zip(pairs, locals_, strict=True)]
        return ""

    def _list(self, found: re.Match[str]) -> str:
        self._exports += [(exported, local) for local, exported in _pairs(found["names"])]
        return ""

    def _declare(self, found: re.Match[str]) -> str:
        self._exports.append((found["name"], found["name"]))
        return ""

    def _default(self, _: re.Match[str]) -> str:
        self._exports.append(("default", "$default"))
        return "const $default = "


def _pairs(names: str | None) -> Iterator[tuple[str, str]]:
    """Read `a, b as c` as the names before and behind `as`."""
    for name in filter(None, map(str.strip, (names or "").split(","))):
        first, _, second = name.partition(" as ")
        yield first.strip(), (second or first).strip()


def _without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/|(?m:^\s*//.*$)", "", source, flags=re.DOTALL)
