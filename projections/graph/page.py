"""The picture on a page: a little script shows a box's path and its whole words; nothing is fetched or sent."""

from __future__ import annotations

import base64
import hashlib

from backstory.projections.graph.ink import asset

PAGE_BEGINS = """<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8"/>
<meta name="generator" content="backstory graph"/>"""
"""How every page begins, so that a file can be told to be one."""


# Well-formed as XML, too. The policy lets only our own script and styles work, whatever else might stand here.
_PAGE = """{begins}
<meta http-equiv="Content-Security-Policy" content="{policy}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Backstory: {what}</title>
<style>{style}</style>
</head>
<body>
<div class="bar">
<input type="search" placeholder="Find in the picture" aria-label="Find in the picture"/>
<output></output>
</div>
<main>
{picture}</main>
<aside hidden="hidden" aria-live="polite">
<button type="button" aria-label="Close">✕</button>
<h2></h2><p></p><code></code>
</aside>
<script>{script}</script>
</body>
</html>
"""


def page_of(picture: str, what: str) -> str:
    """Put an SVG document on a page; `what` says in a word of ours what it shows."""
    style, script = asset("page.css"), asset("page.js")
    styles = " ".join(map(_hash, (style, asset("picture.css"))))
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {styles}"
    return _PAGE.format(
        begins=PAGE_BEGINS,
        policy=policy,
        what=what,
        style=style,
        picture=picture,
        script=script,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
