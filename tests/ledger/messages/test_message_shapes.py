"""Every shape in which a host may hold a conversation is read as the same one: as objects, as dumps, in any mix."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
import typing
import uuid
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pytest
from fakes import open_home
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.responses import (
    EasyInputMessage,
    Response,
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseInputItem,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseReasoningItem,
)
from pydantic import BaseModel, computed_field
from sizes import sized

from backstory.ledger.core.errors import InputError
from backstory.ledger.messages import Kept, keep, read_message

Said = tuple[str, str, str | None]


def kept(*messages: object) -> list[Kept]:
    return keep([read_message(message) for message in messages])


def said(*messages: object) -> list[Said]:
    return [(message.role, message.content, message.id) for message in kept(*messages)]


def texts(*messages: object) -> list[str]:
    return [message.content for message in kept(*messages)]


def user(content: object = "I like tea", **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


def agent(content: object = "Noted", **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def through_json(value: object) -> object:
    return json.loads(json.dumps(value))


def output(text: str, **more: object) -> ResponseOutputMessage:
    return ResponseOutputMessage.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
            **more,
        }
    )


CALL = ResponseFunctionToolCall(type="function_call", call_id="c1", name="calc", arguments="{}", id="fc_1")
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
REASONING = ResponseReasoningItem.model_validate(
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
)
SEARCH = ResponseFunctionWebSearch.model_validate(
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
)


def as_object(message: BaseMessage | BaseModel) -> object:
    return message


def as_dump(message: BaseMessage | BaseModel) -> object:
    return message.model_dump()


def as_json(message: BaseMessage | BaseModel) -> object:
    return json.loads(message.model_dump_json())


def as_attributes(message: BaseMessage | BaseModel) -> object:
    return SimpleNamespace(**vars(message))


LANGCHAIN_SPELLINGS: list[Callable[[BaseMessage], object]] = [
    as_object,
    as_dump,
    as_json,
    as_attributes,
    message_to_dict,
    lambda message: through_json(message_to_dict(message)),
    dumpd,
    lambda message: through_json(dumpd(message)),
]


# LangChain


@pytest.mark.parametrize("spell", LANGCHAIN_SPELLINGS)
def test_a_langchain_conversation_is_the_same_as_objects_and_as_every_dump_of_them(spell):
    calls = [{"name": "calc", "args": {}, "id": "c1"}]
    broken = [{"name": "calc", "args": "{", "id": "c1", "error": "no JSON"}]
    conversation = [
        SystemMessage("Be brief.", id="s1"),
        HumanMessage("What is 6 x 7?", id="h1", name="Ada"),
        AIMessage("Let me compute.", id="run-1", tool_calls=calls),
        ToolMessage("42", tool_call_id="c1", id="t1"),
        FunctionMessage("42", name="calc", id="f1"),
        AIMessage("On it.", id="run-2", invalid_tool_calls=broken),
        AIMessage("On it.", id="run-3", additional_kwargs={"tool_calls": [{"id": "c1"}]}),
        AIMessage("On it.", id="run-4", additional_kwargs={"function_call": {"name": "calc"}}),
        HumanMessage("psst", id="h2", additional_kwargs={"hide_from_ui": True}),
        HumanMessage("So far …", id="h3", additional_kwargs={"lc_source": "summarization"}),
        RemoveMessage(id="h0"),
        AIMessage([{"type": "text", "text": "It is 42."}], id="lc_run--5"),
        ChatMessage("Thanks", role="user", id="h4"),
        HumanMessageChunk("Bye", id="h5"),
    ]
    assert said(*map(spell, conversation)) == [
        ("user", "What is 6 x 7?", "h1"),
        ("assistant", "It is 42.", "lc_run--5"),
        ("user", "Thanks", "h4"),
        ("user", "Bye", "h5"),
    ]
    assert kept(spell(conversation[1]))[0].name == "Ada"


def test_a_serialised_message_without_a_type_is_known_by_its_class():
    path = ["langchain", "schema", "messages"]
    human = {"lc": 1, "type": "constructor", "id": [*path, "HumanMessage"], "kwargs": {"content": "hi"}}
    piece = {"lc": 1, "type": "constructor", "id": [*path, "AIMessageChunk"], "kwargs": {"content": "hello", "id": "a"}}
    assert said(human, piece) == [("user", "hi", None), ("assistant", "hello", "a")]
    with pytest.raises(InputError, match="type"):
        read_message({"lc": 1, "type": "not_implemented", "id": [*path, "HumanMessage"], "repr": "…"})
    with pytest.raises(InputError, match=r"role must be .* got nothing"):
        read_message({"lc": 1, "kwargs": {"content": "hi"}})


def test_what_stands_beside_a_serialised_message_is_read_with_it():
    routed = {"thread_id": "t1", "user_id": "ada", "id": "outer", "at": "2026-03-12T10:30:00Z"}
    dumped = {**message_to_dict(HumanMessage("hi")), **routed}
    assert (read_message(dumped).thread_id, read_message(dumped).id) == ("t1", "outer")
    assert read_message({**message_to_dict(HumanMessage("hi", id="inner")), **routed}).id == "inner"
    packed = {**dumpd(HumanMessage("hi")), "thread_id": "t1", "user_id": "ada"}
    assert (read_message(packed).thread_id, read_message(packed).user_id, read_message(packed).id) == (
        "t1",
        "ada",
        None,
    )


def test_a_message_with_data_of_its_own_is_no_serialised_one():
    assert texts({"role": "assistant", "data": {"content": "x"}}, user("a", data={"content": "x"})) == ["a"]
    assert texts({"type": "human", "content": "a", "data": {"content": "x"}}) == ["a"]


@pytest.mark.parametrize(
    "spelled", [{"contnet": "hi"}, {"parts": [{"type": "text", "text": "hi"}]}, {"data": {"content": "x"}}]
)
def test_a_users_words_under_another_key_are_refused_and_not_lost(spelled):
    (key,) = spelled
    with pytest.raises(InputError, match=f"content is missing: .* and has only 'role', '{key}'"):
        read_message({"role": "user", **spelled})
    assert texts({"role": "user", "content": None, **spelled}, {"role": "assistant", **spelled}) == []


@pytest.mark.parametrize("pair", [("human", "hi"), ("user", "hi"), ["human", "hi"], ("user", [{"text": "hi"}])])
def test_a_pair_of_role_and_text_is_a_message(pair):
    assert said(pair) == [("user", "hi", None)]


@pytest.mark.parametrize("pair", [("narrator", "hi"), ("user", 5), (5, "hi"), ("user",), ("user", "hi", "there")])
def test_a_pair_that_says_nothing_known_is_refused(pair):
    with pytest.raises(
        InputError, match=r"role must be .* got 'narrator'|content must be .* got int|a message must be .* got tuple"
    ):
        read_message(pair)


def test_the_pieces_of_a_streamed_answer_are_one_answer():
    pieces = [AIMessageChunk(text, id="run-1") for text in ("It ", "is ", "42.", "")]
    other = [AIMessageChunk("Any", id="run-2"), AIMessageChunk("thing else?", id="run-2")]
    assert said(HumanMessage("6 x 7?"), *pieces, *other) == [
        ("user", "6 x 7?", None),
        ("assistant", "It is 42.", "run-1"),
        ("assistant", "Anything else?", "run-2"),
    ]
    assert said(*pieces) == said(*map(as_json, pieces)) == said(AIMessage("It is 42.", id="run-1"))


def test_pieces_that_come_to_a_call_are_no_answer():
    call = {"name": "calc", "args": "{", "id": "c1", "index": 0, "type": "tool_call_chunk"}
    calling = AIMessageChunk("", id="run-1", tool_call_chunks=[call])
    assert texts(AIMessageChunk("Let me ", id="run-1"), AIMessageChunk("see", id="run-1"), calling) == []
    dumped = {"type": "AIMessageChunk", "content": "see", "tool_call_chunks": [call]}
    assert texts(dumped) == []


def test_whole_messages_without_an_id_or_with_different_ids_are_not_put_together():
    assert texts(AIMessageChunk("a"), AIMessageChunk("b")) == ["a", "b"]
    assert texts(AIMessageChunk("a", id="1"), AIMessageChunk("b", id="2")) == ["a", "b"]
    assert texts(HumanMessageChunk("a", id="1"), AIMessageChunk("b", id="1")) == ["a", "b"]
    assert texts(AIMessage("a", id="1"), AIMessageChunk("b", id="1")) == ["a", "b"]
    assert texts(AIMessageChunk("a", id="1"), AIMessage("ab", id="1")) == ["a", "ab"]
    assert texts(AIMessageChunk("a", id="1"), user("x"), AIMessageChunk("b", id="1")) == ["a", "x", "b"]


def test_a_hidden_piece_hides_the_answer():
    hidden = AIMessageChunk("b", id="1", additional_kwargs={"hide_from_ui": True})
    assert texts(AIMessageChunk("a", id="1"), hidden) == []


def test_content_in_standard_blocks_is_read_where_there_is_no_other():
    blocks = [{"type": "text", "text": "hi"}]
    assert texts(HumanMessage(content_blocks=blocks)) == ["hi"]
    assert texts(
        {"type": "human", "content_blocks": blocks}, {"role": "user", "content": "", "content_blocks": blocks}
    ) == ["hi"]


def test_a_chat_message_of_an_unknown_role_is_refused_by_its_name():
    for message in (ChatMessage("x", role="narrator"), ChatMessage("x", role="narrator").model_dump()):
        with pytest.raises(InputError, match=r"role must be one of user, human, .*, got 'narrator'"):
            read_message(message)


def test_a_type_nobody_knows_is_refused_by_its_name():
    with pytest.raises(InputError, match=r"type must be .*, got 'narration'; .* Responses API"):
        read_message({"type": "narration", "content": "x"})


# OpenAI: chat completions


@pytest.mark.parametrize("spell", [as_object, as_dump, as_json, as_attributes])
def test_chat_completions_are_read(spell):
    call = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": "{}"}}
    custom = {"id": "c1", "type": "custom", "custom": {"name": "calc", "input": ""}}
    audio = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1, "transcript": "Said aloud."}
    answers = [
        {"content": None, "tool_calls": [call]},
        {"content": "Let me see.", "tool_calls": [call]},
        {"content": "Let me see.", "tool_calls": [custom]},
        {"content": "Let me see.", "function_call": {"name": "calc", "arguments": "{}"}},
        {"content": None, "audio": audio},
        {"content": None, "refusal": "I won't."},
        {"content": "It is 42.", "refusal": None, "tool_calls": []},
    ]
    messages = [ChatCompletionMessage.model_validate({"role": "assistant", **answer}) for answer in answers]
    assert texts(*map(spell, messages)) == ["Said aloud.", "I won't.", "It is 42."]
    assert texts(agent(None), {"role": "assistant", "refusal": "No."}, agent("", audio={"id": "audio_1"})) == ["No."]


def test_a_refusal_or_a_voice_that_langchain_took_in_is_an_answer():
    assert texts(AIMessage("", additional_kwargs={"refusal": "No."})) == ["No."]
    assert texts(AIMessage("", additional_kwargs={"audio": {"transcript": "Aloud."}})) == ["Aloud."]
    assert texts(AIMessage("Yes", additional_kwargs={"refusal": "No."})) == ["Yes"]


def test_a_request_s_parts_are_joined_without_what_is_no_text():
    parts = [
        {"type": "text", "text": "What is"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "AAAA"}},
        {"type": "text", "text": "this?"},
    ]
    assert texts(user(parts), agent([{"type": "refusal", "refusal": "I won't say."}])) == [
        "What is this?",
        "I won't say.",
    ]


# OpenAI: items of the Responses API


def kinds(union: object) -> list[str]:
    """The types of the items in one of the SDK's unions, except of those that are messages."""
    found: list[str] = []
    for part in typing.get_args(union):
        if isinstance(part, type):
            if "content" not in part.model_fields or "role" not in part.model_fields:
                literals = typing.get_args(part.model_fields["type"].annotation)
                found += [kind for literal in literals for kind in (typing.get_args(literal) or [literal])]
        else:
            found += kinds(part)
    return [kind for kind in found if isinstance(kind, str)]


