"""Nothing said is lost: random hosts, with erasures, retention, withdrawals and restarts in between.

A host talks to an agent and delivers what it knows in its own way. Whatever it does, every message it sent stands
afterwards, but what was erased or taken back, or what the host itself replaced. Where each text says something of its
own, a host that tells everything again and again doubles nothing, either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from one_thread import Conversation
from sizes import PATIENT, examples, sized

from backstory.ledger.core.moments import parse_moment, spell_moment
from backstory.ledger.messages import Kept
from backstory.ledger.threads.delivery.told import Told

Style = Literal[
    "pairs",
    "singles",
    "whole",
    "window",
    "summarised",
    "question first",
    "proxy",
    "proxy, stripped",
    "proxy, another answer",
    "proxy, cut",
]
STYLES: tuple[Style, ...] = get_args(Style)
TELLS_AGAIN: tuple[Style, ...] = ("whole", "window", "question first", *STYLES[-4:])
QUESTIONS = ("yes", "ok", "Hello", "What time is it now?", "Is there anything new today?", "k", "No.")
ANSWERS = ("sure", "Hi", "Noted.", "It is noon.", "Is there anything else I can do?", "I see.")

EXAMPLES = settings(
    max_examples=sized(examples(), 20_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass
class Host:
    """What a host knows of its conversation, and how it delivers it."""

    style: Style
    ids: Literal["none", "questions", "all"]
    window: int = 4
    said: list[Kept] = field(default_factory=list)
    count: int = 0
    summaries: int = 0

    def message(self, role: str, content: str) -> Kept:
        self.count += 1
        named = self.ids == "all" or (self.ids == "questions" and role == "user")
        return Kept(role, content, f"m{self.count}" if named else None)

    def deliveries(self, question: Kept | None, answer: Kept | None) -> Iterator[list[Kept]]:
        """Say a question and its answer, and yield what is delivered of it."""
        if question is not None:
            self.said.append(question)
            if self.style in ("singles", "question first"):
                yield [question] if self.style == "singles" else self.shown()
        if answer is not None:
            self.said.append(answer)
        new = [message for message in (question, answer) if message is not None]
        if self.style == "singles":
            yield [message for message in new if message is answer]
        else:
            yield new if self.style == "pairs" else self.shown()

    @property
    def is_heard(self) -> bool:
        """Whether a proxy hears it."""
        return self.style.startswith("proxy")

    def rewritten(self, said: Sequence[Kept]) -> list[Kept]:
        """What a model is told, with the question at its end as it is."""
        *history, question = said
        if self.style == "proxy, stripped":
            history = [replace(one, content=f"\n {one.content.strip('.')}") for one in history]
        elif self.style == "proxy, another answer":
            history = [one if one.role == "user" else replace(one, content="Something else") for one in history]
        elif self.style == "proxy, cut":
            history = history[-2 * self.window :]
        return [replace(one, id=None) for one in (*history, question)]

    def shown(self) -> list[Kept]:
        if self.style == "window":
            return self.said[-self.window :]
        if self.style == "summarised" and len(self.said) > self.window:
            number = (len(self.said) - self.window) // self.window
            return [Kept("user", f"Summary {number} of what was said before"), *self.said[-self.window :]]
        return list(self.said)


class World:
    """A host, and the thread that its deliveries lead to.

    `gone` is what was erased or taken back, `replaced` what the host gave up for something else and did not say again.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.conversation = Conversation()
        self.sent: list[tuple[str, str]] = []
        self.gone: set[tuple[str, str]] = set()
        self.replaced: set[tuple[str, str]] = set()

    def deliver(self, messages: Sequence[Kept]) -> None:
        self.conversation.send(*messages)
        self.note(messages)

    def note(self, messages: Sequence[Kept]) -> None:
        self.sent += [(message.role, message.content) for message in messages]
        self.replaced.difference_update((message.role, message.content) for message in messages)

    def hear(self, question: Kept | None, answer: Kept | None) -> None:
        """Have a proxy hear a question, and its answer a while later: of the rest it knows that it was said."""
        self.host.said += [] if question is None else [question]
        asked = self.host.rewritten(self.host.said) if self.host.said else []
        if question is not None:
            self.conversation.send(*asked, mode=Told())
        self.pass_time()
        if answer is not None:
            self.host.said.append(answer)
            self.conversation.send(*asked, replace(answer, id=None), mode=Told(answered=True))
        self.note([message for message in (question, answer) if message is not None])

    def tell_again(self) -> None:
        """Deliver once more; a proxy tries again what it has delivered last."""
        if self.host.is_heard:
            self.hear_again()
        else:
            self.deliver(self.host.shown())

    def hear_again(self) -> None:
        said = list(self.host.said)
        answers = [said.pop()] if said and said[-1].role == "assistant" else []
        if said and said[-1].role == "user":
            asked = self.host.rewritten(said)
            self.conversation.send(*asked, mode=Told())
            for answer in answers:
                self.conversation.send(*asked, replace(answer, id=None), mode=Told(answered=True))

    def pass_time(self) -> None:
        """Let a quarter of an hour pass: a first question is not asked again by then."""
        moment = parse_moment(self.conversation.at)
        assert moment is not None
        self.conversation.at = spell_moment(moment + timedelta(minutes=15))

    def talk(self, question: str | None, answer: str | None) -> None:
        first = None if question is None else self.host.message("user", question)
        if self.host.is_heard:
            self.pass_time()
            self.hear(first, None if answer is None else self.host.message("assistant", answer))
            return
        for messages in self.host.deliveries(first, None if answer is None else self.host.message("assistant", answer)):
            self.deliver(messages)

    def regenerate(self, answer: str, back: int = 0) -> None:
        """Replace an answer in the host's own state, the last or one before, and deliver."""
        answers = [n for n, message in enumerate(self.host.said) if message.role == "assistant"]
        if back < len(answers):
            n = answers[-1 - back]
            gone = self.host.said[n]
            self.replaced.add((gone.role, gone.content))
            if n == len(self.host.said) - 1:
                self.host.said.pop()
                self.talk(None, answer)
            else:
                self.host.said[n] = self.host.message("assistant", answer)
                self.tell_again()

    def rephrase(self) -> None:
        """Replace the last question, and what followed it."""
        places = [n for n, message in enumerate(self.host.said) if message.role == "user"]
        if places:
            gone = self.host.said[places[-1] :]
            del self.host.said[places[-1] :]
            self.replaced |= {(message.role, message.content) for message in gone}
            self.talk(f"{gone[0].content}, please", "As you wish, of course.")

    def erase(self, place: int, what: str) -> None:
        turns = self.conversation.thread.turns
        if turns and (turn := turns[place % len(turns)]) is not None:
            self.gone.add((turn.role, turn.content))
            self.conversation.erase(turn.n, what=what)

    def withdraw(self, place: int) -> None:
        turns = self.conversation.thread.standing()
        if turns:
            turn = turns[place % len(turns)]
            self.gone.add((turn.role, turn.content))
            self.conversation.withdraw(turn.n)

    @property
    def standing(self) -> list[tuple[str, str]]:
        return [(turn.role, turn.content) for turn in self.conversation.thread.standing()]

    def missing(self) -> list[tuple[str, str]]:
        may_be_gone = {*self.standing, *self.gone, *self.replaced}
        return [said for said in self.sent if said not in may_be_gone]


