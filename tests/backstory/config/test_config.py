"""Configuration: later beats earlier, each value knows its origin, what is wrong is told, and secrets are not."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory import Backstory
from backstory.config.loading import base_folder, load_settings, policy_values
from backstory.config.model_factory import as_model
from backstory.config.settings import ModelSettings, Settings, kind_of
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.core.policy import DEDUP_KEYS, EVICTIONS, EVIDENCE, FIRST, POLICY_KEYS, check_policy
from backstory.ledger.extraction.models.model import Prompt

SECRET = "sk-very-secret-0123456789"  # noqa: S105 the secret that must not be told


WEIGHTS = ["eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight"]
RANGES: dict[str, tuple[float, float]] = {
    "file_lock_timeout_seconds": (1, 120),
    "transcript_retention_days": (1, 365_000),
    "debounce_seconds": (0, 300),
    "max_wait_seconds": (1, 86_400),
    "answer_wait_seconds": (0, 86_400),
    "min_seconds_between_calls": (0, 60),
    "max_attempts": (1, 100),
    "workers": (1, 32),
    "shutdown_flush_timeout_seconds": (1, 300),
    "prompt_max_tokens": (4_000, 1_000_000),
    "max_facts_limit": (500, 1_000_000),
    "fact_confidence_threshold": (0, 1),
    "eviction_confidence_weight": (0, 1),
    "eviction_confirmation_weight": (0, 1),
    "eviction_access_weight": (0, 1),
    "eviction_confirmation_half_life_days": (1, 3650),
    "eviction_access_half_life_days": (1, 3650),
    "eviction_correction_reserved_fraction": (0, 1),
    "eviction_correction_reserved_max": (0, 100),
    "staleness_age_days": (30, 365),
    "staleness_min_candidates": (1, 50),
    "staleness_max_removals_per_cycle": (1, 50),
    "staleness_max_lifetime_multiplier": (1, 100),
    "said_again_share": (0, 1),
    "staleness_max_extension_days": (90, 36_500),
    "consolidation_min_facts": (3, 30),
    "consolidation_max_groups_per_cycle": (1, 10),
    "consolidation_max_sources": (2, 20),
    "summary_max_chars": (1, 20_000),
    "max_injection_tokens": (100, 8000),
    "guaranteed_token_budget": (50, 2000),
    "similarity_weight": (0, 1),
    "context_found_share": (0, 1),
    "confidence_weight": (0, 1),
    "max_context_turns": (1, 20),
    "search_min_similarity": (0, 1),
    "redis_ttl_seconds": (1, 2_592_000),
}
LOWEST = {
    "queue_max_depth": 0,
    "summary_min_turns": 0,
    "summary_min_tokens": 1,
    "search_top_k": 1,
}
CHOICES = {
    "mode": ("middleware", "tool"),
    "fact_eviction_policy": EVICTIONS,
    "dedup_key": DEDUP_KEYS,
    "evidence": EVIDENCE,
    "token_counting": ("tiktoken", "char"),
    "proxy_history": ("newest", "all"),
    "agent_reads": ("both", "fallback", "own"),
}
SWITCHES = [
    "enabled",
    "injection_enabled",
    "strict_user_scope",
    "shared_summaries",
    "gate_enabled",
    "context_turns",
    "free_categories",
    "staleness_review_enabled",
    "consolidation_enabled",
]
LISTS = ["staleness_protected_categories", "guaranteed_categories"]
TEXTS = [
    "instructions",
    "storage_path",
    "storage_class",
    "event_store",
    "model_name",
    "prompts_dir",
    "patterns_dir",
    "embedding_model",
    "embedding_base_url",
    "witness",
]
DEFAULTS: dict[str, object] = {
    "enabled": True,
    "injection_enabled": True,
    "mode": "middleware",
    "storage_path": None,
    "storage_class": "",
    "event_store": "jsonl:",
    "strict_user_scope": False,
    "shared_summaries": False,
    "agent_reads": "both",
    "file_lock_timeout_seconds": 10,
    "transcript_retention_days": None,
    "debounce_seconds": 30,
    "max_wait_seconds": 300,
    "answer_wait_seconds": 600,
    "min_seconds_between_calls": 0.5,
    "max_attempts": 5,
    "workers": 2,
    "queue_max_depth": 1000,
    "shutdown_flush_timeout_seconds": 30,
    "model_name": None,
    "model": ModelSettings(),
    "prompts_dir": None,
    "patterns_dir": None,
    "prompt_max_tokens": 24_000,
    "max_facts": 100,
    "max_facts_limit": 500,
    "fact_confidence_threshold": 0.7,
    "gate_enabled": True,
    "dedup_key": "visible",
    "fact_eviction_policy": "confidence",
    "eviction_confidence_weight": 0.65,
    "eviction_confirmation_weight": 0.25,
    "eviction_access_weight": 0.10,
    "eviction_confirmation_half_life_days": 90,
    "eviction_access_half_life_days": 30,
    "eviction_correction_reserved_fraction": 0.10,
    "eviction_correction_reserved_max": 10,
    "staleness_review_enabled": True,
    "staleness_age_days": 90,
    "staleness_min_candidates": 3,
    "staleness_max_removals_per_cycle": 10,
    "staleness_protected_categories": ("correction",),
    "staleness_max_lifetime_multiplier": 20,
    "said_again_share": 0.6,
    "evidence": "any",
    "free_categories": True,
    "categories": (),
    "instructions": "",
    "staleness_max_extension_days": 3650,
    "consolidation_enabled": False,
    "consolidation_min_facts": 8,
    "consolidation_max_groups_per_cycle": 3,
    "consolidation_max_sources": 8,
    "summary_min_turns": 10,
    "summary_min_tokens": 4000,
    "summary_max_chars": 1200,
    "max_injection_tokens": 2000,
    "token_counting": "tiktoken",
    "guaranteed_categories": ("correction",),
    "guaranteed_token_budget": 500,
    "similarity_weight": 0.6,
    "confidence_weight": 0.4,
    "max_context_turns": 3,
    "context_found_share": 0.7,
    "context_turns": True,
    "embedding_model": None,
    "embedding_base_url": None,
    "search_min_similarity": None,
    "search_top_k": 5,
    "redis_url": None,
    "redis_ttl_seconds": 1800,
    "witness": None,
    "proxy_upstream": None,
    "anthropic_base_url": None,
    "proxy_history": "newest",
    "hooks_leave_out": (),
}


def in_company(key: str, value: float) -> dict[str, object]:
    """A setting, with what has to go along with it."""
    others = [weight for weight in WEIGHTS if weight != key] if key in WEIGHTS else []
    return {key: value, **dict.fromkeys(others, (1 - value) / 2)}


def refusal(config: object = None, arguments: object = None, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as told:
        load_settings(config, arguments, env or {})  # type: ignore[arg-type]
    message = str(told.value)
    assert "\n" not in message
    return message


def yaml(path: Path, text: str) -> Path:
    file = path / "backstory.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# Who says what.


@pytest.mark.parametrize("key", ["proxy_upstream", "anthropic_base_url"])
@pytest.mark.parametrize("address", ["server.example/v1", "ftp://a/v1", "http://", "https://a/v1?key=k", "http://a b"])
def test_an_upstream_that_is_no_base_url_is_refused_without_being_shown(address: str, key: str) -> None:
    message = refusal({key: address})
    assert f"{key} is …" in message
    assert address not in message


def test_the_defaults_are_the_documented_ones() -> None:
    loaded = load_settings(environ={})
    assert set(loaded.origin.values()) == {"default"}
    assert set(loaded.origin) == set(Settings.model_fields)
    assert loaded.settings.model_dump() == Settings.model_construct(**DEFAULTS).model_dump()
    assert {*DEFAULTS} == {*Settings.model_fields}


def test_every_key_but_seven_is_in_a_table_of_values() -> None:
    tables = (RANGES, LOWEST, CHOICES, SWITCHES, LISTS, TEXTS)
    in_none = {
        "anthropic_base_url",
        "categories",
        "hooks_leave_out",
        "max_facts",
        "model",
        "proxy_upstream",
        "redis_url",
    }
    assert sorted(key for table in tables for key in table) == sorted({*DEFAULTS} - in_none)


def test_later_beats_earlier(tmp_path: Path) -> None:
    file = yaml(tmp_path, "memory:\n  max_facts: 20\n  workers: 3\n  debounce_seconds: 1\n")
    loaded = load_settings(file, {"max_facts": 40}, {"BACKSTORY_MAX_FACTS": "30", "BACKSTORY_WORKERS": "4"})
    told = {
        key: (getattr(loaded.settings, key), loaded.origin[key]) for key in ("max_facts", "workers", "max_attempts")
    }
    assert told == {"max_facts": (40, "argument"), "workers": (4, "environment"), "max_attempts": (5, "default")}
    assert (loaded.settings.debounce_seconds, loaded.origin["debounce_seconds"]) == (1, "file")


def test_a_mapping_stands_for_a_file() -> None:
    loaded = load_settings({"max_facts": 20}, None, {})
    assert (loaded.settings.max_facts, loaded.origin["max_facts"]) == (20, "file")


def test_an_argument_of_none_says_nothing() -> None:
    loaded = load_settings({"max_facts": 20}, {"max_facts": None, "workers": None}, {})
    assert (loaded.settings.max_facts, loaded.origin["max_facts"], loaded.origin["workers"]) == (20, "file", "default")


def test_the_environments_own_words_are_no_keys() -> None:
    env = {"BACKSTORY_HOME": "/x", "BACKSTORY_REQUIRE": "all", "BACKSTORY_BIN": "/y", "PATH": "/z", "MAX_FACTS": "3"}
    assert set(load_settings(None, None, env).origin.values()) == {"default"}


def test_the_environment_may_name_the_model() -> None:
    env = {"BACKSTORY_MODEL": "small"}
    assert load_settings({"model_name": "big"}, None, {}).settings.model_name == "big"
    assert load_settings(None, None, env).settings.model_name == "small"
    assert load_settings(None, None, env | {"BACKSTORY_MODEL_NAME": "other"}).settings.model_name == "other"
    assert load_settings(None, {"model_name": "mine"}, env).settings.model_name == "mine"
    assert load_settings(None, None, env).origin["model_name"] == "environment"


# What is wrong.


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("max_fact", "max_facts"),
        ("debounce", "debounce_seconds"),
        ("staleness_age", "staleness_age_days"),
        ("event_stor", "event_store"),
    ],
)
def test_an_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    assert f"no configuration key {key} (from the file); the nearest is {nearest}" in refusal({key: 1})
    assert f"no configuration key {key} (from the argument); the nearest is {nearest}" in refusal(None, {key: 1})
    env = {f"BACKSTORY_{key.upper()}": "1"}
    assert f"no configuration key {key} (from the environment); the nearest is {nearest}" in refusal(env=env)


@pytest.mark.parametrize("name", ["PORT", "PORT_8765_TCP", "SERVICE_HOST", "NATS_SERVICE_PORT_CLIENT"])
def test_a_variable_that_kubernetes_sets_for_a_service_says_how_to_be_without_it(name: str) -> None:
    assert "give the pod `enableServiceLinks: false`" in refusal(env={f"BACKSTORY_{name}": "tcp://10.0.0.1:8765"})


def test_an_unknown_key_that_is_like_none_is_told_all_the_same() -> None:
    assert refusal({"zzzzqqqq": 1}) == "there is no configuration key zzzzqqqq (from the file)"
    assert "no configuration key 3 " in refusal({3: 1})
    assert "no configuration key True " in refusal({True: 1})


def test_an_unknown_key_of_the_model_names_the_nearest() -> None:
    assert "no configuration key model.temprature (from the file); the nearest is model.temperature" in refusal(
        {"model": {"temprature": 1}}
    )


@pytest.mark.parametrize(("key", "low", "high"), [(key, *ends) for key, ends in RANGES.items()])
def test_a_value_outside_its_range_names_the_range(key: str, low: float, high: float) -> None:
    assert kind_of(key).endswith(f" from {low} to {high}")
    for value in (low, high):
        assert getattr(load_settings(in_company(key, value), None, {}).settings, key) == value
    for value in (low - 1, high + 1):
        assert refusal({key: value}) == f"{key} must be {kind_of(key)}, got {value} (from the file)"
    assert refusal(None, {key: low - 1}) == f"{key} must be {kind_of(key)}, got {low - 1} (from the argument)"
    assert refusal(env={f"BACKSTORY_{key.upper()}": str(high + 1)}) == (
        f"{key} must be {kind_of(key)}, got '{high + 1}' (from the environment)"
    )


@pytest.mark.parametrize(("key", "low"), LOWEST.items())
def test_a_value_below_its_range_names_where_that_begins(key: str, low: int) -> None:
    assert kind_of(key).endswith(f" from {low} upwards")
    assert getattr(load_settings({key: low}, None, {}).settings, key) == low
    assert getattr(load_settings({key: 10**9}, None, {}).settings, key) == 10**9
    assert refusal({key: low - 1}) == f"{key} must be {kind_of(key)}, got {low - 1} (from the file)"


def test_a_text_that_is_too_long_names_the_most() -> None:
    refused = refusal({"instructions": "x" * 4_001})
    assert refused == f"instructions must be a string of at most 4000 characters, got '{'x' * 99}… (from the file)"


@pytest.mark.parametrize(("key", "words"), CHOICES.items())
def test_a_word_that_is_no_choice_names_the_choices(key: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert getattr(load_settings({key: word}, None, {}).settings, key) == word
    for wrong in ("other", "", 3, None, [words[0]]):
        assert refusal({key: wrong}) == f"{key} must be one of {', '.join(words)}, got {wrong!r} (from the file)"


@pytest.mark.parametrize("key", SWITCHES)
def test_a_switch_is_on_or_off(key: str) -> None:
    for value in (True, False):
        assert getattr(load_settings({key: value}, None, {}).settings, key) is value
        env = {f"BACKSTORY_{key.upper()}": str(value).lower()}
        assert getattr(load_settings(None, None, env).settings, key) is value
    for wrong in ("perhaps", 2, None, []):
        assert refusal({key: wrong}) == f"{key} must be true or false, got {wrong!r} (from the file)"


@pytest.mark.parametrize("key", LISTS)
def test_a_list_of_categories_may_be_given_with_commas(key: str) -> None:
    def read(value: object) -> object:
        return getattr(load_settings({key: value}, None, {}).settings, key)

    assert read(["goal", "correction"]) == ("goal", "correction")
    assert (read([]), read("goal"), read("")) == ((), ("goal",), ())
    loaded = load_settings(None, None, {f"BACKSTORY_{key.upper()}": " goal, context ,"})
    assert getattr(loaded.settings, key) == ("goal", "context")
    assert refusal({key: ["goal", "luck"]}) == (
        f"{key} is ['goal', 'luck'] (from the file): 'luck' is not a category; use preference, knowledge, context, "
        "behavior, goal, correction"
    )
    assert refusal({key: [3]}).startswith(f"{key}.0 must be one of preference, knowledge")
    for wrong in (3, None, {"goal": 1}):
        assert "must be a list of preference, knowledge" in refusal({key: wrong})


def test_folders_that_hooks_leave_out_are_absolute_paths() -> None:
    loaded = load_settings(None, None, {"BACKSTORY_HOOKS_LEAVE_OUT": "~/secret, /srv"})
    assert loaded.settings.hooks_leave_out == ("~/secret", "/srv")
    assert "'secret' is no absolute path" in refusal({"hooks_leave_out": ["secret"]})
    assert refusal({"hooks_leave_out": 3}).startswith("hooks_leave_out must be a list of paths, got 3")


@pytest.mark.parametrize("key", TEXTS)
def test_a_text_is_a_text(key: str) -> None:
    assert getattr(load_settings({key: "/x"}, None, {}).settings, key) == "/x"
    for wrong in (3, True, ["x"], {}):
        assert refusal({key: wrong}).startswith(f"{key} must be {kind_of(key)}, got ")


@pytest.mark.parametrize("key", [*RANGES, *LOWEST, "max_facts"])
def test_a_truth_value_or_a_word_is_no_number(key: str) -> None:
    for value in (True, False, "many", [1]):
        assert refusal({key: value}) == f"{key} must be {kind_of(key)}, got {value!r} (from the file)"


def test_a_refusal_says_what_the_value_has_to_be() -> None:
    assert refusal({"workers": "many"}) == "workers must be a whole number from 1 to 32, got 'many' (from the file)"
    assert refusal({"debounce_seconds": "long"}).startswith("debounce_seconds must be a number from 0 to 300,")
    assert refusal({"max_facts": "ten"}).startswith(
        "max_facts must be a whole number from 10 to max_facts_limit, which is 500 or more,"
    )
    assert refusal({"model": {"temperature": 3}}) == (
        "model.temperature must be a number from 0 to 2, got 3 (from the file)"
    )
    assert refusal({"model": "gpt"}) == "model must be keys with values, got … (from the file)"


def test_the_three_weights_of_eviction_come_to_one() -> None:
    told = refusal({"eviction_confidence_weight": 0.9}, {"eviction_access_weight": 0.2})
    assert told == (
        "eviction_confidence_weight is 0.9 (from the file), eviction_confirmation_weight is 0.25 (from the default), "
        "eviction_access_weight is 0.2 (from the argument): together they must add up to 1, not to 1.35"
    )
    thirds = {"eviction_confidence_weight": 0.1, "eviction_confirmation_weight": 0.2, "eviction_access_weight": 0.7}
    assert load_settings(thirds, None, {}).settings.eviction_access_weight == 0.7
    assert load_settings({**thirds, "eviction_access_weight": 0.7 + 5e-10}, None, {})
    assert "must add up to 1" in refusal({**thirds, "eviction_access_weight": 0.7 + 5e-9})


def test_deerflows_name_of_a_policy_is_understood() -> None:
    assert load_settings({"fact_eviction_policy": "hybrid-v1"}, None, {}).settings.fact_eviction_policy == "hybrid"
    assert policy_values(load_settings(None, {"fact_eviction_policy": "hybrid-v1"}, {})) == {
        "fact_eviction_policy": "hybrid"
    }


def test_max_facts_lies_from_ten_to_its_limit() -> None:
    assert "from 10 to max_facts_limit" in refusal({"max_facts": 9})
    assert "it must be from 10 to max_facts_limit, 500" in refusal({"max_facts": 501})
    assert load_settings({"max_facts": 501, "max_facts_limit": 600}, None, {}).settings.max_facts == 501
    assert "max_facts_limit, 600" in refusal({"max_facts": 601, "max_facts_limit": 600})
    assert refusal({"max_facts": 501}, None, {"BACKSTORY_MAX_FACTS_LIMIT": "500"}) == (
        "max_facts is 501 (from the file): it must be from 10 to max_facts_limit, 500"
    )
    assert load_settings({"max_facts": 10}, None, {}).settings.max_facts == 10


@pytest.mark.parametrize("value", ["ten", None, [1], {}, float("nan"), float("inf"), "", "1.5"])
def test_a_value_that_is_no_number(value: object) -> None:
    assert refusal({"max_facts": value}).startswith("max_facts must be ")


def test_several_mistakes_are_told_at_once() -> None:
    told = refusal({"max_facts": 1, "workers": 0, "fact_eviction_policy": "luck"})
    assert all(key in told for key in ("max_facts", "workers", "fact_eviction_policy", "confidence"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models: 20\n", "no section `memory:`"),
        ("- a\n", "no section `memory:`"),
        ("memory: 7\n", "no section `memory:`"),
        ("memory:\n - max_facts\n", "no section `memory:`"),
        ("just words", "no section `memory:`"),
        ("memory: [unclosed\n", "is not valid YAML at line 2, column 1"),
        ("memory:\n\tmax_facts: 1\n", "is not valid YAML at line 2, column 1"),
        ("memory: &a\n  b: *c\n", "is not valid YAML"),
        ("a\0b", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, why: str) -> None:
    file = yaml(tmp_path, text)
    told = refusal(file)
    assert why in told
    assert str(file) in told


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "memory:\n", "memory: {}\n", "memory:\n  # max_facts: 10\nother: 1\n"]
)
def test_a_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    assert set(load_settings(yaml(tmp_path, text), None, {}).origin.values()) == {"default"}


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "nowhere.yaml")
    assert "cannot be read" in refusal(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refusal(tmp_path / "binary")


def test_a_file_makes_no_objects(tmp_path: Path) -> None:
    assert "is not valid YAML" in refusal(yaml(tmp_path, "memory: !!python/object/apply:os.getcwd []\n"))


def test_other_sections_are_somebody_elses(tmp_path: Path) -> None:
    file = yaml(tmp_path, "models: [1]\nmemory:\n  max_facts: 20\nsandbox: {}\n")
    assert load_settings(file, None, {}).settings.max_facts == 20


# What is reported.


def said(caplog: pytest.LogCaptureFixture, *layers: object) -> list[str]:
    """What is warned of while these are loaded."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "backstory"):
        load_settings(*layers)  # type: ignore[arg-type]
    return [record.getMessage() for record in caplog.records]