@pytest.mark.parametrize("kind", sorted({*kinds(ResponseOutputItem), *kinds(ResponseInputItem)}))
def test_an_item_that_nobody_said_is_left_out_and_no_mistake(kind):
    item = {"type": kind, "id": "x1", "content": [{"type": "text", "text": "x"}], "output": "x", "text": "x"}
    alone = SimpleNamespace(type=kind, id="x1")
    assert texts(user(), item, {**item, "role": None}, SimpleNamespace(**item), alone) == ["I like tea"]


@pytest.mark.parametrize("spell", [as_object, as_dump, as_json])
def test_of_a_response_s_items_the_final_answer_is_kept(spell):
    items: list[object] = [
        {"role": "developer", "content": "Be brief."},
        EasyInputMessage(role="user", content="What is 6 x 7?"),
        *map(spell, [REASONING, output("Let me compute.", id="msg_1"), CALL]),
        RESULT,
        *map(spell, [REASONING, output("It is 42.", id="msg_2")]),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Thanks"}]},
        spell(output("Sure.", id="msg_3")),
    ]
    assert said(*items) == [
        ("user", "What is 6 x 7?", None),
        ("assistant", "It is 42.", "msg_2"),
        ("user", "Thanks", None),
        ("assistant", "Sure.", "msg_3"),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    ],
)
def test_what_was_said_around_a_call_to_the_host_is_no_answer_yet(kind):
    call = {"type": kind, "call_id": "c1"}
    assert texts(user(), output("Let me see."), call) == ["I like tea"]
    assert texts(user(), call, output("Let me see."), RESULT, output("Noted")) == ["I like tea", "Noted"]
    assert texts(user(), output("a"), call, RESULT, output("b"), call, RESULT, output("c")) == ["I like tea", "c"]


