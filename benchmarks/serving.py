"""What HTTP costs: an app, the document against a bare route, recording against the Python API, a minute of everything.

The server, the bare one and the load generator are processes of their own. Two of them that are compared answer in
turn, in short rounds, with the same generator; a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI
from starlette.testclient import TestClient

from backstory import Backstory
from backstory.http.app import create_app
from benchmarks.injecting import FACTS, remembering
from benchmarks.loading import Load, Loader, Served, loading, request
from benchmarks.mixing import Mixed, mixing
from benchmarks.rows import Row, in_turn, ms, times

__all__ = ["served", "serving"]

_CLIENTS = 16
_ROUNDS = 15
_READS = 100
_EXCHANGES = 60
_PER_THREAD = 20
_MINUTE = 60.0

_SETTINGS = {"BACKSTORY_MAX_FACTS": str(FACTS), "BACKSTORY_DEBOUNCE_SECONDS": "300"}


class _Url(msgspec.Struct):
    url: str


@contextmanager
def served(home: Path) -> Iterator[int]:
    """Serve a home in a process of its own, without a model; yields the port."""
    run = [sys.executable, "-m", "backstory.cli", "--home", str(home), "--json", "serve", "--port", "0"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")} | _SETTINGS
    with subprocess.Popen(run, stdout=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            port = urlsplit(msgspec.json.decode(process.stdout.readline(), type=_Url).url).port
            assert port is not None
            yield port
        finally:
            process.terminate()


@contextmanager
def _bare(body: Path) -> Iterator[int]:
    run = [sys.executable, "-m", "benchmarks.bare_server", str(body)]
    with subprocess.Popen(run, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def serving(scale: int = 1) -> Iterator[Row]:
    """Measure the server; `scale` divides the rounds and the minute."""
    rounds = max(2, _ROUNDS // scale)
    yield from _making(rounds)
    with loading() as loader:
        yield from _document(loader, rounds)
        yield from _recording(loader, rounds)
    yield from _mixed(max(2.0, _MINUTE / scale))


# The document.


def _making(rounds: int) -> Iterator[Row]:
    """Measure an app on an empty home, without a socket, in a process that has made one before."""
    with tempfile.TemporaryDirectory() as folder:
        homes = itertools.count()

        def app() -> FastAPI:
            return create_app(functools.partial(Backstory.open, Path(folder) / str(next(homes))), environ={})

        def make() -> None:
            app().state.home.close()

        def ask() -> None:
            with TestClient(app(), "http://127.0.0.1") as client:
                assert client.get("/v1/facts").is_success

        ask()
        made, asked = in_turn(make, ask, rounds=rounds, clock=time.process_time)
    yield Row("making an app of the server, in processor time", ms(made), "≤ 20 ms")
    yield Row("the same with its start, its first answer and its end", ms(asked))


def _document(loader: Loader, rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        home, body = Path(place) / "home", Path(place) / "document.json"
        remembering(home)
        with served(home) as port:
            target = "/v1/document?user=ada"
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{target}") as answer:
                body.write_bytes(answer.read())
                tag = answer.headers["ETag"]
            with _bare(body) as bare_port:
                ours = _reads(port, request("GET", target))
                unchanged = _reads(port, request("GET", target, if_none_match=tag))
                bare = _reads(bare_port, request("GET", "/document"))
                bare_unchanged = _reads(bare_port, request("GET", "/unchanged", if_none_match=tag))
                plans = ours, unchanged, bare, bare_unchanged
                taken = [_in_turn(loader, plan) for plan in itertools.islice(itertools.cycle(plans), 4 * rounds + 4)]
    # The first round is to get warm.
    full, same, plain, plain_same = ([served.seconds for served in taken[4 + i :: 4]] for i in range(4))
    cpu = statistics.median(served.cpu / served.seconds for served in taken[6::4])
    size = f"{ours.count * rounds:,} requests each, {_CLIENTS} connections"
    rates = ", ".join(f"{ours.count / statistics.median(each):,.0f}/s" for each in (full, same, plain, plain_same))
    yield Row(
        f"GET document, {FACTS} facts / a bare FastAPI route with the same bytes, rate", _ratio(plain, full), "≥ 0.5 ×"
    )
    yield Row("the same unchanged (304) / that bare route with the bytes, rate", _ratio(plain, same), "≥ 0.8 ×")
    yield Row("  unchanged / a bare route that answers 304, rate", _ratio(plain_same, same))
    yield Row(f"  document; unchanged; bare; bare 304 ({size}; generator's share of a core)", f"{rates} ({cpu:.2f})")


def _reads(port: int, wanted: bytes) -> Load:
    return Load(port, ((wanted,),) * _CLIENTS, _READS)


def _in_turn(loader: Loader, plan: Load) -> Served:
    found = loader(plan)
    assert set(found.statuses) in ({200}, {304}), found.statuses
    return found


def _ratio(base: Sequence[float], ours: Sequence[float]) -> str:
    """Spell how our rate compares to another, from the seconds of rounds that followed each other."""
    return times(statistics.median(other / own for other, own in zip(base, ours, strict=True)))


# Recording.


def _recording(loader: Loader, rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        there, here = Path(place) / "there", Path(place) / "here"
        ours: list[float] = []
        api: list[float] = []
        cpu: list[float] = []
        with served(there) as port, Backstory.open(here, max_facts=FACTS, debounce_seconds=300) as bs:
            for number in range(-1, rounds):
                said = [_said(client, number) for client in range(_CLIENTS)]
                plan = Load(port, tuple(tuple(_delivered(each)) for each in said))
                found = loader(plan)
                assert found.statuses == {200: plan.count}, found.statuses
                took = _in_threads([lambda each=each: _record(bs, each) for each in said])
                if number >= 0:
                    ours.append(found.seconds)
                    api.append(took)
                    cpu.append(found.cpu / found.seconds)
        with Backstory.open(there, background=False) as bs:
            turns = sum(bs.memory(f"user-{client}").status().turns for client in range(_CLIENTS))
        assert turns == 2 * plan.count * (rounds + 1), turns
    rates = f"{plan.count / statistics.median(ours):,.0f}/s, {plan.count / statistics.median(api):,.0f}/s"
    yield Row(
        f"POST record, durable, {_CLIENTS} clients / the Python API, {_CLIENTS} threads, one scope each, rate",
        _ratio(api, ours),
        "≥ 0.3 ×",
    )
    yield Row(
        f"  exchanges of two messages, {plan.count * rounds:,} each (generator's share of a core)",
        f"{rates} ({statistics.median(cpu):.2f})",
    )


class _Exchange(msgspec.Struct, frozen=True):
    """What one request of a user records."""

    user: str
    thread: str
    messages: list[dict[str, str]]


def _said(client: int, number: int) -> list[_Exchange]:
    exchanges = []
    for i in range(_EXCHANGES):
        case = f"{number}.{i}"
        messages = [
            {"role": "user", "content": f"How long does the train from Oslo to Bergen take, in case {case}?"},
            {"role": "assistant", "content": f"About seven hours. Bicycles need a reservation of their own ({case})."},
        ]
        exchanges.append(_Exchange(f"user-{client}", f"talk-{number}-{i // _PER_THREAD}", messages))
    return exchanges


def _delivered(exchanges: Sequence[_Exchange]) -> Iterator[bytes]:
    for each in exchanges:
        body = msgspec.json.encode({"thread": each.thread, "messages": each.messages})
        yield request("POST", f"/v1/record?user={each.user}", body)


def _record(bs: Backstory, exchanges: Sequence[_Exchange]) -> None:
    for each in exchanges:
        bs.memory(each.user).record(each.thread, each.messages)


def _in_threads(works: Sequence[Callable[[], None]]) -> float:
    """Return the seconds that these take, each in a thread."""
    threads = [threading.Thread(target=work) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


# Everything at once.


def _mixed(seconds: float) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        with served(home) as port:
            found: Mixed = mixing(home, port, clients=_CLIENTS, seconds=seconds)
    yield Row(
        f"{_CLIENTS} clients, {seconds:.0f} s of mixed reads and writes: errors, lost or doubled turns",
        f"{found.errors}, {found.lost + found.doubled}",
        "0, 0",
    )
    yield Row(
        f"  {found.requests:,} requests, {found.repeated:,} of them repeated; p50; p99; longest",
        "; ".join(f"{1e3 * part:.1f} ms" for part in (found.p50, found.p99, found.longest)),
    )
