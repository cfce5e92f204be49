"""Page writer: plain lines for a pipe or a file, colours and wrapping for a terminal.

Every text passes `clean`, so that recorded words cannot send control sequences to the terminal.
"""

from __future__ import annotations

import re
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Span: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""

_REPLACED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
_DROPPED = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_VISIBLE = _REPLACED | _DROPPED | {0x09: "    ", 0x0A: "\n", 0x2028: "\n", 0x2029: "\n"}
_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f]")
_WIDEST = 40
_GAP = "  "


def clean(text: str) -> str:
    """Remove control characters and marks of text direction; keep line breaks."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str) -> str:
    """Clean a text and join its lines."""
    return _joined(text).strip()


def write_message(text: str) -> None:
    """Write a warning or an error to standard error, in one line."""
    sys.stderr.write(f"backstory: {one_line(text)}\n")


def show_traceback(error: BaseException) -> None:
    """Write the traceback of an error to standard error."""
    sys.stderr.write(clean("".join(traceback.format_exception(error))))


def write_raw(text: str) -> None:
    """Write exact text for other programs to standard output, always in UTF-8."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def write_json(value: object, *, indented: bool | None = None) -> None:
    """Write a JSON value to standard output.

    Args:
        value: What to encode.
        indented: Whether to indent it. Default: on a terminal only.
    """
    sys.stdout.write(json_text(value, indented=sys.stdout.isatty() if indented is None else indented) + "\n")


def json_text(value: object, *, indented: bool = False) -> str:
    """Return a value as JSON without characters that a terminal may interpret, which JSON allows unescaped."""
    import msgspec

    encoded = msgspec.json.encode(value)
    if indented:
        encoded = msgspec.json.format(encoded, indent=2)
    return _UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())


class Column(NamedTuple):
    """A column of a table: heading, style, and whether cells wrap (`folds`) or align `right`.

    A terminal narrower than `spare` characters does not show it.
    """

    name: str
    style: str = ""
    folds: bool = False
    right: bool = False
    spare: int = 0


def page() -> Page:
    """Return a page on standard output."""
    if not sys.stdout.isatty():
        return PlainPage()
    from rich.console import Console

    return RichPage(Console(file=sys.stdout, highlight=False, emoji=False, markup=False))


class PlainPage:
    """Page for a pipe or a file: one record per line, uncut and without colours."""

    def line(self, *spans: Span, indent: int = 0) -> None:
        """Write one line; an empty one without spans."""
        _print(" " * indent + "".join(_joined(text) for text, _ in map(_pair, spans)))

    def quote(self, text: str, *, indent: int = 0) -> None:
        """Write a quoted text with all of its lines."""
        for line in clean(text).split("\n"):
            _print(f"{' ' * indent}| {line}")

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, indent: int = 0, none: str = ""
    ) -> None:
        """Write a table; if there are no rows the sentence `none`, if it is given."""
        body = [[one_line(cell) for cell in row] for row in rows]
        if not body:
            if none:
                self.line((none, "dim"))
            return
        lines = [[column.name.upper() for column in columns], *body]
        widths = [min(_WIDEST, max(map(_width, cells))) for cells in zip(*lines, strict=True)]
        for line in lines:
            cells = (
                _padded(cell, width, right=column.right)
                for cell, width, column in zip(line, widths, columns, strict=True)
            )
            _print(" " * indent + _GAP.join(cells))


class RichPage:
    """Page for a terminal, written with rich."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, *spans: Span, indent: int = 0) -> None:
        """See `PlainPage.line`."""
        from rich.padding import Padding
        from rich.text import Text

        text = Text.assemble(*((_joined(text), style) for text, style in map(_pair, spans)))
        self._console.print(Padding(text, (0, 0, 0, indent)) if indent else text)

    def quote(self, text: str, *, indent: int = 0) -> None:
        """See `PlainPage.quote`."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        bar = Table.grid(padding=(0, 1))
        bar.add_column(style="dim")
        bar.add_column(style="italic", overflow="fold")
        for line in clean(text).split("\n"):
            bar.add_row("▏", Text(line))
        self._console.print(Padding(bar, (0, 0, 0, indent)))

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, indent: int = 0, none: str = ""
    ) -> None:
        """See `PlainPage.table`."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        shown = [index for index, column in enumerate(columns) if column.spare <= self._console.width]
        for column in (columns[index] for index in shown):
            table.add_column(
                column.name,
                style=column.style,
                justify="right" if column.right else "left",
                no_wrap=not column.folds,
                overflow="fold" if column.folds else "ellipsis",
            )
        for row in rows:
            table.add_row(*(Text(one_line(row[index])) for index in shown))
        if table.row_count:
            self._console.print(Padding(table, (0, 0, 0, indent)))
            hidden = [column.name for index, column in enumerate(columns) if index not in shown]
            if hidden:
                self.line((f"A wider terminal shows more: {', '.join(hidden)}.", "dim"), indent=indent)
        elif none:
            self.line((none, "dim"))


Page: TypeAlias = PlainPage | RichPage
"""Writer of lines, quotes and tables."""


def _print(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")


def _joined(text: str) -> str:
    """Clean a text and join its lines; keep leading and trailing spaces."""
    return " ".join(clean(text).split("\n"))


def _pair(span: Span) -> tuple[str, str]:
    return (span, "") if isinstance(span, str) else span


def _width(text: str) -> int:
    """Count terminal cells: East Asian wide characters take two, combining characters none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _padded(text: str, width: int, *, right: bool) -> str:
    padding = " " * max(0, width - _width(text))
    return padding + text if right else text + padding