def test_what_an_agent_said_before_its_house_searched_is_part_of_the_answer():
    assert texts(user(), output("Let me look."), SEARCH, output("It rains.")) == [
        "I like tea",
        "Let me look.",
        "It rains.",
    ]
    reference = {"type": "item_reference", "id": "msg_0"}
    assert texts(user(), output("It rains."), REASONING, reference) == ["I like tea", "It rains."]


def test_a_role_says_more_than_the_type_of_an_item():
    assert texts(agent("a"), agent("b", type="function_call"), agent("c", type="function_call_output")) == [
        "a",
        "b",
        "c",
    ]


def test_an_upload_within_our_own_memory_takes_no_answer_along():
    ours = user("<memory><uploaded_files>\na\n</uploaded_files></memory>")
    assert texts(user("Who am I?"), ours, agent("You are Ada.")) == ["Who am I?", "You are Ada."]


def test_a_call_takes_back_nothing_of_the_turn_before():
    assert texts(user("a"), output("b"), user("c"), CALL, RESULT, output("d")) == ["a", "b", "c", "d"]
    assert texts(output("b"), user("psst", hidden=True), CALL, RESULT, output("d")) == ["b", "d"]
    assert texts(CALL, RESULT) == []


def test_an_upload_takes_the_final_answer_along_not_what_was_said_before_the_call():
    upload = user("<uploaded_files>\na\n</uploaded_files>")
    reading = [output("Let me read it."), CALL, RESULT, output("It is a report.")]
    assert texts(upload, *reading, output("More?")) == ["More?"]
    assert texts(upload, *reading, user("thx"), CALL, RESULT, output("sure")) == ["thx", "sure"]
    assert texts(upload, output("It is a report."), user("psst", hidden=True), CALL, RESULT, output("d")) == ["d"]
    assert texts(upload, output("It is a report."), upload, CALL, RESULT, output("d"), output("e")) == ["e"]