def test_no_key_of_ours_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    stated = {key: value for key, value in DEFAULTS.items() if value is not None}
    assert said(caplog, {**stated, "patterns_dir": "p", "model": {}}, None, {}) == []


# Secrets.


@pytest.mark.parametrize(
    "model",
    [
        {"api_key": [SECRET]},
        {"api_key": {"value": SECRET}},
        {"apikey": SECRET},
        {"key": SECRET},
        {"token": SECRET, "temperature": 9},
        {"base_url": [SECRET]},
        {"api_key": SECRET, "temperature": 9},
        {"api_key": SECRET, "provider": "other"},
        SECRET,
        [SECRET],
    ],
    ids=lambda model: str(model).replace(SECRET, "secret"),
)
def test_a_key_is_never_told(model: object) -> None:
    with pytest.raises(ConfigError) as told:
        load_settings({"model": model}, None, {})
    assert "model" in str(told.value)
    assert SECRET not in "".join(traceback.format_exception(told.value))


def test_a_key_in_a_broken_file_is_never_told(tmp_path: Path) -> None:
    for text in (
        f'memory:\n  model:\n    api_key: "{SECRET}\n',
        f"memory:\n  model: {{api_key: {SECRET}\n",
        f"api_key: {SECRET}",
    ):
        with pytest.raises(ConfigError) as told:
            load_settings(yaml(tmp_path, text), None, {})
        assert SECRET not in "".join(traceback.format_exception(told.value))


