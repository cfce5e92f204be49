"""The parent's side of `children.py`: start them, hear what they acknowledge, kill them, let none outlive its test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes import PATIENCE

PROGRAM = Path(__file__).with_name("children.py")

LONGEST = 3 * PATIENCE
"""Seconds after which a test gives up on a child that has much to do; never waited for when all is well."""


class Child:
    """A running child; `said` is everything it has told so far."""

    def __init__(self, *words: object) -> None:
        self.said: list[list[object]] = []
        self._heard = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._ended = False
        self._ear = threading.Thread(target=self._listen)
        self._ear.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self.said.append(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self._ended = True
            self._heard.notify_all()

    def order(self, line: str = "go") -> None:
        """Tell it to go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self, word: str, count: int = 1, *, patience: float = LONGEST) -> list[object]:
        """Wait until it has said a word so many times; returns the last of them."""
        with self._heard:
            found = self._heard.wait_for(lambda: self._ended or len(self.told(word)) >= count, patience)
            assert found, f"it did not say {word!r} in time, but {self.said[-3:]}"
            assert len(self.told(word)) >= count, f"it ended without saying {word!r}: {self.said[-3:]}"
            return self.told(word)[count - 1]

    def heard(self, word: str, *, patience: float) -> bool:
        """Whether it says a word within some seconds."""
        with self._heard:
            return self._heard.wait_for(lambda: bool(self.told(word)), patience)

    def told(self, *words: str) -> list[list[object]]:
        """What it has said that begins with one of these words."""
        return [said for said in self.said if said[0] in words]

    def kill(self) -> None:
        """Kill -9; when this returns, all that it had acknowledged is in `said`."""
        self._process.kill()
        self._process.wait(PATIENCE)
        self._ear.join(PATIENCE)

    def end(self) -> None:
        """Give no more orders, and wait until it has ended well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LONGEST) == 0, self.said[-3:]
        self._ear.join(PATIENCE)
        assert self.told("broken") == []

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


@contextmanager
def child(*words: object) -> Iterator[Child]:
    """A child that does not outlive the block."""
    running = Child(*words)
    try:
        yield running
    finally:
        running.close()