@pytest.mark.parametrize("spell", [as_object, as_dump, as_attributes])
def test_a_comment_on_the_way_is_no_answer(spell):
    comment, answer = output("Looking …", phase="commentary"), output("Done.", phase="final_answer")
    assert texts(user(), spell(comment), spell(answer)) == [
        "I like tea",
        "Done.",
    ]


@pytest.mark.parametrize("spell", [as_object, as_dump])
@pytest.mark.parametrize(
    ("whole", "hint"),
    [
        (ChatCompletion.model_construct(object="chat.completion", choices=[]), r"choices\[0\]\.message"),
        (ChatCompletionChunk.model_construct(object="chat.completion.chunk", choices=[]), "whole message"),
        (Response.model_construct(object="response", output=[], metadata={}), "its output"),
    ],
)
def test_a_whole_answer_is_refused_with_a_word_on_what_to_give(whole, hint, spell):
    with pytest.raises(InputError, match=hint):
        read_message(spell(whole))


# Blocks as Anthropic writes them, and as LangChain hands them on


def test_blocks_of_tools_are_told_apart_from_words():
    using = agent([{"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "c1", "name": "f", "input": {}}])
    result = user([{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "42"}]}])
    answer = agent([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "42."}])
    assert texts(user("6 x 7?"), using, result, answer) == ["6 x 7?", "42."]
    assert read_message(result).role == "tool"


