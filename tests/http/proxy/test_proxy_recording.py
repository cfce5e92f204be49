"""What the proxy records: question and answer once, in the thread that the conversation continues."""

from __future__ import annotations

import threading
from pathlib import Path

import openai
import pytest
from fakes import open_home
from served import PATIENCE, Served, served
from upstreams import (
    Answer,
    StandIn,
    chat_stream,
    completion,
    delta,
    document,
    event,
    events,
    failure,
    response,
    response_stream,
)

from backstory.checks import kept_of
from backstory.http.proxy.openai.requests import read_request
from backstory.http.proxy.thread_names import ThreadNames
from backstory.ledger.core.scope import Scope
from backstory.ledger.text.scaffolding import load_scaffolding


def metadata(proxy: Served, thread: str = "thread-1") -> dict[str, object]:
    """The metadata of the last turn of a thread of ada's, but for what its answer was given."""
    noted = proxy.home.memory("ada").transcript(thread)[-1].metadata
    return {name: value for name, value in noted.items() if name != "context"}


# Question and answer.


@pytest.mark.parametrize("stream", [False, True])
def test_question_and_answer_are_durable_when_the_client_has_the_answer(proxy, upstream, stream):
    upstream.then(chat_stream("You live ", "in Bergen.") if stream else completion("You live in Bergen."))
    proxy.chat("Where do I live?", stream=stream)
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}
    assert metadata(proxy) == {}


def test_the_end_of_a_stream_waits_for_the_record(proxy, upstream):
    """A client of the protocol stops at `[DONE]`, before the end of the response."""
    last = threading.Event()
    waited = []
    upstream.then(chat_stream("You live ", "in Bergen.", hold=lambda n: n < 5 or waited.append(last.wait(PATIENCE))))
    seen = b""
    body = {"user": "ada", "stream": True, "messages": [{"role": "user", "content": "Where do I live?"}]}
    with proxy.client.stream("POST", proxy.url + "/chat/completions", json=body) as answer:
        for chunk in answer.iter_raw():
            seen += chunk
            if b"[DONE]" in seen:
                assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}
                last.set()
    assert waited == [True]
    assert seen == b"".join(upstream._script[0].parts)


@pytest.mark.parametrize("sizes", [1, 7, 1_000_000])
def test_a_stream_passes_byte_for_byte_however_it_is_cut(proxy, upstream, sizes):
    whole = b"".join(chat_stream("Grüße ", "aus Bergen 😀", "\r\n\r\n.").parts).replace(b"\n\n", b"\r\n\r\n", 2)
    upstream.then(events(b": comment\n\n", *(whole[n : n + sizes] for n in range(0, len(whole), sizes))))
    assert proxy.chat("Where do I live?", stream=True).content == b": comment\n\n" + whole
    assert proxy.turns()["thread-1"][1] == "Grüße aus Bergen 😀\r\n\r\n."


def test_words_come_as_the_upstream_says_them(proxy, upstream):
    go_on = threading.Event()
    upstream.then(chat_stream("Bergen", "!", hold=lambda n: n != 2 or go_on.wait(PATIENCE)))
    body = {"user": "ada", "stream": True, "messages": [{"role": "user", "content": "Where do I live?"}]}
    with proxy.client.stream("POST", proxy.url + "/chat/completions", json=body) as answer:
        seen = b""
        for chunk in answer.iter_raw():
            seen += chunk
            if b"Bergen" in seen:
                go_on.set()
    assert go_on.is_set()
    assert seen.endswith(b"[DONE]\n\n")