def test_a_key_is_not_in_what_is_printed() -> None:
    loaded = load_settings({"model": {"api_key": SECRET}}, None, {})
    assert loaded.settings.model.api_key == SECRET
    for printed in (repr(loaded), str(loaded), repr(loaded.settings.model), f"{loaded.settings}"):
        assert SECRET not in printed


@pytest.mark.parametrize("key", ["embedding_base_url", "event_store"])
def test_an_address_is_never_told(key: str) -> None:
    assert refusal({key: [f"x://:{SECRET}@y"]}) == f"{key} must be a string, got … (from the file)"


def test_a_long_value_is_told_in_part() -> None:
    assert (
        refusal({"workers": "x" * 10_000}) == f"workers must be {kind_of('workers')}, got '{'x' * 99}… (from the file)"
    )


@pytest.mark.parametrize("layer", ["file", "argument", "environment"])
def test_a_key_in_the_wrong_place_is_never_told(layer: str) -> None:
    told = {
        "file": lambda: refusal({"api_key": SECRET}),
        "argument": lambda: refusal(None, {"api_key": SECRET}),
        "environment": lambda: refusal(env={"BACKSTORY_API_KEY": SECRET}),
    }[layer]()
    assert SECRET not in told
    assert f"no configuration key api_key (from the {layer})" in told


