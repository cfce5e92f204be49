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
from collections.abc import Iterator
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
    linker = _Linker(root)
    linker.add(PurePosixPath(entry))
    return "\n".join(['"use strict";', *linker.scripts, ""])


class _Linker:
    """Writes modules as functions that are called at once, each after those that it imports."""

    def __init__(self, root: Path) -> None:
        self.scripts: list[str] = []
        self._root = root
        self._names: dict[PurePosixPath, str] = {}

    def add(self, path: PurePosixPath, above: tuple[PurePosixPath, ...] = ()) -> str:
        """Write a module that those `above` need, and return the name of its exports."""
        if path in self._names:
            return self._names[path]
        if path in above:
            raise ValueError(f"{path} imports itself by way of {' and '.join(map(str, above))}")
        exports: list[str] = []

        def needed(found: re.Match[str]) -> str:
            return self.add(PurePosixPath(posixpath.normpath(path.parent / found["path"])), (*above, path))

        def imported(found: re.Match[str]) -> str:
            names = [f"{name}: {local}" for name, local in _pairs(found["names"])]
            names += [f"default: {found['default']}"] if found["default"] else []
            return f"const {{{', '.join(names)}}} = {needed(found)};"

        def passed_on(found: re.Match[str]) -> str:
            names = []
            for name, exported in _pairs(found["names"]):
                names.append(f"{name}: $x{len(exports)}")
                exports.append(f"{exported}: $x{len(exports)}")
            return f"const {{{', '.join(names)}}} = {needed(found)};"

        def listed(found: re.Match[str]) -> str:
            exports.extend(f"{exported}: {local}" for local, exported in _pairs(found["names"]))
            return ""

        def declared(found: re.Match[str]) -> str:
            exports.append(f"{found['name']}: {found['name']}")
            return ""

        def default(_: re.Match[str]) -> str:
            exports.append("default: $default")
            return "const $default = "

        body = (self._root / path).read_text(encoding="utf-8")
        for form, written in ((_PASSED_ON, passed_on), (_IMPORT, imported), (_LISTED, listed), (_DECLARED, declared)):
            body = form.sub(written, body)
        body = _DEFAULT.sub(default, body, count=1)
        if left := _LEFT.search(_without_comments(body)):
            raise ValueError(f"{path} has an import or export that cannot be linked, at {left[0].strip()!r}")
        name = self._names[path] = f"$m{len(self._names)}"
        self.scripts += [f"const {name} = (() => {{", body.strip(), f"return {{{', '.join(exports)}}};", "})();"]
        return name


def _pairs(names: str | None) -> Iterator[tuple[str, str]]:
    """Read `a, b as c` as the names before and behind `as`."""
    for name in filter(None, map(str.strip, (names or "").split(","))):
        first, _, second = name.partition(" as ")
        yield first.strip(), (second or first).strip()


def _without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/|(?m:^\s*//.*$)", "", source, flags=re.DOTALL)