def test_of_several_choices_the_first_is_recorded(proxy, upstream):
    upstream.then(
        events(
            delta(content="two", index=1),
            delta(content="one"),
            delta(finish_reason="stop"),
            delta(1, "stop"),
            event(b"[DONE]"),
        )
    )
    proxy.chat("Name a number for me", stream=True)
    assert proxy.turns()["thread-1"] == ["Name a number for me", "one"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_recorded(proxy, upstream, stream):
    streamed = events(delta(refusal="I can"), delta(refusal="not."), delta(finish_reason="stop"), event(b"[DONE]"))
    upstream.then(streamed if stream else completion(None, refusal="I cannot."))
    proxy.chat("Do the impossible now", stream=stream)
    assert proxy.turns()["thread-1"] == ["Do the impossible now", "I cannot."]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_answer_is_passed_on_and_read(proxy, upstream, encoding):
    import gzip
    import zlib

    plain = b"".join(chat_stream("You live ", "in Bergen.").parts)
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": encoding}
    upstream.then(Answer((packed[:20], packed[20:]), headers=headers))
    assert proxy.chat("Where do I live?", stream=True).content == plain
    assert proxy.turns()["thread-1"] == ["Where do I live?", "You live in Bergen."]


def test_an_answer_too_long_to_keep_is_passed_on_whole_and_marked(proxy, upstream, monkeypatch):
    monkeypatch.setattr("backstory.http.proxy.answers.MOST_BYTES", 1_000)
    upstream.then(chat_stream("x" * 600, "y" * 600))
    assert proxy.chat("Say very much to me", stream=True).content.count(b"y") >= 600
    assert proxy.turns()["thread-1"][1] == "x" * 600
    assert metadata(proxy) == {"cut": True}


# Tools.


def test_a_run_with_tools_is_one_question_and_one_answer(proxy, upstream):
    call = {"id": "call_1", "type": "function", "function": {"name": "where", "arguments": "{}"}}
    upstream.then(events(delta(tool_calls=[{"index": 0, **call}]), delta(finish_reason="tool_calls"), event(b"[DONE]")))
    asked = [{"role": "user", "content": "Where do I live?"}]
    proxy.post(json={"user": "ada", "stream": True, "messages": asked})
    assert proxy.turns() == {"thread-1": ["Where do I live?"]}
    upstream.then(completion("You live in Bergen."))
    result = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    result.append({"role": "tool", "tool_call_id": "call_1", "content": "Bergen"})
    proxy.post(json={"user": "ada", "messages": asked + result})
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You live in Bergen."]}


# Threads.


def test_a_conversation_is_one_thread(proxy, upstream):
    upstream.then(*(completion(f"Answer {n}.") for n in (1, 2, 3)))
    said: list[str] = []
    for n in (1, 2, 3):
        said.append(f"Question number {n}?")
        assert proxy.chat(*said).headers["x-backstory-thread"] == "thread-1"
        said.append(f"Answer {n}.")
    assert proxy.turns() == {"thread-1": said}


def test_conversations_that_begin_alike_stay_apart(proxy, upstream):
    upstream.then(completion("Hello!"))
    proxy.chat("hi")
    proxy.chat("hi")
    assert proxy.turns() == {"thread-1": ["hi", "Hello!"], "thread-2": ["hi", "Hello!"]}
    upstream.then(completion("Sunny."))
    proxy.chat("hi", "Hello!", "How is the weather?")
    upstream.then(completion("Done."))
    proxy.chat("hi", "Hello!", "Fix my bug, please")
    first, second = sorted(proxy.turns().values())
    assert first == ["hi", "Hello!", "Fix my bug, please", "Done."]
    assert second == ["hi", "Hello!", "How is the weather?", "Sunny."]
    # A third one, after both have gone on otherwise.
    proxy.chat("hi", "Hello!", "Something else")
    assert proxy.turns()["thread-3"] == ["Something else", "Done."]


def test_two_that_ask_the_same_at_the_same_time_stay_apart(proxy, upstream):
    both = threading.Barrier(2, timeout=PATIENCE)

    def together(_: object) -> Answer:
        both.wait()
        return completion("Hello!")

    upstream.then(together)
    one = threading.Thread(target=proxy.chat, args=("hi",))
    one.start()
    # The client of httpx is safe for threads.
    proxy.chat("hi")
    one.join()
    assert proxy.turns() == {"thread-1": ["hi", "Hello!"], "thread-2": ["hi", "Hello!"]}


def test_the_thread_is_found_after_a_restart(tmp_path: Path, upstream: StandIn):
    said = ["My sister lives in Lisbon"]
    for n in (1, 2, 3):
        upstream.then(completion(f"Noted as number {n}."))
        with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url, first=10 * n) as proxy:
            assert proxy.chat(*said).headers["x-backstory-thread"] == "thread-10"
            said.append(f"Noted as number {n}.")
            proxy.chat(f"Another conversation, {n}")
            assert proxy.turns()["thread-10"] == said
            assert len(proxy.turns()) == 1 + n
        said.append(f"And what of number {n}?")


def test_a_question_that_a_crash_left_without_an_answer_is_asked_again(proxy, upstream):
    proxy.home.memory("ada").record("before", [{"role": "user", "content": "Where do I live?"}])
    proxy.chat("Where do I live?")
    assert proxy.turns() == {"before": ["Where do I live?", "You live in Bergen."]}


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize("before", [(), ("I live in Bergen", "So you do.")])
def test_the_retries_of_the_official_client_do_not_double_a_question(proxy, upstream, status, before):
    if before:
        proxy.home.memory("ada").record(
            "t", [{"role": "user", "content": before[0]}, {"role": "assistant", "content": before[1]}]
        )
    again = document({"error": {"message": "no"}}, status, **{"retry-after-ms": "1"})
    upstream.then(again, again, completion("You live in Bergen."))
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate([*before, "Where?"])]
    with openai.OpenAI(base_url=proxy.url, api_key="sk-1", max_retries=2) as client:
        client.chat.completions.create(model="m", user="ada", messages=messages)  # type: ignore[arg-type]
    assert len(upstream.requests) == 3
    assert list(proxy.turns().values()) == [[*before, "Where?", "You live in Bergen."]]


