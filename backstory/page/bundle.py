"""Bundle: the graph view as one HTML file with its data, which opens offline and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from backstory.page.modules import linked

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
