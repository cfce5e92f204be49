"""A YAML configuration that says two things at once is refused with its line; one that YAML cannot read, as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstory.config.loading import Loaded, load_settings
from backstory.ledger.core.errors import ConfigError

SECRET = "sk-very-secret-0123456789"  # noqa: S105 the secret that must not be told


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backstory.yaml"


def load(file: Path, text: str) -> Loaded:
    file.write_text(text, encoding="utf-8")
    return load_settings(file, None, {})


def refusal(file: Path, text: str) -> str:
    with pytest.raises(ConfigError) as told:
        load(file, text)
    assert str(file) in str(told.value)
    assert SECRET not in str(told.value)
    return str(told.value).replace(f"the configuration file {file}", "FILE")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("memory:\n  max_facts: 20\n  max_facts: 30\n", "max_facts at line 2 and again at line 3: keep one of them"),
        ("memory:\n  workers: 2\nmemory:\n  max_facts: 30\n", "memory at line 1 and again at line 3"),
        ("max_facts: 20\n'max_facts': 30\n", "max_facts at line 1 and again at line 2"),
        (f"memory:\n  model:\n    api_key: {SECRET}\n    api_key: x\n", "api_key at line 3 and again at line 4"),
        ("memory:\n  backend_config: {mode: a, mode: b}\n", "mode at line 2 and again at line 2"),
        ("x: &a {mode: a, mode: b}\nmemory: *a\n", "mode at line 1 and again at line 1"),
    ],
)
def test_a_key_that_is_given_twice_is_an_error_that_says_where(file: Path, text: str, told: str) -> None:
    assert refusal(file, text).startswith(f"FILE has {told}")


def test_an_anchor_that_is_used_twice_is_understood(file: Path) -> None:
    text = "base: &a {max_facts: 20, workers: 3}\nmemory: {<<: *a, max_facts: 30, guaranteed_categories: &c [goal]"
    loaded = load(file, text + ", staleness_protected_categories: *c}\n")
    assert (loaded.settings.max_facts, loaded.settings.workers) == (30, 3)
    assert loaded.settings.staleness_protected_categories == ("goal",)


def test_two_merges_do_not_take_each_others_place(file: Path) -> None:
    loaded = load(file, "a: &a {max_facts: 20}\nb: &b {workers: 3}\nmemory:\n  <<: *a\n  <<: *b\n")
    assert (loaded.settings.max_facts, loaded.settings.workers) == (20, 3)


def test_what_is_wrong_in_somebody_elses_section_is_theirs(file: Path) -> None:
    loaded = load(file, "models: &m {a: 1, a: 2, b: *m}\nmodels: 3\nmemory: {max_facts: 30}\n")
    assert loaded.settings.max_facts == 30


@pytest.mark.parametrize(
    "text",
    [
        "memory: &a {x: *a}",
        "memory: &a\n  <<: *a\n",
        "memory: &a\n  model: {api_key: *a}\n",
        "memory: " + "[" * 1000,
        "memory:\n  model: {api_key: 2026-13-45}\n",
        f"memory:\n  model: {{api_key: !!int '{SECRET}'}}\n",
        "memory:\n  max_facts: !!bool maybe\n",
        "memory:\n  max_facts: !!timestamp maybe\n",
        "memory:\n  max_facts: " + "9" * 5000,
        'memory: "\\UFFFFFFFF"',
    ],
)
def test_a_file_that_yaml_chokes_on_is_the_files_fault(file: Path, text: str) -> None:
    assert refusal(file, text) == "FILE is not valid YAML: a value in it cannot be read"


@pytest.mark.parametrize("text", ["memory: {model: gpt-4}", "memory: {backend_config: {model: gpt-4}}"])
def test_a_model_that_is_only_named_is_told_the_key_for_that(file: Path, text: str) -> None:
    assert refusal(file, text) == (
        "model in FILE must have keys below it, such as {provider: …, model: …}; "
        "for the name of a model alone use model_name"
    )
    assert SECRET not in refusal(file, text.replace("gpt-4", SECRET))


def test_of_many_wrong_values_the_first_are_told(file: Path) -> None:
    with pytest.raises(ConfigError) as told:
        load(file, f"memory: {{guaranteed_categories: [{'1, ' * 500}]}}")
    assert str(told.value).count("guaranteed_categories") == 20
    assert str(told.value).endswith("; and 480 more")