def test_an_answer_given_again_takes_the_place_of_the_one_before(proxy, upstream):
    said = ["I live in Bergen now", "Good to know, Bergen it is.", "Where do I live?"]
    upstream.then(completion(said[1]), completion("In Oslo, I believe."), completion("In Bergen, of course."))
    proxy.chat(said[0])
    proxy.chat(*said)
    proxy.chat(*said)
    assert proxy.turns() == {"thread-1": [*said, "In Bergen, of course."]}


def test_a_rephrased_question_takes_the_place_of_the_one_before(proxy, upstream):
    said = ["I live in Bergen now", "Good to know, Bergen it is."]
    upstream.then(completion(said[1]), completion("Paris."), completion("It is Oslo."))
    proxy.chat(said[0])
    proxy.chat(*said, "What is the capitol of Norwey?")
    proxy.chat(*said, "What is the capital of Norway?")
    assert proxy.turns() == {"thread-1": [*said, "What is the capital of Norway?", "It is Oslo."]}


def test_another_question_in_the_place_of_one_begins_another_thread(proxy, upstream):
    said = ["I live in Bergen now", "Good to know, Bergen it is."]
    upstream.then(completion(said[1]), completion("Oslo."), completion("Grieg."))
    proxy.chat(said[0])
    proxy.chat(*said, "What is the capital of Norway?")
    proxy.chat(*said, "Who wrote Peer Gynt for the stage?")
    assert list(proxy.turns()) == ["thread-1", "thread-2"]
    assert proxy.turns()["thread-1"][-1] == "Oslo."
    assert proxy.turns()["thread-2"] == ["Who wrote Peer Gynt for the stage?", "Grieg."]


def test_the_header_names_thread_and_agent_and_goes_before_the_words(proxy, upstream):
    proxy.chat("hi", X_Backstory_Thread="Übung", X_Backstory_Agent="lead", X_Backstory_User="bo")
    proxy.chat("hi", "You live in Bergen.", "and?", X_Backstory_Thread="Übung", X_Backstory_Agent="lead")
    assert proxy.turns("bo", "lead") == {"Übung": ["hi", "You live in Bergen."]}
    assert proxy.turns("ada", "lead") == {"Übung": ["and?", "You live in Bergen."]}


# The Responses API.


@pytest.mark.parametrize("stream", [False, True])
def test_responses_that_follow_each_other_are_one_thread(tmp_path, upstream, stream):
    """Each is asked of another process, which finds the thread by the id of the response before."""
    for n in (1, 2, 3):
        text, key = f"Answer number {n}.", f"resp_{n}"
        upstream.then(response_stream(text[:5], text[5:], key=key) if stream else document(response(text, key)))
        body = {"user": "ada", "input": f"Question number {n}?", "stream": stream}
        if n > 1:
            body["previous_response_id"] = f"resp_{n - 1}"
        with open_home(tmp_path / "home") as bs, served(bs, upstream.base_url, first=n) as proxy:
            assert proxy.post("/responses", json=body).content == b"".join(upstream._script[0].parts)
            said = [text for k in range(1, n + 1) for text in (f"Question number {k}?", f"Answer number {k}.")]
            assert proxy.turns() == {"thread-1": said}
            assert proxy.home.memory("ada").transcript("thread-1")[-1].id == key


def test_a_response_with_all_of_the_conversation_is_found_by_its_words(proxy, upstream):
    items = [{"role": "user", "content": [{"type": "input_text", "text": "I live in Bergen now"}]}]
    for n in (1, 2):
        upstream.then(document(response(f"Noted, number {n}.", f"resp_{n}")))
        proxy.post("/responses", json={"user": "ada", "input": items, "store": False})
        items += [*response(f"Noted, number {n}.", f"resp_{n}")["output"]]  # type: ignore[misc]
        items.append({"type": "message", "role": "user", "content": f"And number {n + 1}?"})
    assert proxy.turns() == {
        "thread-1": ["I live in Bergen now", "Noted, number 1.", "And number 2?", "Noted, number 2."]
    }


