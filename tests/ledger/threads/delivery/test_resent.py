"""Resends: what of a delivery without ids is known, what it edits, and that nothing said is ever lost over it.

A letter stands for a message: a c e g i k are a user's, b d f h j l an agent's answers, each a sentence of substance.
C is c rephrased. o ("ok") and y ("yes") are a user's, s ("sure") and n ("noted") an agent's, and say next to nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_thread import Conversation, says

from backstory.ledger.core.events import Turn
from backstory.ledger.messages import Kept
from backstory.ledger.text.acknowledgements import has_substance
from backstory.ledger.threads.transcript import Thread
from backstory.ledger.threads.turn_columns import Trace

WORDS = {
    "a": "I live in Oslo with my sister",
    "b": "Oslo is a fine place to live",
    "c": "What is the capitol of Norwey?",
    "C": "What is the capital of Norway?",
    "d": "It is Oslo, where you live",
    "e": "My flight leaves on Tuesday morning",
    "f": "I will remind you of the flight",
    "g": "Please keep the aisle seat for me",
    "h": "An aisle seat is kept for you",
    "i": "Bo comes along, so make it two tickets",
    "j": "Two tickets it is, for Bo and you",
    "k": "We take the train home afterwards",
    "l": "The train leaves at nine",
    "o": "ok",
    "y": "yes",
    "s": "sure",
    "n": "noted",
}
_AGENT = frozenset("bdfhjlsn")


def said(letters: str) -> list[Kept]:
    return [says(WORDS[letter], role="assistant" if letter in _AGENT else "user") for letter in letters]


def message_flow_of(conversation: Conversation) -> str:
    spelled = {text: letter for letter, text in WORDS.items()}
    return "".join(spelled[content] for content in conversation.standing)


def after(*deliveries: str) -> Conversation:
    conversation = Conversation()
    for delivery in deliveries:
        conversation.send(*said(delivery))
    return conversation


@pytest.mark.parametrize(
    ("deliveries", "standing"),
    [
        # The whole conversation each time
        pytest.param(["ab", "ab"], "ab", id="the same exchange again"),
        pytest.param(["ab", "abcd", "abcdef"], "abcdef", id="growing"),
        pytest.param(["a", "ab", "abc", "abcd"], "abcd", id="recorded at the question and at the answer"),
        pytest.param(["os", "osys", "osysys"], "osysys", id="growing, with nothing of substance"),
        pytest.param(["o", "oo", "ooo"], "ooo", id="growing, all the same"),
        pytest.param(["ab", "", "abcd"], "abcd", id="nothing"),
        pytest.param(["abcd", "abcd"], "abcd", id="the same whole again"),
        pytest.param(["osys", "osys"], "osys", id="the same whole again, with nothing of substance"),
        pytest.param(["a", "a"], "a", id="the same whole again, one message"),
        # Only what is new
        pytest.param(["ab", "cd", "ef"], "abcdef", id="pairs"),
        pytest.param(["a", "b", "c", "d"], "abcd", id="one by one"),
        pytest.param(["a", "ab", "c", "cd"], "abcd", id="a question, then the pair"),
        pytest.param(["ab", "o", "os", "y", "ys"], "abosys", id="a question of no substance, then the pair"),
        # Windows
        pytest.param(["abcd", "cdef", "efgh"], "abcdefgh", id="a window that slides"),
        pytest.param(["abcd", "defg", "ghij"], "abcdefghij", id="a window that slides and shares one message"),
        pytest.param(["abcdef", "def"], "abcdef", id="the end alone"),
        pytest.param(["abcdef", "ef"], "abcdef", id="the last exchange again"),
        # Said again
        pytest.param(["y", "y"], "yy", id="yes twice"),
        pytest.param(["ab", "y", "y"], "abyy", id="yes twice, later"),
        pytest.param(["ys", "ys"], "ysys", id="yes twice, answered"),
        pytest.param(["abys", "ys", "ys"], "abysysys", id="yes three times, answered"),
        pytest.param(["abcdef", "a"], "abcdefa", id="the first words again"),
        pytest.param(["abcdef", "ab"], "abcdefab", id="the first exchange again, much later"),
        pytest.param(["abc", "c"], "abcc", id="a question alone, again"),
        pytest.param(["abcdef", "f"], "abcdeff", id="an answer alone, again"),
        pytest.param(["ab", "cd", "ab", "ab"], "abcdabab", id="an exchange that was had before, twice more"),
        pytest.param(["abysef", "ysgh"], "abysefysgh", id="a second yes begins what is new"),
        pytest.param(["abys", "ysgh"], "abysysgh", id="a window, or a second yes: recorded"),
        # Edits
        pytest.param(["abcd", "abcf"], "abcf", id="the answer given again"),
        pytest.param(["abcd", "abcfgh"], "abcfgh", id="the answer given again, and on"),
        pytest.param(["abcd", "abCf"], "abCf", id="the question rephrased"),
        pytest.param(["abcd", "abC"], "abC", id="the question rephrased, not answered yet"),
        pytest.param(["abc", "abCd"], "abCd", id="the question rephrased before it was answered"),
        pytest.param(["abcd", "abcf", "abcd"], "abcd", id="back and forth"),
        pytest.param(["abcd", "afcd"], "afcd", id="the first answer given again"),
        pytest.param(["abcd", "afcdgh"], "afcdgh", id="the first answer given again, and on"),
        pytest.param(["abcd", "afcd", "ahcd", "ajcdkl"], "ajcdkl", id="the first answer given again and again"),
        pytest.param(["abcdef", "abchef"], "abchef", id="an answer in the middle given again"),
        pytest.param(["abcdef", "ajcdef", "abcdef"], "abcdef", id="the first answer, back and forth"),
        pytest.param(["abcdf", "aecdf"], "abcdfaecdf", id="a question in the place of an answer"),
        # No edits
        pytest.param(["abys", "afys"], "abysafys", id="another first answer, with small talk alone behind"),
        pytest.param(["abcdef", "ajcd"], "abcdefajcd", id="another first answer, without the end"),
        pytest.param(["ab", "af"], "abaf", id="another answer to the first question: said again?"),
        pytest.param(["osyn", "osys"], "osynosys", id="another answer, after small talk alone"),
        pytest.param(["abcdf", "abcdh"], "abcdfabcdh", id="another second answer"),
        pytest.param(["abcdef", "abC"], "abcdefabC", id="a question rephrased that was not the last"),
        pytest.param(["abcd", "abeh"], "abcdabeh", id="another question: nothing is taken away"),
        pytest.param(["abcdef", "abch"], "abcdefabch", id="an edit in the middle: nothing is taken away"),
        pytest.param(["abcd", "abeh", "abehij"], "abcdabehij", id="what was doubled once is known then"),
        pytest.param(["osab", "oscd"], "osaboscd", id="a greeting before something new"),
        pytest.param(["osysab", "osyscd"], "osysabosyscd", id="small talk before something new"),
        pytest.param(["osabcd", "osefgh"], "osabcdosefgh", id="a greeting again, before a longer talk"),
        # A state that was rolled back
        pytest.param(["abcdef", "abcd"], "abcdef", id="the beginning again"),
        pytest.param(["osysab", "osys"], "osysabosys", id="a beginning of no substance again"),
    ],
)
def test_without_ids_a_delivery_is_compared_with_what_is_recorded(deliveries: list[str], standing: str) -> None:
    assert message_flow_of(after(*deliveries)) == standing


def test_a_repeated_greeting_takes_nothing_away() -> None:
    """Six turns, and the next day only what is new, which begins as the thread did."""
    conversation = Conversation()
    talk = [("Hello", "Hi"), ("I moved to Bergen", "Noted."), ("I am allergic to penicillin", "I will remember.")]
    for question, answer in talk:
        conversation.send(says(question), says(answer, role="assistant"))
    conversation.send(says("Hello"), says("Welcome back, Ada!", role="assistant"))
    assert conversation.standing == [*(text for pair in talk for text in pair), "Hello", "Welcome back, Ada!"]
    assert not conversation.thread.superseded


def test_a_question_with_another_number_is_another_question() -> None:
    conversation = after("ab")
    conversation.send(says("My booking is number 1234"), says("Found it.", role="assistant"))
    conversation.send(*said("ab"), says("My booking is number 1243"), says("Found it.", role="assistant"))
    assert {"My booking is number 1234", "My booking is number 1243"} <= set(conversation.standing)


def test_words_of_the_same_length_as_an_erased_turn_are_recorded() -> None:
    for key in (b"k" * 32, None):
        conversation = Conversation(key)
        for question, answer in (("I am Ada", "Hello"), ("my PIN is 1234", "Noted."), ("I like tea", "Good.")):
            conversation.send(says(question), says(answer, role="assistant"))
        conversation.erase(3)
        conversation.send(says("I live with Bo"), says("Who is Bo?", role="assistant"))
        assert conversation.standing == [
            "I am Ada", "Hello", "Noted.", "I like tea", "Good.", "I live with Bo", "Who is Bo?",
        ]  # fmt: skip


def test_the_same_words_of_another_speaker_are_another_turn() -> None:
    conversation = Conversation()
    conversation.send(says(WORDS["a"]))
    conversation.send(says(WORDS["a"], role="assistant"))
    assert len(conversation.standing) == 2


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("ok", False),
        ("Hello", False),
        ("How do?", False),
        ("thank you very much", False),
        ("my PIN is 1234", True),
        ("I live in Oslo", True),
        ("好的，谢谢你", False),
        ("我住在奥斯陆", True),
        ("?!… — …!?", False),
    ],
)
def test_a_text_of_substance_is_more_than_an_acknowledgement(text: str, enough: bool) -> None:
    assert has_substance(text) is enough


DOCUMENTED = re.findall(
    r"^\| `((?:[QARB]\d ?)+)`[^|]*\| ([^|]+?)(?:, which .*?|) \|",
    (Path(__file__).parents[4] / "docs" / "reference" / "messages.md")
    .read_text()
    .partition("| delivery | recorded |")[2],
    re.MULTILINE,
)


def test_the_page_has_examples() -> None:
    assert len(DOCUMENTED) == 10


@pytest.mark.parametrize(("delivery", "recorded"), DOCUMENTED, ids=[delivery for delivery, _ in DOCUMENTED])
def test_the_examples_of_the_page_are_true(delivery: str, recorded: str) -> None:
    letters = dict(zip(["Q1", "A1", "Q2", "A2", "Q3", "A3", "R2", "B1", "B2"], "abcdefCfh", strict=True))
    sent = "".join(letters[name] for name in delivery.split())
    wanted = {"nothing": "", "all four": sent, "both": sent}.get(recorded)
    if wanted is None:
        wanted = "".join(letters[name] for name in re.findall(r"[QARB]\d", recorded.partition(", which")[0]))
    conversation = after("abcd")
    before = len(conversation.thread.turns)
    conversation.send(*said(sent))
    spelled = {text: letter for letter, text in WORDS.items()}
    assert "".join(spelled[turn.content] for turn in conversation.thread.turns[before:] if turn) == wanted


# Some with ids


def mixed(*parts: str) -> list[Kept]:
    """`a1` is message a under the id 1, `b` one without."""
    found = []
    for part in parts:
        (message,) = said(part[0])
        found.append(says(message.content, part[1:] or None, message.role))
    return found


@pytest.mark.parametrize(
    ("deliveries", "standing"),
    [
        pytest.param([["o1", "s"], ["o1", "s"]], "os", id="the whole again"),
        pytest.param([["o1", "s"], ["o1", "s", "y2", "s"]], "osys", id="growing, answers alike"),
        pytest.param([["o1", "s"], ["y2", "s"], ["o3", "s"]], "osysos", id="pairs, answers alike"),
        pytest.param([["o1"], ["o1", "s"], ["y2"], ["y2", "s"]], "osys", id="a question, then the pair, answers alike"),
        pytest.param([["a1", "b", "c2", "d"], ["c2", "d", "e3", "f"]], "abcdef", id="a window"),
        pytest.param([["o1", "s", "y2", "s"], ["y2", "s", "o3", "s"]], "osysos", id="a window, answers alike"),
        pytest.param([["a1", "b", "c2", "d"], ["a1", "b", "c2", "f"]], "abcf", id="the answer given again"),
        pytest.param([["a1", "b", "c2", "d"], ["c2", "f"]], "abcf", id="the answer given again, in a window"),
        pytest.param([["o1", "s"], ["o1", "n"]], "on", id="the first answer given again"),
        pytest.param([["a1", "b", "c2", "d", "e3", "f"], ["c2", "h"]], "abcdefh", id="a late other answer"),
        pytest.param([["o", "s1"], ["o", "n2"]], "oson", id="a question that has its answer is said again"),
        pytest.param(
            [["a1", "b", "c", "d"], ["a1", "b", "c", "f"]], "abcdbcf", id="a question without an id proves nothing"
        ),
        pytest.param([["a1", "b", "c2", "d"], ["h", "c2", "f"]], "abcdhf", id="something else before the question"),
        pytest.param([["a1", "b2"], ["a1", "f"]], "af", id="an answer with an id given again without one"),
        pytest.param([["a1", "b2"], ["a1", "b"]], "ab", id="an answer told again without its id"),
        pytest.param([["a1", "b2"], ["a1", "f3"]], "abf", id="an answer with another id: two agents may have given it"),
        pytest.param([["c1", "d", "f"], ["c1", "d"]], "cdf", id="the same answer, and more was said since"),
        pytest.param([["c1", "d", "e"], ["c1", "f"]], "cdef", id="more was said since"),
        pytest.param([["a1", "b"], ["a1", "b", "o2", "s"], ["a1", "b", "o2", "s"]], "abos", id="grown, and again"),
    ],
)
def test_where_some_have_ids_the_others_are_known_by_them(deliveries: list[list[str]], standing: str) -> None:
    conversation = Conversation()
    for delivery in deliveries:
        conversation.send(*mixed(*delivery))
    assert message_flow_of(conversation) == standing


def test_a_revised_question_does_not_double_the_answers_without_ids() -> None:
    conversation = Conversation()
    conversation.send(*mixed("a1", "b", "c2", "d"))
    conversation.send(*mixed("a1", "b", "C2", "d"))
    assert Counter(message_flow_of(conversation)) == Counter("abdC")
    conversation.send(*mixed("a1", "b", "C2", "d", "e3", "f"))
    assert Counter(message_flow_of(conversation)) == Counter("abdCef")


def test_an_erased_turn_stays_out_where_an_earlier_answer_is_given_again() -> None:
    conversation = after("abcdef")
    conversation.seal = None
    conversation.erase(4)
    conversation.send(*said("ajcdef"))
    assert message_flow_of(conversation) == "ajcef"


def test_a_host_that_stops_sending_ids_is_understood() -> None:
    conversation = Conversation()
    conversation.send(*mixed("a1", "b2"))
    conversation.send(*said("abcd"))
    assert message_flow_of(conversation) == "abcd"


# What the host says of its delivery


def test_append_takes_everything_as_new() -> None:
    conversation = after("abcd")
    assert conversation.send(*said("abcd"), mode="append") == 4
    assert message_flow_of(conversation) == "abcdabcd"


@pytest.mark.parametrize(
    ("first", "second", "recorded"),
    [
        pytest.param("abcd", "abcd", 0, id="the same"),
        pytest.param("ab", "abcd", 2, id="more"),
        pytest.param("abcdef", "ab", 0, id="less"),
        pytest.param("abcdef", "abkl", 2, id="an edit in the middle"),
        pytest.param("abcdef", "cdef", 4, id="without its beginning"),
        pytest.param("abcd", "", 0, id="nothing"),
        pytest.param("", "ab", 2, id="the first"),
        pytest.param("osos", "os", 0, id="repeated words"),
    ],
)
def test_replace_leaves_standing_exactly_what_was_sent(first: str, second: str, recorded: int) -> None:
    conversation = after(first)
    assert conversation.send(*said(second), mode="replace") == recorded
    assert message_flow_of(conversation) == second
    assert conversation.thread.withdrawn == set()


def test_what_was_replaced_is_recorded_when_it_is_said_again() -> None:
    conversation = after("abcdef")
    conversation.send(*said("ab"), mode="replace")
    conversation.send(*said("abcdef"))
    assert message_flow_of(conversation) == "abcdef"


def test_replace_with_ids_leaves_standing_exactly_what_was_sent() -> None:
    conversation = Conversation()
    conversation.send(*mixed("a1", "b2", "c3", "d4"))
    for delivery in (["a1", "b2", "e5", "f6"], ["b2", "a1"], ["a1", "b"], ["C3", "a1", "b2"], ["a9", "b2"]):
        conversation.send(*mixed(*delivery), mode="replace")
        assert message_flow_of(conversation) == "".join(part[0] for part in delivery)


def test_replace_with_ids_and_nothing_changed_records_nothing_and_supersedes_nothing() -> None:
    conversation = Conversation()
    conversation.send(*mixed("a1", "b2", "c3", "d4"))
    assert conversation.send(*mixed("a1", "b2", "c3", "d4"), mode="replace") == 0
    assert conversation.thread.superseded == set()
    assert conversation.send(*mixed("a1", "b2", "e3", "d4"), mode="replace") == 2
    assert sorted(conversation.thread.superseded) == [3, 4]


@given(st.lists(st.text("abosyn", max_size=6), max_size=6), st.booleans())
def test_replace_leaves_standing_what_was_sent_whatever_came_before(deliveries: list[str], ids: bool) -> None:
    conversation = Conversation()
    for number, letters in enumerate(deliveries):
        messages = said(letters)
        if ids:
            messages = [says(m.content, f"{n}", m.role) for n, m in enumerate(messages)]
        conversation.send(*messages, mode="replace" if number % 2 else "conversation")
        if number % 2:
            assert message_flow_of(conversation) == letters


# What was erased


@pytest.mark.parametrize(
    ("recorded", "erased", "again", "standing"),
    [
        pytest.param("abcd", [1, 2, 3, 4], "abcd", "", id="the whole conversation"),
        pytest.param("abcd", [1, 2, 3, 4], "abcdef", "ef", id="and what came after"),
        pytest.param("abcd", [3], "abcdef", "abdef", id="one in the middle"),
        pytest.param("abcd", [4], "cdef", "abcef", id="the end, from a window"),
        pytest.param("abcd", [1], "ab", "bcdb", id="the first exchange, which may be said again"),
        pytest.param("abcd", [3], "abdef", "abdef", id="a host that left it out"),
        pytest.param("abcd", [1, 2], "abcf", "cf", id="an edit behind it"),
        pytest.param("abcd", [1], "a", "bcd", id="alone"),
        pytest.param("abcd", [3, 4], "efcd", "abef", id="in the midst of what is new"),
        pytest.param("abys", [3, 4], "ysef", "abysef", id="a second yes is no erased one"),
        pytest.param("osab", [1, 2], "osabcd", "abcd", id="words of no substance, in their place"),
    ],
)
def test_an_erased_turn_stays_out_when_it_is_sent_again(
    recorded: str, erased: list[int], again: str, standing: str
) -> None:
    conversation = after(recorded)
    conversation.erase(*erased)
    conversation.send(*said(again))
    assert message_flow_of(conversation) == standing
    if len(again) > 2:
        conversation.send(*said(again))
        assert message_flow_of(conversation) == standing


@pytest.mark.parametrize(
    ("deliveries", "turns"),
    [
        (["abcdef", "abcdefcg", "abcdefcghij", "abcdefcghijkl", "abcdefcghijkl"], [2, 1, 3, 2, 0]),
        (["ahcdef", "ahcdefgh", "ahcdefghij", "ahcdefghij"], [5, 2, 2, 0]),
    ],
)
def test_forgotten_words_in_the_midst_of_what_is_sent_again_double_nothing(
    deliveries: list[str], turns: list[int]
) -> None:
    conversation = after("abcd")
    conversation.erase(3)
    assert [conversation.send(*said(delivery)) for delivery in deliveries] == turns
    assert "c" not in message_flow_of(conversation)


def test_words_that_merely_expired_may_be_said_again() -> None:
    conversation = after("abcd")
    conversation.erase(1, 2, what="expired")
    conversation.send(*said("abcdef"))
    assert message_flow_of(conversation) == "cdef"
    conversation.send(*said("a"))
    assert message_flow_of(conversation) == "cdefa"


@pytest.mark.parametrize(
    ("erased", "again", "standing"),
    [
        pytest.param([3], "abcdef", "abdef", id="between two that stand"),
        pytest.param([4], "abcdef", "abcdef", id="at the end: recorded"),
        pytest.param([1], "abcdef", "abcdef", id="at the beginning: recorded"),
        pytest.param([2, 3], "abcdef", "abcdef", id="two in a row: recorded"),
    ],
)
def test_without_a_digest_an_erased_turn_is_known_between_two_that_stand(
    erased: list[int], again: str, standing: str
) -> None:
    """Erased before digests were kept, or its key is gone: its length proves nothing by itself."""
    conversation = Conversation(key=None)
    conversation.send(*said("abcd"))
    conversation.erase(*erased)
    conversation.send(*said(again))
    assert Counter(message_flow_of(conversation)) == Counter(standing)


@pytest.mark.parametrize(
    ("again", "standing"),
    [("I like teA", ["I like teA"]), ("I like tea", []), ("I  like TEA", []), ("I like gin", ["I like gin"])],
)
def test_a_new_text_under_an_erased_id_is_a_new_revision(again: str, standing: list[str]) -> None:
    conversation = Conversation()
    conversation.send(says("I like tea", "m1"))
    conversation.erase(1)
    conversation.send(says(again, "m1"))
    assert conversation.standing == ([] if again.lower().split() == ["i", "like", "tea"] else standing)


# Cost


def test_a_short_delivery_looks_at_the_end_of_a_long_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = Conversation()
    conversation.send(*(says(f"this is what I say, number {n}") for n in range(3_000)), mode="append")
    looked: list[int] = []
    remembered = Thread.remembered

    def counted(thread: Thread, n: int) -> Turn | Trace | None:
        looked.append(n)
        return remembered(thread, n)

    monkeypatch.setattr(Thread, "remembered", counted)
    for letters in ("a", "ab", "abcdefgh"):
        looked.clear()
        conversation.send(*said(letters))
        assert len(looked) < 50


def test_alignment_takes_no_square_of_the_time() -> None:
    """Each would take minutes if every message were compared with every turn."""
    many = ["ok"] * 8_000
    conversation = Conversation()
    conversation.send(*map(says, many))
    conversation.erase(4_000)
    assert conversation.send(*map(says, many)) == 0
    assert conversation.send(*map(says, [*many, "fine"])) == 1
    conversation.withdraw(5_000)
    assert conversation.send(*map(says, [*many, "fine", "ok"])) == 1
