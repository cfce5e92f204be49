"""Doubles by the style of a host: 250 hosts of ten styles, held to the table in docs/reference/messages.md."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from one_thread import Conversation, says

from backstory.ledger.messages import Kept

STYLES = (
    "sends all, with ids",
    "sends all",
    "a window",
    "the last message only",
    "drops the beginning",
    "sums up the beginning",
    "gives the last answer again",
    "gives the first answer again",
    "edits a question",
    "goes back to an earlier question",
)
_HOSTS = 25
_PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "messages.md").read_text()


class Host:
    """A host of one style, what it holds of its conversation, and what it gave up."""

    def __init__(self, style: str, seed: int) -> None:
        self.style = style
        self.chance = random.Random(f"{style} {seed}")  # noqa: S311 it is to be repeated
        self.conversation = Conversation()
        self.state: list[Kept] = []
        self.gone: Counter[tuple[str, str]] = Counter()
        self._count = 0
        self._cut = 0
        self._window = self.chance.randint(2, 6)
        self._edits: dict[str, Callable[[], None]] = {
            "sends all, with ids": self.answer_first_again,
            "gives the last answer again": lambda: self.replace(-1, None, self.says("assistant")),
            "gives the first answer again": self.answer_first_again,
            "edits a question": self.edit,
            "goes back to an earlier question": self.go_back,
        }

    def answer_first_again(self) -> None:
        self.replace(1, 2, self.says("assistant"))

    def edit(self) -> None:
        place = self.chance.choice(range(0, len(self.state), 2))
        old = self.state[place].content
        new = f"{old}, please" if self.chance.random() < 0.5 else self.says("user").content
        self.replace(place, None, self.says("user", new), self.says("assistant"))

    def go_back(self) -> None:
        self.replace(self.chance.choice(range(2, len(self.state), 2)), None, *self.exchange())

    def replace(self, first: int, end: int | None, *new: Kept) -> None:
        self.gone.update((one.role, one.content) for one in self.state[first:end])
        self.state[first:end] = new

    def exchange(self) -> tuple[Kept, Kept]:
        return self.says("user"), self.says("assistant")

    def says(self, role: str, content: str | None = None) -> Kept:
        self._count += 1
        trivial = {"user": ("yes", "ok", "Hello", "No."), "assistant": ("sure", "Hi", "Noted.", "I see.")}[role]
        telling = {"user": "Please tell me about matter", "assistant": "This is known of matter"}[role]
        if content is None:
            content = self.chance.choice(trivial) if self.chance.random() < 0.25 else f"{telling} {self._count}"
        return says(content, f"m{self._count}" if "ids" in self.style else None, role)

    def step(self) -> None:
        edit = self._edits.get(self.style)
        if edit is not None and len(self.state) >= 4 and self.chance.random() < 0.35:
            edit()
        else:
            self.state += self.exchange()
        if self.style == "the last message only":
            self.conversation.send(self.state[-2])
            self.conversation.send(self.state[-1])
        else:
            self.conversation.send(*self.shown())

    def shown(self) -> list[Kept]:
        if self.style == "a window":
            return self.state[-self._window :]
        if self.style.endswith("the beginning") and len(self.state) - self._cut > 8:
            self._cut = len(self.state) - 4
        summary = [says(f"Summary of {self._cut} messages")] if self._cut and self.style.startswith("sums") else []
        return summary + self.state[self._cut :]

    def counts(self) -> tuple[int, int, int]:
        """How many turns stand twice, how many that were given up stand, and how many messages are lost."""
        stand = Counter((turn.role, turn.content) for turn in self.conversation.thread.standing())
        stand = Counter({said: count for said, count in stand.items() if not said[1].startswith("Summary")})
        said = Counter((one.role, one.content) for one in self.state)
        return (stand - said - self.gone).total(), ((stand - said) & self.gone).total(), (said - stand).total()


@pytest.mark.parametrize("style", STYLES)
def test_the_doubles_of_each_style_are_those_of_the_page(style: str) -> None:
    messages = doubled = kept = 0
    for seed in range(_HOSTS):
        host = Host(style, seed)
        for _ in range(host.chance.randint(4, 10)):
            host.step()
        doubles, given_up, lost = host.counts()
        assert lost == 0
        messages, doubled, kept = messages + len(host.state), doubled + doubles, kept + given_up
    row = re.search(rf"^\| {style} \| (\d+) \| (\d+) \| (\d+) \|$", _PAGE, re.MULTILINE)
    assert row is not None
    assert tuple(map(int, row.groups())) == (messages, doubled, kept)