def test_words_beside_a_tool_s_result_are_the_user_s():
    both = user([{"type": "tool_result", "content": "42", "text": "42"}, {"type": "text", "text": "Go on."}])
    assert texts(both, agent()) == ["Go on.", "Noted"]


def test_a_tool_s_result_gives_no_answer_back_that_an_upload_took():
    upload = user("<uploaded_files>\na\n</uploaded_files>")
    result = user([{"type": "tool_result", "tool_use_id": "c1", "content": "…"}])
    assert texts(upload, result, agent("It is a report.")) == []


@pytest.mark.parametrize(
    "kind", ["tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call", "function_call", "custom_tool_call"]
)
def test_an_answer_with_a_block_that_calls_a_tool_is_none(kind):
    for blocks in ([{"type": "text", "text": "x"}, {"type": kind, "name": "f"}], [SimpleNamespace(type=kind), "x"]):
        assert texts(agent(blocks)) == []


def test_what_the_model_s_own_house_ran_is_part_of_the_answer():
    blocks = [
        {"type": "text", "text": "Let me look."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [], "text": "found"},
        {"type": "server_tool_result", "text": "found"},
        {"type": "text", "text": "It rains."},
    ]
    assert texts(agent(blocks)) == ["Let me look. It rains."]


def test_a_document_that_came_along_is_not_what_somebody_said():
    blocks = [
        {"type": "document", "source": {"type": "text", "data": "whole"}, "title": "Report"},
        {"type": "text-plain", "text": "whole", "mime_type": "text/plain"},
        {"type": "text", "text": "What does it say?"},
    ]
    assert texts(user(blocks)) == ["What does it say?"]


def test_blocks_may_be_objects_of_any_library():
    class Block(BaseModel, extra="allow"):
        type: str

    blocks = [
        Block.model_validate({"type": "text", "text": "I like"}),
        SimpleNamespace(type="text", text="tea"),
        object(),
    ]
    assert texts(user(blocks)) == ["I like tea"]
    assert texts(user([{"type": "input_audio", "transcript": "aloud"}, {"text": 5, "refusal": "no"}])) == ["aloud no"]


def test_of_a_content_in_blocks_no_more_than_its_ends_can_be_looked_at():
    blocks = ["a", "b", "c", "d", "e"]
    assert [read_message(user(blocks), ends=ends).content for ends in (1, 2, 3)] == ["a e", "a b d e", "a b c d e"]
    assert read_message(user(tuple(blocks[:4])), ends=2).content == "a b c d"


# Hidden messages

ANSWERED = {
    "version": 1,
    "kind": "human_input_response",
    "source": "clarification",
    "request_id": "r1",
    "response_kind": "text",
    "value": "Oslo",
}


def hidden(answer: object, **more: object) -> dict[str, object]:
    return user("Oslo", additional_kwargs={"hide_from_ui": True, "human_input_response": answer, **more})


