"""DeerFlow's own YAML in `prompts_dir` and `patterns_dir` has the meaning that it has there."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.events import Turn
from backstory.ledger.extraction.signals import load_signals
from backstory.ledger.extraction.templates import load_templates

CHAT = """
format: chat
version: "1.0"
messages:
  - role: system
    content: |-
      Keep a diary. Answer with {{"newFacts": []}}.
  - role: user
    content: |-
      Known: {current_memory}
      Said: {conversation}
      {correction_hint}{staleness_review_section}{consolidation_section}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def chat(user: str) -> str:
    return f"messages:\n  - role: user\n    content: {user!r}\n"


def said(*contents: str) -> list[Turn]:
    """Turns of a user and an assistant by turns."""
    return [
        Turn(n=n, id=f"t{n}", role=("assistant", "user")[n % 2], content=content, at="", anonymous=True)
        for n, content in enumerate(contents, 1)
    ]


# Prompts.


def test_a_template_of_messages_gives_the_system_message_and_the_question(tmp_path):
    write(tmp_path, "memory_update.chat.yaml", CHAT)
    templates = load_templates(tmp_path)
    assert templates["system.md"] == 'Keep a diary. Answer with {"newFacts": []}.'
    assert templates["update.md"] == (
        "Known: {{memory}}\nSaid: {{conversation}}\n{{hints}}{{staleness}}{{consolidation}}"
    )
    assert templates["hints.md"] == load_templates()["hints.md"]
    assert templates.digest != load_templates().digest


def test_the_parts_are_templates_of_one_text(tmp_path):
    write(tmp_path, "staleness_review.yaml", "template: 'Old: {stale_facts} {{}}'\n")
    write(tmp_path, "consolidation.yaml", "template: 'Alike: {consolidation_groups}, most {max_groups}'\n")
    templates = load_templates(tmp_path)
    assert templates["staleness.md"] == "Old: {{facts}} {}"
    assert templates["consolidation.md"] == "Alike: {{facts}}, most {{most}}"


def test_an_agents_own_template_comes_first_and_only_for_that_agent(tmp_path):
    write(tmp_path, "memory_update.chat.yaml", chat("all: {conversation}"))
    write(tmp_path, "coder/memory_update.chat.yaml", chat("coder: {conversation}"))
    write(tmp_path, "__default__/memory_update.chat.yaml", chat("lead: {conversation}"))
    shown = {agent: load_templates(tmp_path, agent)["update.md"] for agent in (None, "coder", "cook")}
    assert shown == {
        None: "lead: {{conversation}}",
        "coder": "coder: {{conversation}}",
        "cook": "all: {{conversation}}",
    }


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("memory_update.chat.yaml", "messages: [", "is no YAML"),
        ("memory_update.chat.yaml", "template: hello", "is no prompt template of DeerFlow"),
        ("memory_update.chat.yaml", "messages: []", "is no prompt template of DeerFlow"),
        ("memory_update.chat.yaml", "format: text\n" + chat("{conversation}"), "has the format 'text'"),
        ("memory_update.chat.yaml", chat("hello"), "has no placeholder {conversation}"),
        ("memory_update.chat.yaml", chat("{conversation} {conversation}"), "{conversation} 2 times"),
        ("memory_update.chat.yaml", chat("{conversation} {name}"), "has the placeholder {name}"),
        ("memory_update.chat.yaml", chat("{conversation.__class__}"), "placeholder {conversation.__class__}"),
        ("memory_update.chat.yaml", chat("{conversation!r}"), "placeholder {conversation!r}"),
        ("memory_update.chat.yaml", chat("{conversation:>9}"), "placeholder {conversation:>9}"),
        ("memory_update.chat.yaml", chat("{}{conversation}"), "placeholder {}"),
        ("memory_update.chat.yaml", chat("{conversation} {"), "neither a placeholder nor doubled"),
        ("memory_update.chat.yaml", chat("{conversation} {{{{memory}}}}"), "two pairs of literal braces"),
        (
            "memory_update.chat.yaml",
            "messages:\n  - {role: assistant, content: '{conversation}'}",
            "the roles are system and user",
        ),
        ("staleness_review.yaml", "template: ''", "is no prompt template of DeerFlow"),
        ("staleness_review.yaml", "format: chat\ntemplate: x", "has the format 'chat'"),
        ("consolidation.yaml", "template: '{stale_facts}'", "has the placeholder {stale_facts}"),
        ("memory_update.yaml", "template: x", "overrides no prompt template"),
        ("coder/stale.yml", "template: x", "overrides no prompt template"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_file(tmp_path, name, text, told):
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError) as error:
        load_templates(tmp_path)
    assert str(path) in str(error.value)
    assert told in str(error.value)