# Where memory lies.


HOME = Path("/home/of/ada")


@pytest.mark.parametrize(
    ("home", "storage_path", "env", "folder"),
    [
        (None, None, {}, "~/.backstory"),
        (None, None, {"BACKSTORY_HOME": "/srv/b"}, "/srv/b"),
        (None, None, {"BACKSTORY_HOME": ""}, "~/.backstory"),
        (None, "/data/mem", {"BACKSTORY_HOME": "/srv/b"}, "/data/mem"),
        (None, "/data/mem/memory.json", {}, "/data/mem"),
        (None, "mem", {"BACKSTORY_HOME": "/srv/b"}, "/srv/b/mem"),
        (None, "mem", {}, "~/.backstory/mem"),
        (None, "mem/memory.json", {"BACKSTORY_HOME": "/srv/b"}, "/srv/b/mem"),
        (None, "memory.json", {"BACKSTORY_HOME": "/srv/b"}, "/srv/b"),
        (None, "", {"BACKSTORY_HOME": "/srv/b"}, "/srv/b"),
        (None, "~/mem", {}, "~/mem"),
        ("/here", "/data/mem", {"BACKSTORY_HOME": "/srv/b"}, "/here"),
        ("~/here", None, {}, "~/here"),
        (None, "my.folder", {"BACKSTORY_HOME": "/srv/b"}, "/srv/b/my.folder"),
    ],
)
def test_where_memory_lies(
    monkeypatch: pytest.MonkeyPatch, home: str | None, storage_path: str | None, env: dict[str, str], folder: str
) -> None:
    monkeypatch.setenv("HOME", str(HOME))
    settings = load_settings({} if storage_path is None else {"storage_path": storage_path}, None, {}).settings
    assert base_folder(home, settings, env) == Path(folder.replace("~", str(HOME)))


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert base_folder("here", Settings(), {}) == tmp_path / "here"
    assert base_folder(None, Settings(), {"BACKSTORY_HOME": "there"}) == tmp_path / "there"


