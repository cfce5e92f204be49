"""What of a conversation is kept (rows D1 to D3 and D5), and what a message may look like."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from doubles.cost import assert_no_square
from fakes import open_home
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.ledger.core.errors import InputError
from backstory.ledger.core.sanitize import MAX_CONTENT, MAX_NAME
from backstory.ledger.messages import Kept, Message, abridge, keep, read_message

UPLOAD = "<uploaded_files>\n/mnt/report.pdf\n</uploaded_files>"
MEMORY = "<memory>\nUser Context:\n- Work: Rust\n</memory>"


def user(content: object = "I like tea", **more: object) -> dict[str, object]:
    return {"role": "user", "content": content, **more}


def agent(content: object = "Noted", **more: object) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def kept(*messages: object) -> list[Kept]:
    return keep([read_message(message) for message in messages])


def texts(*messages: object) -> list[str]:
    return [message.content for message in kept(*messages)]


@dataclass
class Dumped:
    """What LangChain's and OpenAI's messages have in common: they can be dumped to a dict."""

    fields: dict[str, object] = field(default_factory=dict)

    def model_dump(self) -> dict[str, object]:
        return self.fields


def langchain(kind: str, content: object, **more: object) -> Dumped:
    fields = {"content": content, "additional_kwargs": {}, "response_metadata": {}, "type": kind, "name": None}
    return Dumped({**fields, "id": None, **more})


def openai(role: str, content: object, **more: object) -> Dumped:
    nothing = dict.fromkeys(["refusal", "annotations", "audio", "function_call", "tool_calls"])
    return Dumped({"content": content, "role": role, **nothing, **more})


# Roles


@pytest.mark.parametrize(
    ("named", "role"),
    [
        ("user", "user"),
        ("human", "user"),
        ("Human", "user"),
        (" USER ", "user"),
        ("HumanMessageChunk", "user"),
        ("assistant", "assistant"),
        ("ai", "assistant"),
        ("AI", "assistant"),
        ("AIMessageChunk", "assistant"),
        ("tool", "tool"),
        ("function", "tool"),
        ("ToolMessageChunk", "tool"),
        ("system", "system"),
        ("developer", "system"),
        ("SystemMessageChunk", "system"),
    ],
)
def test_a_role_goes_by_several_names(named, role):
    assert read_message({"role": named, "content": "x"}).role == role
    assert read_message({"type": named, "content": "x"}).role == role


def test_a_role_beats_a_type():
    assert read_message({"role": "user", "type": "message", "content": "x"}).role == "user"


def test_what_was_said_is_kept_and_the_machinery_is_not():
    conversation = [
        {"role": "system", "content": "You are helpful."},
        user("What is 6 x 7?", id="1"),
        agent("Let me compute that.", tool_calls=[{"id": "c1", "name": "calc"}], id="2"),
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "function", "content": "42", "name": "calc"},
        agent("42.", id="3", tool_calls=[]),
        {"role": "developer", "content": "Be brief."},
    ]
    assert [(m.role, m.content, m.id) for m in kept(*conversation)] == [
        ("user", "What is 6 x 7?", "1"),
        ("assistant", "42.", "3"),
    ]


@pytest.mark.parametrize(
    "calling",
    [
        {"tool_calls": [{"name": "f"}]},
        {"function_call": {"name": "f"}},
        {"additional_kwargs": {"tool_calls": [{"name": "f"}]}},
    ],
)
def test_an_answer_that_calls_tools_is_no_final_answer(calling):
    assert texts(user(), agent("on it", **calling)) == ["I like tea"]


@pytest.mark.parametrize("hiding", [{"hidden": True}, {"metadata": {"hidden": True}}])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_hidden_message_is_dropped(hiding, role):
    assert texts({"role": role, "content": "psst", **hiding}) == []


def test_a_message_the_host_hides_from_its_page_is_dropped():
    assert texts(user("psst", additional_kwargs={"hide_from_ui": True}), user("hello")) == ["hello"]


# Content


def test_content_is_kept_byte_for_byte():
    content = "  \t Leading, trailing \r\n\r\n 茶 👩‍👩‍👧 e\u0301 \u00e9 \x00 \u2028 <b>&amp;</b> {{memory}} \n\n"
    assert texts(user(content)) == [content]


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text.strip() and "<" not in text))
def test_any_text_without_a_block_comes_through_unchanged(content):
    assert texts(user(content)) == [content]


@pytest.mark.parametrize("content", [None, "", " \n\t ", [], [{"type": "image_url", "image_url": {"url": "x"}}]])
def test_a_message_without_words_is_dropped(content):
    assert texts(user(content), agent()) == ["Noted"]


def test_blocks_are_joined_without_what_was_only_thought_or_shown():
    blocks = [
        {"type": "thinking", "thinking": "hm", "text": "hm"},
        {"type": "reasoning", "text": "hm"},
        {"type": "redacted_thinking", "text": "hm"},
        {"type": "text", "text": "I like"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        "green",
        {"type": "text", "text": None},
        {"type": ["odd"], "text": "tea"},
        {"text": "!"},
        5,
        None,
        ["nested"],
    ]
    assert texts(user(blocks)) == ["I like green tea !"]


def test_lone_surrogates_become_replacement_characters_everywhere():
    message = user(
        "a\ud800b\ud83c\udf75",
        id="i\udfff",
        name="n\ud800",
        cause_by="c\ud800",
        sent_from="f\ud800",
        send_to=["t\ud800"],
        metadata={"k\ud800": ["v\ud800"]},
    )
    (found,) = kept(message)
    assert found.content == "a\ufffdb🍵"
    assert (found.id, found.name, found.cause_by) == ("i\ufffd", "n\ufffd", "c\ufffd")
    assert (found.sent_from, found.send_to) == ("f\ufffd", ("t\ufffd",))
    assert found.metadata == {"k\ufffd": ["v\ufffd"]}


@pytest.mark.slow
def test_fifty_megabytes_are_clipped_quickly_and_say_so():
    began = time.process_time()
    (found,) = kept(user("茶" * 50_000_000))
    assert len(found.content) == MAX_CONTENT
    assert found.content.endswith("characters cut]")
    assert found.content.startswith("茶茶茶")
    assert time.process_time() - began < 10


@pytest.mark.parametrize("unit", ["<memory", "<memory ", "</memory>", "<uploaded_files>", "<", "<memory>", "<memory/>"])
@pytest.mark.parametrize(
    "end", ["", "</memory>", *(pytest.param(more, marks=pytest.mark.torture) for more in ("</", "</uploaded_files>x"))]
)
def test_a_text_full_of_half_open_tags_is_read_in_one_go(unit, end):
    assert_no_square(lambda text: texts(user(text + end)), unit, 250_000)


# Uploads and our own memory


def test_an_upload_block_is_cut_and_the_rest_stays():
    assert texts(user(f"{UPLOAD}\nWhat does it say?")) == ["What does it say?"]
    assert texts(user("<UPLOADED_FILES>\na\n</Uploaded_Files> Read it")) == ["Read it"]


def test_a_turn_that_is_only_an_upload_goes_with_the_answer_that_follows():
    assert texts(user("hi"), agent("hello"), user(UPLOAD), agent("I see a report."), user("thx"), agent("sure")) == [
        "hi",
        "hello",
        "thx",
        "sure",
    ]


def test_an_upload_takes_the_final_answer_along_not_the_tool_calls_before_it():
    reading = agent("reading", tool_calls=[{"name": "read"}])
    assert texts(user(UPLOAD), reading, {"role": "tool", "content": "…"}, agent("It is a report."), agent("More?")) == [
        "More?"
    ]


def test_words_after_an_upload_keep_their_answer():
    assert texts(user(UPLOAD), user("What is in it?"), agent("Figures.")) == ["What is in it?", "Figures."]


def test_a_question_without_words_after_an_upload_keeps_its_answer():
    assert texts(user(UPLOAD), user([{"type": "image_url"}]), agent("A cat.")) == ["A cat."]


def test_our_own_memory_block_is_cut_out():
    assert texts(user(f"{MEMORY}\n\nWhat do I like?")) == ["What do I like?"]
    assert texts(agent(f"You said: {MEMORY} Right?")) == ["You said:  Right?"]


def test_a_message_that_is_only_our_memory_is_dropped_and_costs_nobody_an_answer():
    assert texts(user("Who am I?"), user(MEMORY), agent("You are Ada.")) == ["Who am I?", "You are Ada."]
    assert texts(user(MEMORY), agent("You are Ada.")) == ["You are Ada."]


def test_our_memory_beside_an_upload_makes_no_words_of_it():
    assert texts(user(f"{MEMORY}\n{UPLOAD}"), agent("A report.")) == []
    assert texts(user(UPLOAD), user(MEMORY), agent("A report.")) == []


# Other fields


def test_every_field_of_a_message_is_kept():
    (found,) = kept(
        user(
            "x",
            id="m1",
            name="Ada",
            at="2026-03-12T10:30:00+02:00",
            cause_by="metagpt.actions.UserRequirement",
            sent_from="Alice",
            send_to=["Bob", "Carol"],
            metadata={"mood": "good", "n": 3, "deep": {"list": [1, None, True, 1.5]}},
        )
    )
    assert found == Kept(
        role="user",
        content="x",
        id="m1",
        name="Ada",
        at="2026-03-12T08:30:00.000000Z",
        offset="+02:00",
        cause_by="metagpt.actions.UserRequirement",
        sent_from="Alice",
        send_to=("Bob", "Carol"),
        metadata={"mood": "good", "n": 3, "deep": {"list": [1, None, True, 1.5]}},
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, ()),
        ("Bob", ("Bob",)),
        (["Bob", "Al"], ("Bob", "Al")),
        (("Bob", 7), ("Bob", "7")),
        ([], ()),
        ({"Zoe", "Bob", "Al", "Eve", "Dan"}, ("Al", "Bob", "Dan", "Eve", "Zoe")),
        (frozenset({"Zoe", "Al"}), ("Al", "Zoe")),
    ],
)
def test_a_message_is_sent_to_one_or_several_in_an_order_that_never_varies(given, read):
    assert read_message(user(send_to=given)).send_to == read


@pytest.mark.parametrize("name", ["id", "name", "thread_id", "user_id", "cause_by", "sent_from"])
def test_a_number_will_do_for_a_name(name):
    assert getattr(read_message(user(**{name: 7})), name) == "7"


def test_an_empty_id_is_none():
    assert kept(user(id=""))[0].id is None


def test_names_and_ids_are_bounded_and_long_ids_stay_apart():
    long = "x" * 600
    one, other = kept(user(id=f"{long}1{long}", name=long), user(id=f"{long}2{long}"))
    assert len(one.name or "") == MAX_NAME
    assert len(one.id or "") <= MAX_NAME
    assert one.id != other.id
    assert one.id == kept(user(id=f"{long}1{long}"))[0].id


def test_metadata_is_made_safe_to_store():
    huge = 10**400
    (found,) = kept(
        user(metadata={"nan": float("nan"), "inf": float("-inf"), "huge": huge, "n": 2**63 - 1, "long": "x" * 10**6})
    )
    assert (found.metadata["nan"], found.metadata["inf"]) == ("nan", "-inf")
    assert found.metadata["huge"] == f"{huge:#x}"
    assert found.metadata["n"] == 2**63 - 1
    assert len(str(found.metadata["long"])) < 5_000


def test_unsafe_metadata_is_stored_and_read_back(tmp_path):
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    with open_home(tmp_path) as backstory:
        memory = backstory.memory("ada")
        memory.record("t", [user(metadata={"nan": float("nan"), "huge": -(10**6000), "deep": deep, "s": "\udc00"})])
        (turn,) = memory.transcript("t")
        assert turn.metadata["nan"] == "nan"
        assert memory.verify().ok
    with open_home(tmp_path) as backstory:
        assert backstory.memory("ada").transcript("t") == (turn,)


@pytest.mark.parametrize(
    ("at", "spelled"),
    [
        ("2026-03-12T10:30:00Z", "2026-03-12T10:30:00.000000Z"),
        ("2026-03-12 10:30", "2026-03-12T10:30:00.000000Z"),
        ("2026-03-12T00:30:00.5-01:00", "2026-03-12T01:30:00.500000Z"),
        ("2026-03-12", "2026-03-12T00:00:00.000000Z"),
    ],
)
def test_a_time_is_spelled_in_one_way(at, spelled):
    assert read_message(user(at=at)).at == spelled


# What is no message


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"content": "x"}, "role"),
        ({"role": None, "content": "x"}, "role"),
        ({"role": 5, "content": "x"}, "role"),
        ({"role": ["user"], "content": "x"}, "role"),
        ({"role": "narrator", "content": "x"}, "narrator"),
        ({"role": "user\ud800", "content": "x"}, "role"),
        (user(5), "content"),
        (user(True), "content"),
        (user({"text": "x"}), "content"),
        (user(b"x"), "content"),
        (user(id=1.5), "id"),
        (user(id=True), "id"),
        (user(id=["a"]), "id"),
        (user(id=10**5000), "id"),
        (user(name={"a": 1}), "name"),
        (user(thread_id=[]), "thread_id"),
        (user(user_id=1.5), "user_id"),
        (user(agent_name=7.5), "agent_name"),
        (user(cause_by=object()), "cause_by"),
        (user(sent_from=[]), "sent_from"),
        (user(send_to=5), "send_to"),
        (user(send_to={"Bob": 1}), "send_to"),
        (user(send_to=["Bob", None]), "send_to"),
        (user(send_to=[10**5000]), "send_to"),
        (user(metadata="good"), "metadata"),
        (user(metadata=[1]), "metadata"),
        (user(metadata={1: 2}), "metadata"),
        (user(at="soon"), "at"),
        (user(at="2026-13-01"), "at"),
        (user(at=""), "at"),
        (user(at=1_700_000_000), "at"),
        (user(at="0001-01-01T00:00:00+05:00"), "at"),
        (user(at="9999-12-31T23:59:59-05:00"), "at"),
        (user(at=timedelta(1)), "at"),
    ],
)
def test_a_broken_message_is_refused_and_the_field_is_named(message, field):
    with pytest.raises(InputError, match=field):
        read_message(message)


class Unwilling:
    def model_dump(self) -> dict[str, object]:
        raise TypeError("this model cannot be dumped")


@pytest.mark.parametrize(
    "message", [None, 5, "hello", b"x", [], object(), Dumped, Dumped([]), Unwilling(), ("user", "hello", "there")]
)
def test_what_is_no_message_at_all_is_refused(message):
    with pytest.raises(InputError, match="message"):
        read_message(message)


@pytest.mark.parametrize(("message", "told"), [(5, "int"), ([], "list"), (object(), "object"), (None, "NoneType")])
def test_what_is_no_message_is_named_by_its_type(message, told):
    with pytest.raises(InputError, match=f"a message must be .*, got {told}$"):
        read_message(message)


@pytest.mark.parametrize("key", ["role", "type"])
def test_an_object_that_looks_like_a_message_is_read(key):
    said = SimpleNamespace(content="I like tea", id=5, name="Ada", at="2026-03-12T10:30:00Z", **{key: "human"})
    (found,) = kept(said)
    assert (found.role, found.content, found.id, found.name) == ("user", "I like tea", "5", "Ada")
    assert found.at == "2026-03-12T10:30:00.000000Z"
    blocks = SimpleNamespace(content=[{"type": "text", "text": "Noted"}], **{key: "ai"})
    assert texts(said, blocks) == ["I like tea", "Noted"]
    assert texts(SimpleNamespace(content="calling", tool_calls=[{"name": "f"}], **{key: "ai"})) == []
    assert texts(SimpleNamespace(content="calling", additional_kwargs={"tool_calls": [1]}, **{key: "ai"})) == []
    assert texts(SimpleNamespace(content="hi", additional_kwargs={"hide_from_ui": True}, **{key: "human"})) == []
    assert texts(SimpleNamespace(content="hi", hidden=True, **{key: "human"})) == []


class Breaking:
    role = "user"

    @property
    def content(self) -> str:
        raise RuntimeError("the connection is gone")


@pytest.mark.parametrize(
    "message",
    [
        SimpleNamespace(content="x"),
        SimpleNamespace(role="user"),
        SimpleNamespace(role=5, content="x"),
        SimpleNamespace(type=SimpleNamespace, content="x"),
        MagicMock(),
        Breaking(),
        Kept("user", "x", "t1"),
    ],
)
def test_an_object_that_only_half_looks_like_one_is_refused(message):
    with pytest.raises(InputError, match=r"a message (must be a dict|of type)"):
        read_message(message)


def test_what_is_not_known_of_a_message_does_no_harm():
    assert texts(user("x", refusal=None, logprobs={}, model_config=1, tool_call_id=5)) == ["x"]


def test_one_broken_message_and_nothing_of_the_delivery_is_recorded(tmp_path):
    with open_home(tmp_path) as backstory:
        memory = backstory.memory(scope="global")
        with pytest.raises(InputError, match="role"):
            memory.record("t", [user("fine"), {"role": "narrator", "content": "x"}])
        assert memory.threads() == ()


# LangChain's and OpenAI's own


def test_a_langchain_conversation_is_read():
    assert [
        (m.role, m.content, m.id)
        for m in kept(
            langchain("system", "Be brief."),
            langchain("human", "What is 6 x 7?", id="h1", example=False),
            langchain("ai", "", tool_calls=[{"name": "calc", "args": {}, "id": "c"}], invalid_tool_calls=[]),
            langchain("tool", "42", tool_call_id="c", status="success"),
            langchain("ai", [{"type": "text", "text": "42."}], id="a1", tool_calls=[], usage_metadata=None),
            langchain("AIMessageChunk", "Anything else?", id="a2", tool_calls=[], tool_call_chunks=[]),
            langchain("human", "psst", additional_kwargs={"hide_from_ui": True}),
        )
    ] == [("user", "What is 6 x 7?", "h1"), ("assistant", "42.", "a1"), ("assistant", "Anything else?", "a2")]


def test_an_openai_conversation_is_read():
    assert [
        (m.role, m.content)
        for m in kept(
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "6 x 7?"}]},
            openai("assistant", None, tool_calls=[{"id": "c", "type": "function", "function": {"name": "calc"}}]),
            {"role": "tool", "tool_call_id": "c", "content": "42"},
            openai("assistant", "42."),
        )
    ] == [("user", "What is 6 x 7?"), ("assistant", "42.")]


def test_openai_s_own_class_is_read():
    from openai.types.chat import ChatCompletionMessage

    assert texts(ChatCompletionMessage(role="assistant", content="42.")) == ["42."]
    calling = ChatCompletionMessage.model_validate(
        {
            "role": "assistant",
            "content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        }
    )
    assert texts(calling) == []


# Any value at all

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
odd_messages = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys([*Message.__struct_fields__, "type", "tool_calls", "additional_kwargs"], json_values)
    | {"role": st.sampled_from(["user", "ai", "tool", "nobody"]) | json_values},
)


@settings(max_examples=examples(2))
@given(st.lists(odd_messages | json_values, max_size=4))
def test_whatever_comes_in_is_read_or_refused(messages):
    read = []
    for message in messages:
        try:
            read.append(read_message(message))
        except InputError as error:
            assert str(error)  # noqa: PT017 a refusal always says what is wrong
    for found in keep(read):
        assert found.role in ("user", "assistant")
        assert found.content.strip()
        found.content.encode()


# In the prompt only


def test_a_long_message_is_abridged_head_and_tail_with_a_mark():
    text = "h" * 600 + "m" * 5_000 + "t" * 300
    short = abridge(text)
    assert short.startswith("h" * 600 + "\n")
    assert short.endswith("\n" + "t" * 300)
    assert "[5000 characters cut]" in short
    assert "m" not in short.replace("characters cut", "")


@pytest.mark.parametrize("length", [0, 1, 999, 1000])
def test_up_to_a_thousand_characters_nothing_is_cut(length):
    assert abridge("x" * length) == "x" * length


def test_one_character_more_and_it_is_cut():
    assert "[101 characters cut]" in abridge("x" * 1001)


def test_metagpts_structured_content_is_kept_among_the_metadata():
    (kept,) = keep([read_message({"role": "user", "content": "x", "instruct_content": {"tasks": [1]}})])
    assert kept.metadata == {"instruct_content": {"tasks": [1]}}
