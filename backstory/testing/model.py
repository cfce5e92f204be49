"""Model of an engine: streams in a dictionary, and a hypothesis machine that compares an engine with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from backstory.ledger.core.commit import EMPTY, head_of, inspect
from backstory.ledger.core.errors import WrongExpectedVersionError
from backstory.ledger.engines.port import EventStore
from backstory.testing.lines import erase, offsets, sealed, turn

__all__ = ["compare_with_model"]

_SCOPES = ("ada", "ada-2", "al/agents/b", "al")
_STREAMS = tuple(f"{scope}/{kind}" for scope in _SCOPES for kind in ("ledger", "transcript"))
_STEPS = 25

streams = st.sampled_from(_STREAMS)
stores = st.integers(0, 1)
"""Which of two stores does something: what one does, the other sees."""


class _Machine(RuleBasedStateMachine):
    """Does the same to two stores of an engine and to the model; after each step both say the same."""

    opened: ClassVar[tuple[EventStore, EventStore]]
    numbers: ClassVar[itertools.count[int]]

    @initialize()
    def begin(self) -> None:
        """Begin in a folder of its own, so that examples share an engine."""
        self.below = f"users/run-{next(self.numbers)}"
        self.lines: dict[str, list[bytes]] = {}
        self.keys: dict[str, bytes] = {}

    def _name(self, stream: str) -> str:
        return f"{self.below}/{stream}"

    @rule(stream=streams, store=stores, count=st.integers(1, 3), text=st.text(max_size=30), off=st.integers(-2, 2))
    def append(self, stream: str, store: int, count: int, text: str, off: int) -> None:
        """Append lines on the right version, or try to on a wrong one."""
        standing = self.lines.get(stream, [])
        head = head_of(standing[-1]) if standing else EMPTY
        new: list[bytes] = []
        for _ in range(count):
            line = sealed(turn(text.encode("utf-8", "replace").decode()), after=head)
            new.append(line)
            head = head_of(line)
        expected = len(standing) + off
        if off == 0:
            self.opened[store].append(self._name(stream), new, expected)
            self.lines[stream] = [*standing, *new]
            return
        try:
            self.opened[store].append(self._name(stream), new, max(0, expected))
        except WrongExpectedVersionError as error:
            assert error.actual == len(standing)  # noqa: PT017 the number is part of it
        else:
            assert expected < 0
            assert standing == []
            self.lines[stream] = new

    @rule(stream=streams, store=stores, data=st.data())
    def redact(self, stream: str, store: int, data: st.DataObject) -> None:
        """Erase events of some lines."""
        standing = self.lines.get(stream, [])
        whole = [seq for seq, line in enumerate(standing, 1) if not inspect(line).erased]
        if not whole:
            return
        chosen = data.draw(st.sets(st.sampled_from(whole), min_size=1, max_size=3))
        stubs = {seq: erase(standing[seq - 1], 0) for seq in sorted(chosen)}
        with self.opened[store].locked(self._name(stream)):
            self.opened[store].redact(self._name(stream), stubs)
        self.lines[stream] = [stubs.get(seq, line) for seq, line in enumerate(standing, 1)]

    @rule(scope=st.sampled_from(("ada", "al", "al/agents")), store=stores)
    def remove(self, scope: str, store: int) -> None:
        """Remove a folder of streams."""
        within = f"{scope}/"
        gone = [stream for stream in self.lines if stream.startswith(within)]
        firsts = [head_of(self.lines[stream][0]).hash for stream in gone]
        done = self.opened[store].remove(f"{self.below}/{scope}")
        assert done or not gone
        assert all(self.opened[1 - store].is_removed(first) for first in firsts)
        self.lines = {stream: lines for stream, lines in self.lines.items() if stream not in gone}
        self.keys = {stream: key for stream, key in self.keys.items() if not stream.startswith(within)}

    @rule(stream=streams, store=stores, create=st.booleans())
    def key(self, stream: str, store: int, create: bool) -> None:
        """Ask for the secret of a stream, or make it."""
        found = self.opened[store].key(self._name(stream), create=create)
        if create and stream not in self.keys:
            assert found is not None
            self.keys[stream] = found
        assert found == self.keys.get(stream)

    @rule(stream=streams, store=stores)
    def destroy_key(self, stream: str, store: int) -> None:
        """Destroy the secret of a stream."""
        self.opened[store].set_key(self._name(stream), None)
        self.keys.pop(stream, None)

    @rule(stream=streams, store=stores, data=st.data())
    def read(self, stream: str, store: int, data: st.DataObject) -> None:
        """Read a part of a stream, also from an offset."""
        standing = self.lines.get(stream, [])
        after = data.draw(st.integers(0, len(standing)))
        byte = data.draw(st.sampled_from([None, offsets(standing)[after]]))
        records = list(self.opened[store].read(self._name(stream), after, byte=byte))
        assert [record.line for record in records] == standing[after:]
        assert [record.byte for record in records] == offsets(standing)[after:-1]

    @rule(store=stores)
    def close(self, store: int) -> None:
        """Close a store, which can be used again."""
        self.opened[store].close()

    @invariant()
    def says_what_the_model_says(self) -> None:
        """Compare heads, sizes and names."""
        if not hasattr(self, "lines"):
            return
        for store in self.opened:
            for stream in _STREAMS:
                standing = self.lines.get(stream, [])
                head = head_of(standing[-1]) if standing else EMPTY
                name = self._name(stream)
                assert store.head(name) == store.durable_head(name) == head
                assert store.state(name).size == offsets(standing)[-1]
                assert store.state(name).edition != "" or not standing
            for prefix in ("", "a", "al/", "ada/led"):
                wanted = sorted(self._name(stream) for stream in self.lines if stream.startswith(prefix))
                assert list(store.streams(f"{self.below}/{prefix}")) == wanted
            assert set(store.folders(self.below)) >= {stream.partition("/")[0] for stream in self.lines}


def compare_with_model(open_store: Callable[[], EventStore], *, examples: int) -> None:
    """Do the same to an engine and to a model, in any order, and compare.

    Args:
        open_store: Opens a store; two are used at the same time.
        examples: How many sequences of steps are tried.

    Raises:
        AssertionError: The engine does something else than the model; hypothesis shows the shortest sequence.
    """

    class Machine(_Machine):
        opened = (open_store(), open_store())
        numbers = itertools.count()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples, stateful_step_count=_STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