def test_two_files_for_one_template_are_an_error_that_names_both(tmp_path):
    ours = write(tmp_path, "staleness.md", "{{facts}}")
    theirs = write(tmp_path, "staleness_review.yaml", "template: x")
    with pytest.raises(ConfigError, match="keep one of them") as error:
        load_templates(tmp_path)
    assert str(ours) in str(error.value)
    assert str(theirs) in str(error.value)


def test_a_template_that_deerflow_itself_does_not_use_is_not_used_here(tmp_path):
    write(tmp_path, "fact_extraction.yaml", "template: '{message}'")
    assert load_templates(tmp_path).texts == load_templates().texts


# Patterns.


def test_patterns_are_matched_against_the_message_as_it_is(tmp_path):
    write(tmp_path, "goal.yaml", "- 'To Oslo'\n- {pattern: 'i must', flags: [ignorecase]}\n")
    signals = load_signals(tmp_path)
    assert signals.seen_in(said("Shall we go? To Oslo?")) == ("goal",)
    assert signals.seen_in(said("to oslo")) == ()
    assert signals.seen_in(said("I MUST")) == ("goal",)
    assert signals.seen_in(said("I prefer tea.")) == ("preference",)


def test_an_empty_file_switches_a_signal_off(tmp_path):
    write(tmp_path, "preference.yaml", "# none\n")
    assert load_signals(tmp_path).seen_in(said("I prefer tea.")) == ()


def test_of_a_trivial_message_and_its_answer_nothing_is_learned(tmp_path):
    write(tmp_path, "trivial.yaml", "- {pattern: 'ja+', flags: [ignorecase]}\n")
    turns = said("JAA!", "Good.", "Ja, I moved to Bern.", "Fine.")
    assert [turn.n for turn in load_signals(tmp_path).telling(turns)] == [3, 4]
    assert load_signals().telling(turns) == turns


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("goal.yaml", "- '('", "entry 1, '(', is not a regular expression"),
        ("goal.yaml", "- 'a*'", "matches every message"),
        ("goal.yaml", "goal: x", "must be a list of regular expressions"),
        ("goal.yaml", "- {flags: []}", "must be a list of regular expressions"),
        ("goal.yaml", "- 5", "must be a list of regular expressions"),
        ("trivial.yaml", "- {pattern: a, flags: [verbose]}", "has the flag 'verbose'"),
        ("goal.yaml", "- [", "is no YAML"),
        ("goals.yaml", "- a", "overrides no signal patterns"),
        ("goal.yml", "- a", "overrides no signal patterns"),
    ],
)
def test_patterns_that_cannot_be_used_are_an_error_that_names_the_file(tmp_path, name, text, told):
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError) as error:
        load_signals(tmp_path)
    assert str(path) in str(error.value)
    assert told in str(error.value)


def test_two_files_for_one_signal_are_an_error_that_names_both(tmp_path):
    write(tmp_path, "goal.yaml", "- a")
    write(tmp_path, "goal.toml", "english = ['a']")
    with pytest.raises(ConfigError, match=r"goal.toml and .*goal.yaml"):
        load_signals(tmp_path)


def test_an_edited_file_is_read_again(tmp_path):
    write(tmp_path, "goal.yaml", "- 'Oslo'")
    assert load_signals(tmp_path).seen_in(said("Oslo")) == ("goal",)
    write(tmp_path, "goal.yaml", "- 'Bergen'")
    assert load_signals(tmp_path).seen_in(said("Oslo")) == ()