@pytest.mark.parametrize("answer", [ANSWERED, {**ANSWERED, "response_kind": "option", "option_id": "o1"}])
def test_a_hidden_message_with_a_person_s_answer_is_kept(answer):
    assert texts(hidden(answer)) == ["Oslo"]
    assert texts(user("Oslo", hidden=True, additional_kwargs={"human_input_response": answer})) == ["Oslo"]
    assert texts(
        HumanMessage("Oslo", additional_kwargs=dict(typing.cast("dict", hidden(answer)["additional_kwargs"])))
    ) == ["Oslo"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "Oslo",
        [],
        {},
        *({name: value for name, value in ANSWERED.items() if name != left_out} for left_out in ANSWERED),
        *({**ANSWERED, name: " "} for name in ("source", "request_id", "value")),
        *({**ANSWERED, name: 5} for name in ("source", "request_id", "value", "response_kind")),
        {**ANSWERED, "version": 2},
        {**ANSWERED, "kind": "other"},
        {**ANSWERED, "response_kind": "option"},
        {**ANSWERED, "response_kind": "option", "option_id": ""},
        {**ANSWERED, "response_kind": ["text"]},
    ],
)
def test_half_an_answer_is_none(answer):
    assert texts(hidden(answer)) == []


def test_an_agent_s_hidden_message_is_no_person_s_answer():
    extra = {"hide_from_ui": True, "human_input_response": ANSWERED}
    assert texts(agent("psst", additional_kwargs=extra)) == []
    assert read_message(agent("psst", additional_kwargs=extra), lambda _: True).hidden


def test_a_host_says_itself_which_hidden_messages_to_keep():
    asked: list[Mapping[str, object]] = []

    def keep_hidden(extra: Mapping[str, object]) -> bool:
        asked.append(extra)
        return extra.get("mine") is True

    mine = user("a", additional_kwargs={"hide_from_ui": True, "mine": True})
    assert not read_message(mine, keep_hidden).hidden
    assert read_message(hidden(ANSWERED), keep_hidden).hidden
    assert not read_message(user("shown"), keep_hidden).hidden
    assert asked == [mine["additional_kwargs"], hidden(ANSWERED)["additional_kwargs"]]


@pytest.mark.parametrize("source", ["summarization", "summarizationsummarization"])
def test_a_summary_is_never_kept(source):
    summary = user("So far …", additional_kwargs={"lc_source": source, "human_input_response": ANSWERED})
    assert texts(user("a"), summary, agent("b")) == ["a", "b"]
    assert read_message(summary, lambda _: True).hidden


def test_what_the_harness_put_in_for_a_user_is_hidden():
    told = user("Task 7 is done.", additional_kwargs={"lc_source": "async_subagent"})
    assert texts(told) == []
    assert not read_message(told, lambda _: True).hidden
    assert texts(agent("x", additional_kwargs={"lc_source": "async_subagent"})) == ["x"]
    assert texts(user("x", additional_kwargs={"lc_source": ""}), user("y", additional_kwargs={"lc_source": 5})) == [
        "x",
        "y",
    ]


# Recording


def test_a_message_nobody_can_read_is_told_and_the_rest_recorded(tmp_path):
    told: list[tuple[int, str]] = []
    messages = [user("a", id="1"), ChatMessage("x", role="narrator"), 5, user("b", id="2"), agent(5)]
    with open_home(tmp_path) as backstory:
        memory = backstory.memory("ada")
        with pytest.raises(InputError, match="narrator"):
            memory.record("t", messages)
        result = memory.record("t", messages, on_unreadable=lambda index, error: told.append((index, str(error))))
        assert (result.turns, result.skipped) == (2, 3)
        assert [turn.content for turn in memory.transcript("t")] == ["a", "b"]
    assert [index for index, _ in told] == [1, 2, 4]
    assert all(word in text for word, (_, text) in zip(("narrator", "got int", "content"), told, strict=True))


def test_hidden_messages_are_recorded_as_the_host_says(tmp_path):
    messages = [hidden(ANSWERED), user("a", additional_kwargs={"hide_from_ui": True, "mine": True})]
    with open_home(tmp_path) as backstory:
        memory = backstory.memory("ada")
        memory.record("default", messages)
        memory.record("theirs", messages, keep_hidden=lambda extra: "mine" in extra)
        asyncio.run(memory.arecord("async", [*messages, 5], keep_hidden=lambda _: True, on_unreadable=lambda *_: None))
        recorded = [[turn.content for turn in memory.transcript(name)] for name in ("default", "theirs", "async")]
    assert recorded == [["Oslo"], ["a"], ["Oslo", "a"]]


