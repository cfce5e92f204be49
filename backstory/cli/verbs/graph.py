"""The verb that draws: graph."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.answers import Drawn
    from backstory.cli.pages.page import Page
    from backstory.projections.graph import Graph, MessageFlow

__all__ = ["Format", "graph"]


class Format(StrEnum):
    """What a picture can be written as."""

    svg = "svg"
    html = "html"


def graph(
    ctx: typer.Context,
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to write it: else backstory-graph.html here; - for standard output."),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Else what the file's name ends in, else html.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only this conversation, and what became of it.")] = None,
    fact: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this fact, what it was made of, what took its place.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="SEQ|TIME", help="Only updates since then; with --messages a time.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="At most so many updates, the newest; with --messages routes.")
    ] = 200,
    messages: Annotated[
        bool, typer.Option("--messages", help="Draw who sent what to whom instead, over the turns.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is no such picture, too.")] = False,
) -> None:
    """Draw memory: threads, the updates that learned from them, the facts that came and went, what took whose place.

    With --json and without --out nothing is written: the graph itself is the answer, as data.

    Example: backstory graph --fact fact_2_0 --out why.svg
    """
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if messages and fact is not None:
        raise UsageError("--messages is about turns, and --fact about a fact: leave one of them out")
    if session.as_json and out == "-":
        raise UsageError("--json and --out - both ask for standard output: leave one of them out")
    target = _target(out, format_, "messages" if messages else "graph")
    with session.memory() as memory:
        drawn: Graph | MessageFlow = (
            memory.letters(thread=thread, since=since, limit=limit)
            if messages
            else memory.graph(thread=thread, fact=fact, since=since, limit=limit)
        )
    if session.as_json and out is None:
        session.answer(drawn, lambda *_: None)
        return
    chosen = format_ or _format_of(target)
    text = drawn.svg() if chosen is Format.svg else drawn.html()
    if out == "-":
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            # A picture says that it is UTF-8, whatever the terminal's own is.
            reconfigure(encoding="utf-8")
        sys.stdout.write(text)
        return
    _write(target, text, force=force)
    session.answer(_told(target, chosen, drawn), _say)


def _target(out: str | None, format_: Format | None, name: str) -> Path:
    return Path(f"backstory-{name}.{(format_ or Format.html).value}" if out is None else out)


def _format_of(target: Path) -> Format:
    """Tell by a file's name what it is to be.

    Raises:
        UsageError: it is the name of something else.
    """
    from backstory.ledger.core.errors import UsageError

    ending = target.suffix.lower()
    if ending == ".svg":
        return Format.svg
    if ending in ("", ".html", ".htm", ".xhtml"):
        return Format.html
    raise UsageError(f"{target} ends in {ending}, and a picture is .svg or .html: name it so, or say --format")


def _write(target: Path, text: str, *, force: bool) -> None:
    """Write a picture whole or not at all, for its owner's eyes only, and over nothing else than another picture.

    Raises:
        UsageError: there is a folder of that name, no folder to put it in, or a file that is no picture of ours.
    """
    from backstory.ledger.core.errors import UsageError

    path = target.resolve()
    if path.is_dir():
        raise UsageError(f"{target} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it, or write elsewhere")
    if path.exists() and not path.is_file():
        # A device or a pipe: what takes it decides what becomes of it.
        path.write_text(text, encoding="utf-8")
        return
    if path.exists() and not force and not _is_picture(path):
        raise UsageError(f"{target} is there already and is no picture of ours: choose another name, or add --force")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.touch(0o600, exist_ok=False)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _is_picture(path: Path) -> bool:
    from backstory.projections.graph.ink import SVG_BEGINS
    from backstory.projections.graph.page import PAGE_BEGINS

    with path.open("rb") as file:
        begins = file.read(1024)
    return not begins or begins.startswith((SVG_BEGINS.encode(), PAGE_BEGINS.encode()))


def _told(target: Path, chosen: Format, drawn: Graph | MessageFlow) -> Drawn:
    from backstory.cli.pages.answers import Drawn
    from backstory.projections.graph import MessageFlow

    if isinstance(drawn, MessageFlow):
        shown = {"turns": drawn.turns, "routes": len(drawn.routes)}
        return Drawn(str(target), chosen.value, shown, {"routes": drawn.left_out})
    kinds = [type(node).__struct_config__.tag for node in drawn.nodes]
    shown = {f"{kind}s": kinds.count(kind) for kind in ("thread", "update", "fact", "section")}
    return Drawn(str(target), chosen.value, shown, {"updates": drawn.left_out.updates, "facts": drawn.left_out.facts})


def _say(page: Page, drawn: Drawn) -> None:
    from backstory.cli.pages.labels import counted

    shown = ", ".join(counted(count, name.removesuffix("s")) for name, count in drawn.shown.items())
    page.line(("wrote ", "bold green"), f"{drawn.written}: {shown}")
    left = [counted(count, name.removesuffix("s")) for name, count in drawn.left_out.items() if count]
    if left:
        page.line((f"left out: {', '.join(left)}; a higher --limit shows more", "yellow"))
