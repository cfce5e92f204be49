"""The plan as tables in Markdown: the day, workers, engines, and what a year costs with another debounce."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.day import Day, simulate
from benchmarks.planning.engines import ENGINES, SERVER_CORES, Load, carried

__all__ = ["plan"]

_OTHER_SIZES = (0.8, 1.0)
_DEBOUNCES = (30.0, 120.0, 300.0)
_YEAR = 365
_MONTHS = 12
_GB = 1e9
_CORE_SECONDS_OF_AN_UPDATE = 0.03
"""Of Python: reading, the prompt, deciding, appending. 7,000 turns with 1,646 updates took 30 core seconds."""
_CORE_SECONDS_OF_AN_EXCHANGE = 0.0026
"""One server process and its clients recorded 755 exchanges a second over HTTP on two cores."""
_MOST_OF_A_CORE = 0.5
_PROCESSES_OF_A_SERVER = 40
"""Workers with 100 MB of RAM each, in half of 8 GB."""


class _Costs(msgspec.Struct, frozen=True):
    """Dollars of a year."""

    model: float
    disk: float
    servers: float


def plan(given: Assumptions) -> str:
    """Simulate, and return the tables."""
    unlimited = simulate(given)
    processes = workers_for(given, unlimited)
    day = simulate(given, processes * given.threads)
    load = Load.of(given, day, servers_for(day, processes)[0])
    return "\n\n".join(
        "\n".join(table)
        for table in (
            _table(("a day", ""), _of_the_day(given, day, load)),
            _table(
                ("worker processes", "busy at the peak", "most that wait", "wait p50", "p99", "longest"),
                _of_workers(given, unlimited, processes),
            ),
            _table(("", *(engine.name for engine in ENGINES)), _of_engines(load, processes)),
            _table(
                ("a year, thousands of dollars", *(engine.name for engine in ENGINES)),
                _of_costs(given, day, load, processes),
            ),
            _table(
                ("debounce_seconds", "updates a day", "worker processes", "model, thousands of dollars a year"),
                _of_debounces(given),
            ),
        )
    )


def workers_for(given: Assumptions, unlimited: Day) -> int:
    """Return how many worker processes are planned: for what is busy at the peak, and as fast as a process may call."""
    busy = max(unlimited.busy_peak / given.threads, unlimited.updates_peak * given.pause_seconds)
    return max(1, math.ceil(busy * (1 + given.spare)))


def _of_the_day(given: Assumptions, day: Day, load: Load) -> Iterator[Sequence[str]]:
    yield (
        "users; active on a day; conversations",
        (f"{given.users:,}; {given.users * given.active:,.0f}; {day.conversations:,}"),
    )
    yield "exchanges recorded", f"{day.exchanges:,}"
    yield "updates learned; turns of one", f"{day.updates:,}; {day.turns_learned / day.updates:.1f}"
    yield "exchanges a second: mean, busiest ten minutes", f"{day.exchanges_mean:,.0f}, {day.exchanges_peak:,.0f}"
    yield "updates a second: mean, busiest ten minutes", f"{day.updates_mean:,.0f}, {day.updates_peak:,.0f}"
    yield "commits a second in the busiest ten minutes", f"{load.commits_peak:,.0f}"
    yield "leases held at the same time then", f"{load.leases_peak:,.0f}"
    yield "lines; bytes of them, a year", f"{load.lines_a_year:,.0f}; {_gb(load.bytes_a_year)}"


def _of_workers(given: Assumptions, unlimited: Day, processes: int) -> Iterator[Sequence[str]]:
    needed = workers_for(given.model_copy(update={"spare": 0}), unlimited)
    for count in sorted({*(max(1, math.ceil(needed * part)) for part in _OTHER_SIZES), processes}):
        day = simulate(given, count * given.threads)
        yield (
            f"{count:,}",
            f"{day.busy_peak / (count * given.threads):.0%}",
            f"{day.waiting_most:,}",
            *(f"{wait:.1f} s" for wait in (day.wait_p50, day.wait_p99, day.wait_most)),
        )


def _of_engines(load: Load, processes: int) -> Iterator[Sequence[str]]:
    needs = [carried(engine, load, processes) for engine in ENGINES]
    yield "streams (files, rows of `streams`, subjects)", *(f"{load.streams:,}" for _ in needs)
    yield (
        "groups of servers; servers",
        *(f"{need.groups}; {need.groups * engine.servers}" for engine, need in zip(ENGINES, needs, strict=True)),
    )
    yield "of the writes that one group carried here, at the peak", *(f"{need.used:.0%}" for need in needs)
    yield "RAM for indexes, a server", *(_gb(need.ram) if need.ram else "–" for need in needs)
    yield "disk of the first year, all copies", *(_gb(need.disk) for need in needs)
    yield "partitions; shards", *(f"{need.parts:,}" if need.parts > 1 else "–" for need in needs)
    yield "connections to it at the peak", *(f"{need.connections:,}" if need.connections else "–" for need in needs)
    yield (
        "questions what has changed, a second; of what one group answered here",
        *(f"{need.looks:,.0f}; {need.looks_used:.0%}" if need.looks else "–" for need in needs),
    )


def costs(given: Assumptions, day: Day) -> float:
    """Return what the model costs in a year, in dollars."""
    prompts = day.updates * given.prompt_tokens + day.turns_learned * given.prompt_tokens_per_turn
    replies = day.updates * given.reply_tokens + day.turns_learned * given.reply_tokens_per_turn
    return _YEAR * (prompts * given.price_prompt + replies * given.price_reply) / 1e6


def servers_for(day: Day, processes: int) -> tuple[int, int]:
    """Return how many servers record, and how many learn."""
    of_a_server = SERVER_CORES * _MOST_OF_A_CORE
    recording = math.ceil(day.exchanges_peak * _CORE_SECONDS_OF_AN_EXCHANGE / of_a_server)
    learning = max(day.updates_peak * _CORE_SECONDS_OF_AN_UPDATE / of_a_server, processes / _PROCESSES_OF_A_SERVER)
    return recording, math.ceil(learning)


def _of_costs(given: Assumptions, day: Day, load: Load, processes: int) -> Iterator[Sequence[str]]:
    recording, learning = servers_for(day, processes)
    model = costs(given, day)
    found = []
    for engine in ENGINES:
        need = carried(engine, load, processes)
        servers = recording + learning + need.groups * engine.servers
        # The disk fills in the course of the year.
        disk = need.disk / 2 / _GB * given.price_disk * _MONTHS
        found.append((engine, need, disk, servers))
    yield f"model: {day.updates * _YEAR:,.0f} updates", *(_thousands(model) for _ in found)
    yield "disk, which fills during the year", *(_thousands(disk) for _, _, disk, _ in found)
    yield (
        f"servers: {recording} that record, {learning} with workers, and the engine's",
        *(_thousands(servers * given.price_server * _MONTHS) for _, _, _, servers in found),
    )


def _of_debounces(given: Assumptions) -> Iterator[Sequence[str]]:
    for seconds in sorted({*_DEBOUNCES, given.debounce_seconds}):
        other = given.model_copy(update={"debounce_seconds": seconds})
        day = simulate(other)
        yield f"{seconds:g}", f"{day.updates:,}", f"{workers_for(other, day):,}", _thousands(costs(other, day))


def _table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _gb(count: float) -> str:
    return f"{count / _GB:,.0f} GB" if count >= 10 * _GB else f"{count / _GB:.1f} GB"


def _thousands(dollars: float) -> str:
    return f"{dollars / 1e3:,.0f}" if dollars >= 1e4 else f"{dollars / 1e3:.1f}"