def test_the_home_of_nobody_is_told() -> None:
    with pytest.raises(ConfigError, match="nobody-of-that-name"):
        base_folder("~nobody-of-that-name/x", Settings(), {})


def test_an_engine_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be jsonl:, postgresql://… or nats://…, got 'mysql'") as told:
        Backstory.open(tmp_path, event_store=f"mysql://ada:{SECRET}@db/x")
    assert SECRET not in str(told.value)


# What of it is policy.


def test_only_what_is_stated_is_policy() -> None:
    assert policy_values(load_settings(environ={})) == {}
    stated = load_settings({"max_facts": 20}, {"fact_confidence_threshold": 1}, {"BACKSTORY_WORKERS": "3"})
    assert policy_values(stated) == {"max_facts": 20, "fact_confidence_threshold": 1.0}


def test_configuration_and_ledger_have_the_same_defaults_and_ranges_that_agree() -> None:
    policy = FIRST
    assert {key: getattr(policy, key) for key in POLICY_KEYS} == {key: DEFAULTS[key] for key in POLICY_KEYS}
    for key in POLICY_KEYS:
        for end in (*RANGES.get(key, ()), *CHOICES.get(key, ())):
            stated = in_company(key, end) if key in RANGES else {key: end}
            check_policy(msgspec.structs.replace(policy, **policy_values(load_settings(stated, None, {}))))
    for cap in (10, 1_000_000):
        stated = {"max_facts": cap, "max_facts_limit": 1_000_000}
        check_policy(msgspec.structs.replace(policy, **policy_values(load_settings(stated, None, {}))))