def test_a_hook_that_fails_is_told_of_and_what_it_was_asked_about_is_not_kept():
    def fails(extra: Mapping[str, object]) -> bool:
        raise KeyError("mine")

    with pytest.raises(InputError, match="keep_hidden failed on a hidden message with KeyError"):
        read_message(hidden(ANSWERED), fails)


# Ids


@pytest.mark.parametrize(
    ("id", "read"),
    [
        ("run-7a3f", "run-7a3f"),
        ("lc_run--7a3f-0", "lc_run--7a3f-0"),
        (7, "7"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (None, None),
    ],
)
def test_an_id_is_taken_as_its_text(id, read):  # noqa: A002 it is an id
    assert read_message(user(id=id)).id == read
    assert read_message(SimpleNamespace(role="user", content="x", id=id)).id == read


def test_texts_of_derived_types_become_plain_ones():
    class Loud(str):
        __slots__ = ()

        def strip(self, *_: object) -> str:
            raise RuntimeError

        encode = isascii = strip  # type: ignore[assignment]

    read = read_message(user(Loud("tea"), id=Loud("1"), name=Loud("n"), send_to=[Loud("b")], agent_name=Loud("a")))
    assert {type(value) for value in (read.content, read.id, read.name, read.send_to[0], read.agent_name)} == {str}
    assert texts(user([Loud("tea")])) == ["tea"]
    assert texts(agent("", refusal=Loud("no"))) == ["no"]


# Objects


class Owned(BaseModel):
    """A message whose fields tell less than its dump."""

    speaker: str
    content: str

    @computed_field
    def role(self) -> str:
        return self.speaker


class Titled(BaseModel):
    role: str
    title: str

    @computed_field
    def content(self) -> str:
        return self.title


class Tasks(BaseModel):
    tasks: list[int]


class Instructed(BaseModel):
    role: str = "user"
    content: str = "x"
    instruct_content: Tasks | None = None
    metadata: dict[str, object] = {}


class Raising:
    role = "user"

    @property
    def content(self) -> str:
        raise RuntimeError("the connection is gone")


class Broken(Mapping):
    def __getitem__(self, key: str) -> object:
        raise RuntimeError("the connection is gone")

    def __iter__(self):
        raise RuntimeError("the connection is gone")

    def __len__(self) -> int:
        raise RuntimeError("the connection is gone")


def test_a_model_that_says_more_in_its_dump_is_dumped():
    assert said(Owned(speaker="user", content="hi"), Titled(role="ai", title="hello")) == [
        ("user", "hi", None),
        ("assistant", "hello", None),
    ]
    assert kept(Instructed(instruct_content=Tasks(tasks=[1])))[0].metadata == {"instruct_content": {"tasks": [1]}}
    assert kept(Instructed(metadata={"a": Tasks(tasks=[2])}))[0].metadata == {"a": {"tasks": [2]}}


def test_more_fields_than_a_model_knows_are_read():
    assert texts(HumanMessage("psst", hidden=True)) == []


@pytest.mark.parametrize("message", [Raising(), Broken()])
def test_an_object_that_cannot_be_looked_at_is_refused_by_its_type(message):
    with pytest.raises(InputError, match=rf"cannot read a message of type {type(message).__name__}: RuntimeError"):
        read_message(message)


def test_there_being_no_memory_left_is_no_mistake_of_the_message():
    class Huge:
        role = "user"

        @property
        def content(self) -> str:
            raise MemoryError

    with pytest.raises(MemoryError):
        read_message(Huge())


# Any mix of shapes

words = st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1, max_size=8).filter(str.strip)


def as_human(text: str, n: int) -> list[object]:
    message = HumanMessage(text, id=f"m{n}")
    part = {"type": "input_text", "text": text}
    return [
        *[spell(message) for spell in LANGCHAIN_SPELLINGS],
        user(text, id=f"m{n}"),
        user([{"type": "text", "text": text}], id=f"m{n}"),
        {"type": "message", "role": "user", "content": [part], "id": f"m{n}"},
    ]