place = st.integers(0, 60)
ugly_step = st.one_of(
    st.tuples(st.just("talk"), st.sampled_from(QUESTIONS), st.sampled_from(ANSWERS)),
    st.tuples(st.just("tell"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("tell"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("question"), st.sampled_from(QUESTIONS)),
    st.tuples(st.just("regenerate"), st.sampled_from(ANSWERS), st.integers(0, 5)),
    st.tuples(st.just("rephrase")),
    st.tuples(st.just("again")),
    st.tuples(st.just("erase"), place, st.sampled_from(["turn", "expired"])),
    st.tuples(st.just("withdraw"), place),
    st.tuples(st.just("style"), st.sampled_from(STYLES)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("lose the key")),
)
hosts = st.builds(
    Host, st.sampled_from(STYLES), st.sampled_from(["none", "none", "questions", "all"]), st.integers(2, 7)
)


def run(host: Host, steps: Sequence[tuple[str | int, ...]]) -> World:
    world = World(host)
    for step in steps:
        match step:
            case "talk", str(question), str(answer):
                world.talk(question, answer)
            case "tell", int(a), int(b):
                world.talk(f"I want to tell you about number {a}", f"So number {b} it is, I understand")
            case "question", str(question):
                world.talk(question, None)
            case "regenerate", str(answer), int(n):
                world.regenerate(answer, n)
            case "rephrase", *_:
                world.rephrase()
            case "again", *_:
                world.tell_again()
            case "erase", int(n), str(what):
                world.erase(n, what)
            case "withdraw", int(n):
                world.withdraw(n)
            case "style", str(style):
                host.style = style  # type: ignore[assignment]
            case "restart", *_:
                # The host begins anew and knows nothing; the thread goes on.
                host.said = []
            case _:
                world.conversation.seal = None
        assert world.missing() == []
    return world


@PATIENT
@EXAMPLES
@given(hosts, st.lists(ugly_step, max_size=25))
@example(
    Host("pairs", "none"),
    [("talk", "Hello", "Hi"), ("tell", 1, 1), ("tell", 2, 2), ("talk", "Hello", "I see.")],
)
@example(
    Host("whole", "none"),
    [("talk", "Hello", "Hi"), ("tell", 1, 1), ("restart",), ("talk", "Hello", "Hi"), ("tell", 2, 2)],
)
def test_every_message_sent_stands_whatever_the_host_does(host: Host, steps: list[tuple[str | int, ...]]) -> None:
    run(host, steps)


calm_step = st.one_of(
    st.just("talk"),
    st.just("talk"),
    st.just("trivial"),
    st.just("again"),
    st.tuples(st.just("erase"), place, st.sampled_from(["turn", "expired"])),
    st.tuples(st.just("withdraw"), place),
)


@PATIENT
@EXAMPLES
@given(st.sampled_from(TELLS_AGAIN), st.sampled_from(["none", "questions", "all"]), st.lists(calm_step, max_size=25))
def test_a_host_that_tells_everything_again_doubles_nothing(
    style: Style, ids: Literal["none", "questions", "all"], steps: list[str | tuple[str, int, str] | tuple[str, int]]
) -> None:
    """Each exchange has something of its own to say, but for now and then an "ok"."""
    world = World(Host(style, ids))
    gone: set[int] = set()
    exchanges = 0
    for step in ["talk", "talk", *steps]:
        match step:
            case "talk":
                exchanges += 1
                world.talk(f"This is my question number {exchanges}", f"And this is its answer, {exchanges}")
            case "trivial" if style not in ("window", "proxy, cut", "proxy, another answer"):
                # What is cut may show nothing else, and other answers tell no "ok" from the one before: both are kept.
                world.talk("ok", "sure")
            case "again":
                world.tell_again()
            case "erase", int(n), str(what):
                turns = world.conversation.thread.turns
                gone.add(n % len(turns))
                world.erase(n, what)
            case "withdraw", int(n):
                standing = world.conversation.thread.standing()
                if standing:
                    gone.add(standing[n % len(standing)].n - 1)
                    world.withdraw(n)
        expected = [(m.role, m.content) for n, m in enumerate(world.host.said) if n not in gone]
        assert world.standing == expected


@PATIENT
@EXAMPLES
@given(st.sampled_from(["none", "all"]), st.lists(st.integers(0, 9), max_size=15))
def test_a_host_that_gives_earlier_answers_again_doubles_nothing(ids: Literal["none", "all"], steps: list[int]) -> None:
    """It tells everything each time: each of its messages stands once, in its order where it gives them no ids.

    Ids do not tell an answer that is given again from one that another agent gave, so both stand.
    """
    world = World(Host("whole", ids))
    for number, step in enumerate([0, 0, *steps]):
        if step < 5:
            world.talk(f"This is my question number {number}", f"And this is its answer, {number}")
        else:
            world.regenerate(f"Or rather this, the answer {number}", step - 5)
        said = [(one.role, one.content) for one in world.host.said]
        if ids == "none":
            assert world.standing == said
        else:
            assert Counter(world.standing) == Counter([*said, *world.replaced])


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.sampled_from(("yes", "ok", "Hello", "No.")), st.sampled_from(("sure", "Hi", "Noted."))),
        max_size=15,
    )
)
def test_a_host_that_sends_pairs_has_each_of_them_stand(pairs: list[tuple[str, str]]) -> None:
    world = World(Host("pairs", "none"))
    for question, answer in pairs:
        world.talk(question, answer)
    assert [content for _, content in world.standing] == [text for pair in pairs for text in pair]