def test_one_weight_of_eviction_states_them_all() -> None:
    stated = {"eviction_confidence_weight": 0.75, "eviction_confirmation_weight": 0.15}
    assert policy_values(load_settings(stated, None, {})) == {**stated, "eviction_access_weight": 0.1}


def test_every_kind_of_policy_value_comes_through() -> None:
    stated = {"gate_enabled": False, "dedup_key": "exact", "staleness_age_days": 40}
    env = {"BACKSTORY_STALENESS_PROTECTED_CATEGORIES": "goal,correction"}
    assert policy_values(load_settings(stated, None, env)) == {
        **stated,
        "staleness_protected_categories": ("goal", "correction"),
    }


def test_a_default_that_is_stated_is_stated() -> None:
    assert policy_values(load_settings({"max_facts": 100}, None, {})) == {"max_facts": 100}
    assert policy_values(load_settings(None, None, {"BACKSTORY_FACT_EVICTION_POLICY": "confidence"})) == {
        "fact_eviction_policy": "confidence"
    }


@given(st.dictionaries(st.sampled_from(["max_facts", "workers", "debounce_seconds"]), st.integers(10, 30)))
def test_whatever_is_stated_is_in_force(stated: dict[str, int]) -> None:
    loaded = load_settings(stated, None, {})
    assert {key: getattr(loaded.settings, key) for key in stated} == stated
    assert {key for key, origin in loaded.origin.items() if origin == "file"} == set(stated)
    assert policy_values(loaded) == {key: value for key, value in stated.items() if key == "max_facts"}


