"""Verb that draws memory on a page, or writes it for other programs: graph."""

from __future__ import annotations

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Page, json_text, write_raw
from backstory.cli.session import Session
from backstory.ledger.core.errors import UsageError

if TYPE_CHECKING:
    from backstory.cli.pages.answers import Drawn
    from backstory.projections.graph import Graph, MessageFlow


class GraphFormat(StrEnum):
    """The file formats of a graph: a page, Graphviz, Mermaid, data."""

    html = "html"
    dot = "dot"
    mermaid = "mermaid"
    json = "json"


_ENDINGS = {
    "": GraphFormat.html,
    ".html": GraphFormat.html,
    ".htm": GraphFormat.html,
    ".dot": GraphFormat.dot,
    ".gv": GraphFormat.dot,
    ".mmd": GraphFormat.mermaid,
    ".json": GraphFormat.json,
}
_ENDING = {GraphFormat.html: "html", GraphFormat.dot: "dot", GraphFormat.mermaid: "mmd", GraphFormat.json: "json"}


def graph(
    session: Session,
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File to write. Default: backstory-graph.html here; - is standard output."),
    ] = None,
    format_: Annotated[
        GraphFormat | None, typer.Option("--format", help="Default: the ending of the file's name, else html.")
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
        bool, typer.Option("--messages", help="Show the messages between senders and receivers instead.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite any file, not only a graph of memory.")] = False,
) -> None:
    """Draw memory as a graph of threads, updates and facts, including facts that were removed or replaced.

    With --json and without --out it prints the graph as data and writes no file.

    Example: backstory graph --fact fact_2_0 --out why.dot
    """
    if messages and fact is not None:
        raise UsageError("--messages and --fact exclude each other: leave one of them out")
    if session.as_json and out == "-":
        raise UsageError("--json and --out - both write to standard output: leave one of them out")
    name = "messages" if messages else "graph"
    target = Path(f"backstory-{name}.{_ENDING[format_ or GraphFormat.html]}" if out is None else out)
    chosen = format_ or _format_of(target)
    with session.memory() as memory:
        drawn: Graph | MessageFlow = (
            memory.message_flow(thread=thread, since=since, limit=limit)
            if messages
            else memory.graph(thread=thread, fact=fact, since=since, limit=limit)
        )
    if session.as_json and out is None:
        session.answer(drawn, lambda *_: None)
        return
    text = _text(drawn, chosen)
    if out == "-":
        # These formats are UTF-8, whatever the terminal uses.
        write_raw(text)
        return
    _write(target, text, force=force)
    session.answer(_summary(target, chosen, drawn), _lines)


def _format_of(target: Path) -> GraphFormat:
    """Return the format for a file name.

    Raises:
        UsageError: The name has another ending.
    """
    ending = target.suffix.lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    known = "the file name must end in .html, .dot, .gv, .mmd or .json"
    if ending == ".svg":
        raise UsageError(f"{known}, got {target}: for an SVG, write a .dot file and convert it with dot -Tsvg")
    raise UsageError(f"{known}, got {target}: rename it, or add --format")


def _text(drawn: Graph | MessageFlow, chosen: GraphFormat) -> str:
    match chosen:
        case GraphFormat.html:
            from backstory.page import graph_page

            return graph_page(drawn)
        case GraphFormat.dot:
            return drawn.dot()
        case GraphFormat.mermaid:
            return drawn.mermaid()
        case GraphFormat.json:
            return json_text(drawn) + "\n"


def _write(target: Path, text: str, *, force: bool) -> None:
    """Write a graph atomically, with mode 0600; without `force` only over another graph of memory.

    Raises:
        UsageError: `target` is a folder, its folder does not exist, or it is another kind of file.
    """
    from backstory.ledger.disk.files import put_in_place

    path = target.resolve()
    if path.is_dir():
        raise UsageError(f"{target} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: create it, or choose another one")
    if path.exists() and not path.is_file():
        # A device or a pipe cannot be replaced.
        path.write_text(text, encoding="utf-8")
        return
    if path.exists() and not force and not _is_graph(path):
        raise UsageError(f"{target} exists and is not a graph of memory: choose another name, or add --force")
    put_in_place(path, text.encode())


def _is_graph(path: Path) -> bool:
    """Whether a file is empty or a graph of memory in any of the formats."""
    import msgspec

    from backstory.page import PAGE_BEGINS
    from backstory.projections.graph import DOT_BEGINS, MERMAID_BEGINS, Graph, MessageFlow

    with path.open("rb") as file:
        begins = file.read(1024)
        if not begins or begins.startswith((PAGE_BEGINS.encode(), DOT_BEGINS.encode(), MERMAID_BEGINS.encode())):
            return True
        if not begins.startswith(b"{"):
            return False
        begins += file.read()
    for kind in (Graph, MessageFlow):
        with contextlib.suppress(msgspec.MsgspecError):
            msgspec.json.decode(begins, type=kind)
            return True
    return False


def _summary(target: Path, chosen: GraphFormat, drawn: Graph | MessageFlow) -> Drawn:
    from backstory.cli.pages.answers import Drawn
    from backstory.projections.graph import MessageFlow

    if isinstance(drawn, MessageFlow):
        shown = {"turns": drawn.turns, "routes": len(drawn.routes)}
        return Drawn(str(target), chosen.value, shown, {"routes": drawn.left_out})
    kinds = [type(node).__struct_config__.tag for node in drawn.nodes]
    shown = {f"{kind}s": kinds.count(kind) for kind in ("thread", "update", "fact", "section")}
    return Drawn(str(target), chosen.value, shown, {"updates": drawn.left_out.updates, "facts": drawn.left_out.facts})


def _lines(page: Page, drawn: Drawn) -> None:
    shown = ", ".join(counted(count, name.removesuffix("s")) for name, count in drawn.shown.items())
    page.line(("wrote ", "bold green"), f"{drawn.written}: {shown}")
    left = [counted(count, name.removesuffix("s")) for name, count in drawn.left_out.items() if count]
    if left:
        page.line((f"left out: {', '.join(left)}; a higher --limit shows more", "yellow"))
