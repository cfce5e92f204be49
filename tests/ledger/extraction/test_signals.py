"""What is seen in the user's words (row D4): tables in both languages, the window, overrides, and a bound on time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doubles.cost import assert_no_square
from hypothesis import example, given
from hypothesis import strategies as st
from sentences import NOT_SHOWN, SHOWN, lines

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import Turn
from backstory.ledger.extraction import signals as clerk
from backstory.ledger.extraction.signals import SIGNALS, Signals, load_signals, statements
from backstory.ledger.text.acknowledgements import is_acknowledgement

_TO_TRADITIONAL = str.maketrans(dict(zip(clerk._SIMPLIFIED, clerk._TRADITIONAL, strict=True)))


def turns(*said: tuple[str, str]) -> list[Turn]:
    return [Turn(n=n, id=f"t{n}", role=role, content=text, at="") for n, (role, text) in enumerate(said, 1)]


def seen(text: str, signals: Signals | None = None) -> tuple[str, ...]:
    return (signals or load_signals()).seen_in(turns(("user", text)))


# What shows a signal


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_is_seen_in_each_sentence_of_its_table(signal):
    sentences = lines(SHOWN[signal])
    assert len(sentences) >= 40
    assert [text for text in sentences if signal not in seen(text)] == []


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_is_not_seen_in_sentences_that_only_look_like_it(signal):
    sentences = lines(NOT_SHOWN[signal])
    assert len(sentences) >= 40
    assert [text for text in sentences if signal in seen(text)] == []


@pytest.mark.parametrize("signal", SIGNALS)
def test_traditional_characters_are_read_as_simplified_ones(signal):
    chinese = [text for text in lines(SHOWN[signal]) if not text.isascii()]
    assert [text for text in chinese if signal not in seen(text.translate(_TO_TRADITIONAL))] == []


@pytest.mark.parametrize("signal", SIGNALS)
def test_case_width_and_a_longer_message_do_not_matter(signal):
    for text in lines(SHOWN[signal]):
        assert signal in seen(text.upper())
        assert signal in seen(f"Good morning.\n{text}\nHave a nice day!")
        assert signal in seen(f"早上好。\n{text}\n祝好")
        wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text if c not in "'`\"")
        assert seen(wide) == seen("".join(c for c in text if c not in "'`\""))


@pytest.mark.parametrize("signal", SIGNALS)
def test_what_is_quoted_asked_or_supposed_shows_nothing(signal):
    for text in lines(SHOWN[signal]):
        plain = text.rstrip(".。!！?？")
        if "?" in text or "？" in text:
            continue
        assert signal not in seen(f"> {text}")
        assert signal not in seen(f"```\n{text}\n```")
        assert signal not in seen(f"He wrote “{text}” on the wall")
        assert signal not in seen(f"My sister said {text}")
        assert signal not in seen(f"他说：{text}")
        assert signal not in seen(f"{plain}, right?")
        assert signal not in seen(f"{plain}，对吗？")


def test_signals_are_told_in_a_fixed_order():
    said = turns(("user", "We decided on Go."), ("user", "My name is Ada. I prefer tea. That's wrong, by the way."))
    assert load_signals().seen_in(said) == ("correction", "preference", "identity", "decision")
    assert load_signals().seen_in(said[::-1]) == ("correction", "preference", "identity", "decision")
    assert SIGNALS == ("correction", "reinforcement", "preference", "identity", "goal", "decision")


def test_a_request_behind_a_statement_does_not_make_it_a_question():
    for text in (
        "No, I meant Bergen, can you fix it?",
        "that's wrong can you try again?",
        "不对，应该是三点，你能改一下吗？",
    ):
        assert "correction" in seen(text)


def test_a_statement_with_a_question_mark_is_a_question():
    for text in ("That's wrong?", "So, I prefer tea?", "I'm a nurse?", "我喜欢喝茶？", "那么，我叫李雷？"):
        assert seen(text) == ()


def test_what_the_agent_is_quoted_with_is_not_the_users_own():
    for text in (
        "You said that's wrong.",
        "You suggested I prefer tea.",
        "You told me my name is Bob.",
        "你之前说我叫李雷",
    ):
        assert seen(text) == ()
    assert seen("You said it's blue, but that's wrong.") == ("correction",)


def test_an_answer_in_between_hides_nothing():
    assert seen("Is it wrong to skip tests? My name is Ada.") == ("identity",)


# The border to acknowledgements


def test_a_confirmation_that_says_more_is_a_reinforcement_and_no_bare_acknowledgement():
    for text in (
        "yes exactly, keep doing that",
        "Perfect, just like that again",
        "对，就是这样，以后都这样写",
        "完全正确，继续保持",
    ):
        assert "reinforcement" in seen(text)
        assert not is_acknowledgement(text)


@pytest.mark.parametrize(
    "text",
    ["yes exactly", "exactly!", "that's right", "you're right", "perfect, thanks!", "对的，没错", "太棒了", "👍", ""],
)
def test_a_bare_acknowledgement_shows_no_signal(text):
    assert is_acknowledgement(text)
    assert seen(text) == ()


# The window


def test_only_the_last_six_messages_are_looked_at():
    said = [("user", "That's wrong."), *[("assistant", "I see."), ("user", "Hm, tell me more.")] * 3]
    assert load_signals().seen_in(turns(*said)) == ()
    assert load_signals().seen_in(turns(*said[:6])) == ("correction",)


def test_other_roles_do_not_count_among_the_six():
    said = [("user", "That's wrong."), *[("tool", "{}")] * 30, *[("assistant", "I see.")] * 5]
    assert load_signals().seen_in(turns(*said)) == ("correction",)
    assert load_signals().seen_in(turns(*said, ("assistant", "Well."))) == ()


def test_what_the_agent_says_shows_nothing():
    assert (
        load_signals().seen_in(turns(("user", "Go on then, Ada."), ("assistant", "My name is Eve. I prefer tea.")))
        == ()
    )


def test_nothing_said_shows_nothing():
    assert load_signals().seen_in([]) == ()


# Long and hostile texts


def test_head_and_tail_of_a_long_message_are_looked_at():
    filler = "The quick brown fox jumps over it. " * 3_000
    assert seen(f"My name is Ada. {filler}") == ("identity",)
    assert seen(f"{filler} I prefer tea.") == ("preference",)
    assert seen(f"{filler} I prefer tea. {filler}") == ()


HOSTILE = [
    *(
        "no ",
        "i really ",
        "a",
        "'",
        '"',
        "你",
        "我",
        "不",
        "我想",
        "yes, ",
        ", ",
        "you have ",
        "x said ",
        "my big ",
        "i'm a ",
    ),
    *(
        "ﷺ",
        "\n",
        " ",
        "?",
        "“",
        "`",
        "> ",
        "i want to ",
        "i currently now ",
        "as a b-c ",
        "it's a b, ",
        "在",
        "a.",
        "...",
        "，",
    ),
    *(
        "以后都",
        "最近一直",
        "no,no,",
        "actually, ",
        "it's x, not y ",
        "他说",
        "写得很很",
        "你说得很",
        "我个人一般通常",
        "\x00",
        "我的目标",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_texts_cost_little(unit):
    load_signals()
    assert_no_square(seen, unit, 25_000)
    for before in ("", "i ", "我"):
        assert_no_square(lambda text, before=before: seen(before + text), unit, 70)


@given(st.text(max_size=400))
@example("?")
@example(", ,,?")
@example("''''\"“")
def test_any_text_gets_a_verdict(text):
    assert set(seen(text)) <= set(SIGNALS)
    assert "?" not in statements(text)[-1:]


# Patterns of one's own


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_a_folder_overrides_one_file_and_leaves_the_others(tmp_path):
    write(tmp_path, "goal.toml", "german = ['\\bmein ziel\\b']\nunless = ['kein']")
    own = load_signals(tmp_path)
    assert seen("Mein Ziel ist Rom.", own) == ("goal",)
    assert seen("Das ist kein Spaß, mein Ziel ist Rom. Guten Tag.", own) == ()
    assert seen("Das ist kein Spaß. Mein Ziel ist Rom.", own) == ("goal",)
    assert seen("My goal is Rome.", own) == ()
    assert seen("My goal is Rome.") == ("goal",)
    assert seen("I prefer tea.", own) == ("preference",)


def test_a_pattern_may_be_written_in_capitals_and_in_traditional_characters(tmp_path):
    write(tmp_path, "goal.toml", "mine = ['Mein ZIEL', '願景是']")
    own = load_signals(tmp_path)
    for text in ("Mein Ziel ist Rom", "我們的願景是和平", "我们的愿景是和平"):
        assert "goal" in seen(text, own)


def test_an_empty_folder_changes_nothing(tmp_path):
    write(tmp_path, "README.md", "about these patterns")
    assert seen("I prefer tea.", load_signals(tmp_path)) == ("preference",)


def test_patterns_are_read_once_and_again_when_a_file_changes(tmp_path):
    assert load_signals() is load_signals()
    write(tmp_path, "goal.toml", "mine = ['rome']")
    first = load_signals(tmp_path)
    assert load_signals(tmp_path) is first
    write(tmp_path, "goal.toml", "mine = ['oslo']")
    os.utime(tmp_path / "goal.toml", ns=(1, 1))
    assert seen("To Oslo then!", load_signals(tmp_path)) == ("goal",)
    (tmp_path / "goal.toml").unlink()
    assert seen("To Oslo then!", load_signals(tmp_path)) == ()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("goal.toml", "mine = ['fine', '(broken']", ("goal.toml", "entry 2 of mine", "(broken")),
        ("goal.toml", "mine = ['x{99999999999}']", ("goal.toml", "entry 1 of mine")),
        ("goal.toml", "unless = ['x*']", ("goal.toml", "entry 1 of unless", "every message")),
        ("goal.toml", "mine = [1]", ("goal.toml", "entry 1 of mine", "int")),
        ("goal.toml", "mine = 'x'", ("goal.toml", "mine must be a list", "got str")),
        ("goal.toml", "mine = [", ("goal.toml", "cannot be read")),
        ("gaol.toml", "mine = ['x']", ("gaol.toml", "goal.toml", "rename")),
    ],
)
def test_a_file_that_is_wrong_is_an_error_that_names_file_and_entry(tmp_path, name, text, told):
    write(tmp_path, name, text)
    with pytest.raises(ConfigError) as caught:
        load_signals(tmp_path)
    for part in (str(tmp_path), *told):
        assert part in str(caught.value)


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    (tmp_path / "goal.toml").write_bytes(b"mine = ['\xff']")
    with pytest.raises(ConfigError, match=r"goal\.toml"):
        load_signals(tmp_path)
    (tmp_path / "goal.toml").unlink()
    (tmp_path / "goal.toml").mkdir()
    with pytest.raises(ConfigError, match=r"goal\.toml"):
        load_signals(tmp_path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    for folder in (tmp_path / "none", Path(__file__)):
        with pytest.raises(ConfigError, match="patterns_dir"):
            load_signals(folder)