# From configuration to a model.


def test_without_a_key_or_an_address_there_is_no_model() -> None:
    assert as_model(None, Settings(), {}) is None
    assert as_model("gpt-x", Settings(), {}) is None


@pytest.mark.parametrize(
    ("given_name", "config", "name"),
    [
        (None, {}, "gpt-5-mini"),
        (None, {"model_name": "big"}, "big"),
        (None, {"model_name": "big", "model": {"model": "bigger"}}, "bigger"),
        ("mine", {"model_name": "big", "model": {"model": "bigger"}}, "mine"),
    ],
)
def test_which_model_is_asked(given_name: str | None, config: dict[str, object], name: str) -> None:
    settings = load_settings(config, None, {}).settings
    model = as_model(given_name, settings, {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert model is not None
    assert model.name == name


def test_a_function_is_a_model_and_an_asynchronous_one_is_none() -> None:
    def plain(messages: list[dict[str, str]]) -> str:
        return f"{[message['role'] for message in messages]}"

    async def later(messages: list[dict[str, str]]) -> str:
        return plain(messages)

    model = as_model(plain, Settings(), {})
    assert model is not None
    assert model.name == "plain"
    assert model.ask(Prompt("s", "u", "", {})).text == "['system', 'user']"
    with pytest.raises(ConfigError, match="later is asynchronous"):
        as_model(later, Settings(), {})


def test_an_openai_client_is_a_model_and_an_asynchronous_one_is_none() -> None:
    address = {"api_key": SECRET, "base_url": "http://127.0.0.1:9/v1"}
    with openai.OpenAI(**address) as client:
        model = as_model(client, Settings(), {})
        assert model is not None
        assert model.name == "gpt-5-mini"
    with pytest.raises(ConfigError, match="an asynchronous OpenAI client"):
        as_model(openai.AsyncOpenAI(**address), Settings(), {})


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(ConfigError, match="model must be a name"):
        as_model(7, Settings(), {})