@PATIENT
@EXAMPLES
@given(hosts, st.lists(ugly_step, max_size=15), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_what_is_sent_twice_in_a_row_is_recorded_once(
    host: Host, steps: list[tuple[str | int, ...]], told: list[int]
) -> None:
    """Whatever came before: where one text of the delivery says something that was never said.

    Without the key an erased turn is known by its length alone, so what is as long may be recorded again.
    """
    world = run(host, [step for step in steps if step[0] != "lose the key"])
    again = [Kept("user", f"I want to tell you about number {n}") for n in told]
    again.insert(len(told) // 2, Kept("assistant", "This was never said in all that came before"))
    world.deliver(again)
    before = world.standing
    world.deliver(again)
    assert world.standing == before


def test_the_property_sees_a_rule_that_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the old rule did: whatever begins as the thread does takes the standing away from the rest."""
    from backstory.ledger.threads.delivery import resend as resent
    from backstory.ledger.threads.delivery import turn_dedup as arrival

    def careless(thread: object, messages: Sequence[Kept], seal: object = None, **_: object) -> resent.ResendAlignment:
        return resent.align_whole(thread, messages, seal)  # type: ignore[arg-type]

    monkeypatch.setattr(arrival, "align_delivery", careless)
    with pytest.raises(AssertionError):
        run(Host("pairs", "none"), [("talk", "Hello", "Hi"), ("tell", 1, 1), ("talk", "Hello", "I see.")])