def test_a_conversation_of_the_upstream_is_a_thread(proxy, upstream):
    for n in (1, 2):
        upstream.then(document(response(f"Noted, number {n}.", f"resp_{n}")))
        conversation = "conv_1" if n == 1 else {"id": "conv_1"}
        proxy.post("/responses", json={"user": "ada", "input": f"Word {n}", "conversation": conversation})
    assert proxy.turns() == {"conv_1": ["Word 1", "Noted, number 1.", "Word 2", "Noted, number 2."]}


def test_calls_of_tools_go_on_in_the_thread_of_a_response(proxy, upstream):
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "where", "arguments": "{}"}
    upstream.then(document({**response("", "resp_1"), "output": [call]}))
    proxy.post("/responses", json={"user": "ada", "input": "Where do I live?"})
    upstream.then(document(response("In Bergen.", "resp_2")))
    result = {"type": "function_call_output", "call_id": "call_1", "output": "Bergen"}
    proxy.post("/responses", json={"user": "ada", "input": [result], "previous_response_id": "resp_1"})
    assert proxy.turns() == {"thread-1": ["Where do I live?", "In Bergen."]}


def test_a_response_that_failed_is_no_answer(proxy, upstream):
    failed = {"type": "response.failed", "response": {**response("", "resp_1"), "status": "failed", "output": []}}
    upstream.then(events(event({"type": "response.output_text.delta", "delta": "You li"}), event(failed)))
    proxy.post("/responses", json={"user": "ada", "input": "Where do I live?", "stream": True})
    assert proxy.turns() == {"thread-1": ["Where do I live?", "You li"]}
    assert metadata(proxy) == {"interrupted": True}


def test_an_error_is_no_answer(proxy, upstream):
    upstream.then(failure(500))
    proxy.chat("Where do I live?")
    upstream.then(document({"choices": "none"}), Answer((b"<html>",), headers={"Content-Type": "text/html"}))
    proxy.chat("Where do I live?")
    assert proxy.chat("Where do I live?").content == b"<html>"
    proxy.until(lambda: proxy.turns() == {"thread-1": ["Where do I live?"]})


def test_a_response_given_again_to_a_whole_conversation_takes_the_place_of_the_one_before(proxy, upstream):
    said = ["I live in Bergen now", "Good to know, Bergen it is.", "Where do I live?"]
    items = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    for n, (text, sent) in enumerate([(said[1], 1), ("In Oslo, I believe.", 3), ("In Bergen, of course.", 3)]):
        upstream.then(document(response(text, f"resp_{n}")))
        proxy.post("/responses", json={"user": "ada", "input": items[:sent], "store": False})
    assert proxy.turns() == {"thread-1": [*said, "In Bergen, of course."]}


def test_a_thread_in_which_a_question_is_under_way_is_no_other_conversations():
    names = ThreadNames(lambda: "new")
    asked = read_request("chat", b'{"messages": [{"role": "user", "content": "hi"}]}', lambda _: "", load_scaffolding())
    said = kept_of(asked.messages)
    assert names.take(Scope("ada"), asked, said, named="t").name == "t"
    assert names.take(Scope("ada"), asked, said, find=lambda _: [("t", None)]).name == "new"
    names.leave(Scope("ada"), "t")
    names.leave(Scope("ada"), "new")
    assert names.take(Scope("bo"), asked, said, find=lambda _: [("t", None)]).name == "t"


# Reasoning.


THOUGHT = "<think>They ask where.</think>\n\n"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sends", [THOUGHT, ""])
def test_reasoning_in_an_answer_is_not_recorded(proxy, upstream, stream, sends):
    """Whether the client sends it again or not, the conversation goes on in its thread."""
    words = ("<thi", "nk>They ask where.", "</think>\n", "\nIn Bergen.")
    upstream.then(chat_stream(*words) if stream else completion("".join(words)))
    assert THOUGHT.strip().encode() in proxy.chat("Where do I live?", stream=stream).content or stream
    upstream.then(completion("By the sea."))
    proxy.chat("Where do I live?", f"{sends}In Bergen.", "And where there?")
    assert proxy.turns() == {"thread-1": ["Where do I live?", "In Bergen.", "And where there?", "By the sea."]}


def test_reasoning_in_a_response_is_not_recorded(proxy, upstream):
    upstream.then(response_stream("<think>They ask", " where.</think>", "In Bergen."))
    proxy.post("/responses", json={"user": "ada", "input": "Where do I live?", "stream": True})
    assert proxy.turns() == {"thread-1": ["Where do I live?", "In Bergen."]}


def test_a_users_own_tag_is_recorded(proxy, upstream):
    proxy.chat("<think>I wonder</think> Where do I live?")
    assert proxy.turns()["thread-1"][0] == "<think>I wonder</think> Where do I live?"
