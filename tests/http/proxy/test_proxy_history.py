"""Histories that clients tell and rewrite: each question and answer is recorded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FakeClock, open_home
from served import Served, served
from upstreams import Request, StandIn, completion

Message = dict[str, object]

COUNT = 20
QUESTIONS = [f"What is there to know about number {n}, please?" for n in range(COUNT)]


def answer_of(n: int) -> str:
    return f"\n **Number {n}** has {n + 3} sides.\n\nIt is named after its finder. "


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _plain(questions: list[str], answers: list[str]) -> list[Message]:
    pairs = zip(questions, answers, strict=True)
    return [message for question, answer in pairs for message in (user(question), assistant(answer))]


Style = Callable[[list[str], list[str]], list[Message]]
"""Tells the history of a conversation: its questions, and the answers to them."""

STYLES: dict[str, Style] = {
    "stripped": lambda q, a: _plain([f" {text}\n" for text in q], [text.strip() for text in a]),
    "tagged": lambda q, a: _plain(q, [f"<final_answer>{text}</final_answer>" for text in a]),
    "of another model": lambda q, a: _plain(q, [f"As I said: {len(text)}" for text in a]),
    "shortened": lambda q, a: _plain([f"{text[:-12]}…" for text in q], [f"{text[:9]} [truncated]" for text in a]),
    "cut": lambda q, a: _plain(q, a)[-6:],
    "summarised": lambda q, a: (
        [user(f"Summary of {len(q) - 3} questions"), assistant("Ok."), *_plain(q[-3:], a[-3:])]
        if len(q) > 3
        else _plain(q, a)
    ),
    "without answers": lambda q, _: [user(text) for text in q],
    "with flattened calls": lambda q, a: [
        part
        for question, answer in zip(q, a, strict=True)
        for part in (
            user(question),
            assistant("Calling tools: [look_up]"),
            user("Observation: it is on the shelf"),
            assistant(answer),
        )
    ],
}


def converse(proxy: Served, upstream: StandIn, style: Style, count: int = COUNT) -> set[str]:
    """Ask one question after the other, and return the threads that the answers name."""
    threads = set()
    for n in range(count):
        upstream.then(completion(answer_of(n)))
        history = style(QUESTIONS[:n], [answer_of(k) for k in range(n)])
        response = proxy.post(json={"model": "m", "user": "ada", "messages": [*history, user(QUESTIONS[n])]})
        assert "x-backstory-unrecorded" not in response.headers
        threads.add(response.headers["x-backstory-thread"])
    return threads


@pytest.mark.parametrize("style", STYLES)
def test_twenty_questions_are_one_thread_of_forty_turns_however_their_history_is_rewritten(proxy, upstream, style):
    assert converse(proxy, upstream, STYLES[style]) == {"thread-1"}
    said = [text for n in range(COUNT) for text in (QUESTIONS[n], answer_of(n))]
    assert proxy.turns() == {"thread-1": said}


def test_context_around_a_question_is_taken_away_again_by_its_client(proxy, upstream):
    """As of a client that puts documents into the newest question alone."""
    for n in range(5):
        upstream.then(completion(answer_of(n)))
        asked = f"Use this page:\n{'word ' * 50}\n\nQuestion: {QUESTIONS[n]}"
        history = _plain(QUESTIONS[:n], [answer_of(k) for k in range(n)])
        proxy.post(json={"model": "m", "user": "ada", "messages": [*history, user(asked)]})
    [(name, turns)] = proxy.turns().items()
    assert (name, len(turns)) == ("thread-1", 10)


def test_a_rewritten_history_is_found_after_a_restart(tmp_path: Path, upstream: StandIn):
    for n in range(4):
        upstream.then(completion(answer_of(n)))
        with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url, first=n + 1) as proxy:
            history = STYLES["stripped"](QUESTIONS[:n], [answer_of(k) for k in range(n)])
            proxy.post(json={"model": "m", "user": "ada", "messages": [*history, user(QUESTIONS[n])]})
            assert [*proxy.turns()] == ["thread-1"]
            assert len(proxy.turns()["thread-1"]) == 2 * (n + 1)


# A history that began elsewhere.

BEFORE = ["I live in Bergen now", "A fine town it is.", "My sister lives in Lisbon", "That is far away."]


def test_of_a_conversation_that_began_elsewhere_the_newest_exchange_is_recorded_and_the_response_says_so(proxy):
    response = proxy.chat(*BEFORE, "Where do I live?")
    assert response.headers["x-backstory-unrecorded"] == "4"
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}
    response = proxy.chat(*BEFORE, "Where do I live?", "You live in Bergen.", "And my sister?")
    assert "x-backstory-unrecorded" not in response.headers
    assert [*proxy.turns()] == ["thread-1"]
    assert len(proxy.turns()["thread-1"]) == 4


def test_a_client_may_have_a_history_adopted_once(proxy):
    said = [*BEFORE, "Where do I live?"]
    for question in ("And my sister?", "And I?", None):
        response = proxy.chat(*said, X_Backstory_History="all")
        assert "x-backstory-unrecorded" not in response.headers
        said += ["You live in Bergen.", *([question] if question else [])]
        assert proxy.turns() == {"thread-1": said[: -1 if question else None]}


def test_a_setting_adopts_histories_and_a_header_goes_before_it(tmp_path: Path, upstream: StandIn):
    with open_home(tmp_path / "home", proxy_history="all") as bs, served(bs, upstream.base_url) as proxy:
        proxy.chat(*BEFORE, "Where do I live?")
        assert proxy.turns()["thread-1"] == [*BEFORE, "Where do I live?", "You live in Bergen."]
        proxy.chat("Hello there", "Good day.", "Who am I?", X_Backstory_History="newest")
        assert proxy.turns()["thread-2"] == ["Who am I?", "You live in Bergen."]


def test_a_history_that_is_adopted_brings_nothing_back_that_was_forgotten_in_another_thread(tmp_path: Path, upstream):
    with open_home(tmp_path / "home", proxy_history="all") as bs, served(bs, upstream.base_url) as proxy:
        proxy.chat(*BEFORE, "Where do I live?")
        bs.memory("ada").forget(matching="sister")
        # The client edits its last question, which begins another thread.
        proxy.chat(*BEFORE, "Which trains go to Oslo?")
        assert proxy.turns()["thread-2"] == [*BEFORE[:2], BEFORE[3], "Which trains go to Oslo?", "You live in Bergen."]
        assert "sister" not in (tmp_path / "home/users/ada/transcript.jsonl").read_text()


def test_examples_for_the_model_are_no_speech(proxy, upstream):
    upstream.then(completion("positive"))
    examples = ["The soup was cold", "negative", "What a lovely evening", "positive"]
    for text in ("The train was on time", "I would come again"):
        proxy.chat(*examples, f"Review: {text}")
    assert [*proxy.turns().values()] == [
        ["Review: The train was on time", "positive"],
        ["Review: I would come again", "positive"],
    ]


# A first question again.


def test_a_first_question_that_is_asked_again_has_its_answer_replaced(proxy, upstream):
    upstream.then(completion("In Oslo."), completion("In Bergen."))
    for _ in range(2):
        proxy.chat("Where does my sister live?")
    assert proxy.turns() == {"thread-1": ["Where does my sister live?", "In Bergen."]}
    [gone] = proxy.home.memory("ada").superseded("thread-1")
    assert (gone.content, gone.proven) == ("In Oslo.", True)


def test_a_first_question_is_not_asked_again_the_day_after(tmp_path: Path, upstream: StandIn):
    clock = FakeClock()
    with open_home(tmp_path / "home", clock=clock) as bs, served(bs, upstream.base_url) as proxy:
        proxy.chat("What is on my schedule today?")
        clock.advance(11 * 60)
        proxy.chat("What is on my schedule today?")
        assert len(proxy.turns()) == 2


@pytest.mark.parametrize("said", ["Hi", "Good day"])
def test_a_greeting_begins_a_thread_each_time(proxy, said):
    proxy.chat(said)
    proxy.chat(said)
    assert len(proxy.turns()) == 2


# Hints.

HINTS: list[tuple[dict[str, str], dict[str, object]]] = [
    ({"thread-id": "{}"}, {}),
    ({"session-id": "{}"}, {}),
    ({"x-session-id": "{}"}, {}),
    ({}, {"metadata": {"session_id": "{}"}}),
    ({}, {"prompt_cache_key": "{}"}),
]


def filled(value: object, name: str) -> object:
    if isinstance(value, dict):
        return {key: filled(one, name) for key, one in value.items()}
    return name if value == "{}" else value


@pytest.mark.parametrize(("headers", "fields"), HINTS)
def test_a_hint_decides_between_conversations_that_are_alike(tmp_path: Path, upstream: StandIn, headers, fields):
    """Also after a restart."""

    def ask(proxy: Served, name: str, *said: str) -> str:
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
        body = {"model": "m", "user": "ada", "messages": messages, **filled(fields, name)}  # type: ignore[dict-item]
        sent = {key: str(filled(value, name)) for key, value in headers.items()}
        return proxy.post(json=body, headers=sent).headers["x-backstory-thread"]

    upstream.then(completion("Hello!"))
    with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url) as proxy:
        begun = {name: ask(proxy, name, "Hi") for name in ("a", "b", "c")}
        assert len({*begun.values()}) == 3
    with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url, first=10) as proxy:
        for name in ("b", "a", "c"):
            assert ask(proxy, name, "Hi", "Hello!", "What now?") == begun[name]
        assert ask(proxy, "a", "Good evening", "Hello!", "And now?") == "thread-10"


def test_a_first_question_with_the_same_hint_is_asked_again(proxy, upstream):
    upstream.then(completion("Hello!"), completion("Hi, too!"))
    for _ in range(2):
        proxy.chat("Hi", session_id="a")
    proxy.chat("Hi", session_id="b")
    assert proxy.turns() == {"thread-1": ["Hi", "Hi, too!"], "thread-2": ["Hi", "Hi, too!"]}


def test_a_hint_is_noted_with_the_question(proxy):
    proxy.chat("Where do I live?", session_id="a")
    turns = proxy.home.memory("ada").transcript("thread-1")
    assert [turn.metadata.get("hint") for turn in turns] == ["session-id=a", None]


# Many threads.


def test_a_conversation_goes_on_beside_hundreds_of_others(proxy, upstream):
    """Only the newest threads are looked at, and those that this process has seen."""

    def answer(request: Request) -> object:
        return completion(f"So you say: {request.body['messages'][-1]['content']}")

    upstream.then(answer)
    proxy.chat("I live in Bergen, by the harbour")
    memory = proxy.home.memory("ada")
    for n in range(120):
        memory.record(f"other-{n}", [user(f"Question of another kind, {n}"), assistant("Yes.")])
    response = proxy.chat("I live in Bergen, by the harbour", "Rewritten.", "Where do I live?")
    assert response.headers["x-backstory-thread"] == "thread-1"