def as_answer(text: str, n: int) -> list[object]:
    message = AIMessage(text, id=f"m{n}")
    item = output(text, id=f"m{n}")
    return [
        *[spell(message) for spell in LANGCHAIN_SPELLINGS],
        AIMessageChunk(text, id=f"m{n}"),
        ChatCompletionMessage.model_validate({"role": "assistant", "content": text, "id": f"m{n}"}),
        agent([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}], id=f"m{n}"),
        *[spell(item) for spell in (as_object, as_dump, as_json)],
    ]


def as_step(text: str) -> list[list[object]]:
    calling = AIMessage(text, tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    result = ToolMessage("42", tool_call_id="c1")
    use = agent([{"type": "text", "text": text}, {"type": "tool_use", "id": "c1"}])
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        *[[spell(calling), spell(result)] for spell in LANGCHAIN_SPELLINGS],
        [use, user([{"type": "tool_result", "tool_use_id": "c1"}])],
        [agent(text, tool_calls=[call]), {"role": "tool", "content": "42", "tool_call_id": "c1"}],
        [output(text), CALL, RESULT],
        [as_dump(REASONING), as_dump(output(text)), as_dump(CALL), RESULT],
    ]


@given(st.data(), st.lists(st.tuples(words, st.lists(words, max_size=2), words), min_size=1, max_size=3))
def test_any_mix_of_shapes_is_the_same_conversation(data, turns):
    sent: list[object] = []
    expected: list[Said] = []
    for n, (question, steps, answer) in enumerate(turns):
        sent.append(data.draw(st.sampled_from(as_human(question, 2 * n))))
        for step in steps:
            sent += data.draw(st.sampled_from(as_step(step)))
        sent.append(data.draw(st.sampled_from(as_answer(answer, 2 * n + 1))))
        expected += [("user", question, f"m{2 * n}"), ("assistant", answer, f"m{2 * n + 1}")]
    assert said(*sent) == expected


fields = ["role", "type", "content", "id", "lc", "kwargs", "data", "object", "audio", "refusal", "additional_kwargs"]
leaves = st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=4) | st.builds(object) | st.binary(max_size=2)
anything = st.recursive(
    leaves | st.sampled_from(["user", "ai", "text", "tool_use", "tool_result", "function_call", "AIMessageChunk"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(fields) | st.text(max_size=3), inner, max_size=5)
        | st.dictionaries(st.sampled_from(fields), inner, max_size=5).map(lambda held: SimpleNamespace(**held))
        | st.dictionaries(st.sampled_from(fields), inner, max_size=5).map(
            lambda held: Instructed.model_construct(**held)
        )
    ),
    max_leaves=12,
)


@given(st.lists(anything, max_size=4), st.none() | st.integers(0, 2))
def test_whatever_an_object_is_it_is_read_or_refused(messages, ends):
    read = []
    for message in messages:
        try:
            read.append(read_message(message, ends=ends))
        except InputError as error:
            assert str(error)  # noqa: PT017 a refusal always says what is wrong
    for found in keep(read):
        assert found.content.strip()
        assert found.role in ("user", "assistant")


# Much of it

MANY = sized(1_000_000, 10_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "size"),
    [
        (lambda: "茶" * 2 * MANY, 4 * MANY),
        (lambda: "茶" * 2 * MANY + "\ud800", 4 * MANY),
        (lambda: [{"type": "text", "text": "x" * 5 * MANY}], 5 * MANY),
        (lambda: [{"type": "text", "text": "hi"}, {"type": "image", "data": "A" * 5 * MANY}], 5 * MANY),
        (lambda: [{"type": "text", "text": "x" * 50}] * (MANY // 10), 5 * MANY),
    ],
)
def test_much_content_takes_no_more_than_a_few_times_its_size(content, size):
    message = user(content())
    tracemalloc.start()
    try:
        kept(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 4 * size


def test_a_message_that_was_read_already_is_taken_as_it_is():
    read = read_message({"role": "human", "content": "I like tea", "hidden": True})
    assert read_message(read) is read
