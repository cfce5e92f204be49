"""The picture of who sent what to whom, as SVG: senders, what they sent and how often, receivers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backstory.projections.graph.commands import command
from backstory.projections.graph.ink import Ink, new_picture, written
from backstory.projections.graph.layout import FONT, Column
from backstory.projections.graph.lines import ROUTE_TIP, tips
from backstory.projections.graph.model import MessageFlowData, Route
from backstory.projections.graph.words import cut, line, moment

_SENDERS = Column("from", 24, 190)
_SENT = Column("what", 380, 280)
_RECEIVERS = Column("to", 826, 190)
_MARGIN = 24.0
_WIDTH = _RECEIVERS.right + _MARGIN
_TOP = 118.0
_ROW, _BOX = 34.0, 26.0
_THICKEST = 9.0
_EVERYBODY = "everybody"


class _Spot(msgspec.Struct, frozen=True):
    """Where a box stands, by its middle, and its id."""

    column: Column
    y: float
    id: str


def svg_of(flow: MessageFlowData) -> str:
    """Draw routes: one row each, by sender."""
    senders = list(dict.fromkeys(route.sender for route in flow.routes))
    receivers = list(dict.fromkeys(route.receiver for route in flow.routes))
    routes = sorted(flow.routes, key=lambda r: (senders.index(r.sender), receivers.index(r.receiver), -r.turns))
    rows = {number: _TOP + _ROW * (number + 0.5) for number in range(len(routes))}
    froms = _placed([(route.sender, rows[number]) for number, route in enumerate(routes)])
    tos = _placed([(route.receiver, rows[number]) for number, route in enumerate(routes)])
    bottom = max([_TOP + _ROW, *rows.values(), *froms.values(), *tos.values()]) + _ROW
    told = f"{flow.turns:,} {'turn' if flow.turns == 1 else 'turns'}"
    told += f" of thread {flow.thread}" if flow.thread is not None else ""
    told += f" since {flow.since}" if flow.since is not None else ""
    picture = new_picture(_WIDTH, bottom, "Who sent what to whom", told)
    tips(picture, ["route"])
    _clips(picture, bottom)
    picture.says("text", "Who sent what to whom", class_="heading", x=_MARGIN, y=38)
    picture.says("text", cut(line(told), (_WIDTH - 2 * _MARGIN) / FONT), class_="dim", x=_MARGIN, y=58)
    if flow.left_out:
        notice = f"{flow.left_out:,} routes with fewer turns are left out: a higher limit shows more."
        picture.says("text", notice, class_="notice", x=_MARGIN, y=76)
    for column in (_SENDERS, _SENT, _RECEIVERS):
        picture.says("text", column.name, class_="column", x=column.x, y=_TOP - 14)
    verb = ("threads",) if flow.thread is None else ("turns", flow.thread)
    more = command(flow.user, flow.agent, *verb)
    most = max((route.turns for route in routes), default=1)
    lines = picture.inside("g", class_="edges")
    for number, route in enumerate(routes):
        ends = (f"s{senders.index(route.sender)}", f"m{number}", f"r{receivers.index(route.receiver)}")
        thick = 1 + (_THICKEST - 1) * route.turns / most
        _line(lines, (_SENDERS.right, froms[route.sender]), (_SENT.x, rows[number]), thick, ends[:2])
        _line(
            lines,
            (_SENT.right, rows[number]),
            (_RECEIVERS.x - ROUTE_TIP, tos[route.receiver]),
            thick,
            ends[1:],
            tip=True,
        )
    for number, name in enumerate(senders):
        mine = [route for route in routes if route.sender == name]
        _participant(picture, _Spot(_SENDERS, froms[name], f"s{number}"), mine, more)
    for number, route in enumerate(routes):
        _route(picture, _Spot(_SENT, rows[number], f"m{number}"), route, more)
    for number, receiver in enumerate(receivers):
        mine = [route for route in routes if route.receiver == receiver]
        _participant(picture, _Spot(_RECEIVERS, tos[receiver], f"r{number}"), mine, more)
    return written(picture)


def _placed(ends: list[tuple[str | None, float]]) -> Mapping[str | None, float]:
    """Put each name at the middle of its routes, or below the one before."""
    rows: dict[str | None, list[float]] = {}
    for name, y in ends:
        rows.setdefault(name, []).append(y)
    placed: dict[str | None, float] = {}
    lowest = 0.0
    for name, ys in sorted(rows.items(), key=lambda item: sum(item[1]) / len(item[1])):
        placed[name] = lowest = max(sum(ys) / len(ys), lowest + _ROW)
    return placed


def _clips(picture: Ink, bottom: float) -> None:
    definitions = picture.inside("defs")
    for column in (_SENDERS, _SENT, _RECEIVERS):
        clip = definitions.inside("clipPath", id=f"column-{column.name}")
        clip.inside("rect", x=column.x, y=0, width=column.width - 4, height=bottom)


def _line(
    ink: Ink,
    start: tuple[float, float],
    end: tuple[float, float],
    thick: float,
    ends: tuple[str, ...],
    *,
    tip: bool = False,
) -> None:
    (x, y), (to_x, to_y) = start, end
    middle = (x + to_x) / 2
    ink.inside(
        "path",
        class_="edge route",
        stroke_width=thick,
        d=f"M{x:.1f} {y:.1f} C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}",
        data_from=ends[0],
        data_to=ends[1],
        data_kind="sent",
        **({"marker_end": "url(#tip-route)"} if tip else {}),
    )


def _box(picture: Ink, spot: _Spot, title: str) -> Ink:
    kind = "sent" if spot.column is _SENT else "thread"
    group = picture.inside("g", id=spot.id, class_=f"node {kind}", tabindex="0", role="graphics-symbol img")
    group.says("title", title)
    group.inside("rect", class_="box", x=spot.column.x, y=spot.y - _BOX / 2, width=spot.column.width, height=_BOX, rx=5)
    return group.inside("g", clip_path=f"url(#column-{spot.column.name})")


def _participant(picture: Ink, spot: _Spot, mine: list[Route], more: str) -> None:
    sends = spot.column is _SENDERS
    name = mine[0].sender if sends else mine[0].receiver
    count = sum(route.turns for route in mine)
    told = line(_EVERYBODY if name is None else name)
    verb = "sent" if sends else "was sent"
    routes = f"{len(mine):,} {'route' if len(mine) == 1 else 'routes'}"
    inner = _box(picture, spot, f"{told}\n{verb} {count:,} on {routes}\n{more}")
    words = cut(told, (spot.column.width - 64) / FONT)
    inner.says("text", words, class_="words", x=spot.column.x + 12, y=spot.y + 4)
    inner.says("text", f"{count:,}", class_="small end", x=spot.column.right - 10, y=spot.y + 4)


def _route(picture: Ink, spot: _Spot, route: Route, more: str) -> None:
    cause = line(route.cause_by or "")
    # A class is named with its modules; its own name tells most.
    short = cause.rpartition(".")[2] or cause
    ends = f"{line(route.sender)} to {line(route.receiver or _EVERYBODY)}"
    count = f"{route.turns:,} {'turn' if route.turns == 1 else 'turns'}"
    times = f"{count}, {moment(route.first)} to {moment(route.last)}"
    inner = _box(picture, spot, f"{ends}{f', because of {cause}' if cause else ''}\n{times}\n{more}")
    x, y = spot.column.x + 12, spot.y + 4
    inner.says("text", f"{route.turns:,} ×" if cause else count, class_="small", x=x, y=y)
    inner.says("text", cut(short, (spot.column.width - 80) / FONT), class_="words", x=x + 52, y=y)
