"""Verb that draws memory as SVG or HTML: graph."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.page import write_raw
from backstory.cli.session import session_of

if TYPE_CHECKING:
    from backstory.cli.pages.answers import Drawn
    from backstory.cli.pages.page import Page
    from backstory.projections.graph import Graph, MessageFlow


class Format(StrEnum):
    """The file formats of a picture."""

    svg = "svg"
    html = "html"


def graph(
    ctx: typer.Context,
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File to write. Default: backstory-graph.html here; - is standard output."),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Default: the ending of the file's name, else html.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option(help="Only this conversation, and the facts that were learned from it.")
    ] = None,
    fact: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this fact, its sources and the facts that replaced it.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="SEQ|TIME", help="Only updates since then; a time with --messages.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, metavar="N", help="Maximum number of updates (newest first), or of message routes."
        ),
    ] = 200,
    messages: Annotated[
        bool, typer.Option("--messages", help="Draw the messages between senders and receivers instead.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite any file, not only a picture of memory.")] = False,
) -> None:
    """Draw memory as a graph of threads, updates and facts, including facts that were removed or replaced.

    With --json and without --out it prints the graph as data and writes no file.

    Example: backstory graph --fact fact_2_0 --out why.svg
    """
    from backstory.ledger.core.errors import UsageError

    session = session_of(ctx)
    if messages and fact is not None:
        raise UsageError("--messages and --fact exclude each other: leave one of them out")
    if session.as_json and out == "-":
        raise UsageError("--json and --out - both write to standard output: leave one of them out")
    name = "messages" if messages else "graph"
    target = Path(f"backstory-{name}.{(format_ or Format.html).value}" if out is None else out)
    with session.memory() as memory:
        drawn: Graph | MessageFlow = (
            memory.message_flow(thread=thread, since=since, limit=limit)
            if messages
            else memory.graph(thread=thread, fact=fact, since=since, limit=limit)
        )
    if session.as_json and out is None:
        session.answer(drawn, lambda *_: None)
        return
    chosen = format_ or _format_of(target)
    text = drawn.svg() if chosen is Format.svg else drawn.html()
    if out == "-":
        # A picture declares UTF-8, whatever the terminal uses.
        write_raw(text)
        return
    _write(target, text, force=force)
    session.answer(_summary(target, chosen, drawn), _lines)


def _format_of(target: Path) -> Format:
    """Return the format for a file name.

    Raises:
        UsageError: The name has another ending.
    """
    from backstory.ledger.core.errors import UsageError

    ending = target.suffix.lower()
    if ending == ".svg":
        return Format.svg
    if ending in ("", ".html", ".htm", ".xhtml"):
        return Format.html
    raise UsageError(f"the file name must end in .svg or .html, got {target}: rename it, or add --format")


def _write(target: Path, text: str, *, force: bool) -> None:
    """Write a picture atomically, with mode 0600; without `force` only over another picture of memory.

    Raises:
        UsageError: `target` is a folder, its folder does not exist, or it is another kind of file.
    """
    from backstory.ledger.core.errors import UsageError

    path = target.resolve()
    if path.is_dir():
        raise UsageError(f"{target} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: create it, or choose another one")
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced.
        path.write_text(text, encoding="utf-8")
        return
    if path.exists() and not force and not _is_picture(path):
        raise UsageError(f"{target} exists and is not a picture of memory: choose another name, or add --force")
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


def _summary(target: Path, chosen: Format, drawn: Graph | MessageFlow) -> Drawn:
    from backstory.cli.pages.answers import Drawn
    from backstory.projections.graph import MessageFlow

    if isinstance(drawn, MessageFlow):
        shown = {"turns": drawn.turns, "routes": len(drawn.routes)}
        return Drawn(str(target), chosen.value, shown, {"routes": drawn.left_out})
    kinds = [type(node).__struct_config__.tag for node in drawn.nodes]
    shown = {f"{kind}s": kinds.count(kind) for kind in ("thread", "update", "fact", "section")}
    return Drawn(str(target), chosen.value, shown, {"updates": drawn.left_out.updates, "facts": drawn.left_out.facts})


def _lines(page: Page, drawn: Drawn) -> None:
    from backstory.cli.pages.labels import counted

    shown = ", ".join(counted(count, name.removesuffix("s")) for name, count in drawn.shown.items())
    page.line(("wrote ", "bold green"), f"{drawn.written}: {shown}")
    left = [counted(count, name.removesuffix("s")) for name, count in drawn.left_out.items() if count]
    if left:
        page.line((f"left out: {', '.join(left)}; a higher --limit shows more", "yellow"))
