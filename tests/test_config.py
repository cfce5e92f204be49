"""Configuration: later beats earlier, each value knows its origin, what is wrong is told, and secrets are not."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory import Backstory
from backstory.config import _OTHER_KEYS, Settings, base_folder, load_settings, policy_values
from backstory.models import as_model
from ledger.errors import ConfigError
from ledger.extraction.model import Prompt

SECRET = "sk-very-secret-0123456789"  # noqa: S105 the secret that must not be told


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


def test_the_defaults_are_the_documented_ones() -> None:
    loaded = load_settings(environ={})
    assert set(loaded.origin.values()) == {"default"}
    assert set(loaded.origin) == set(Settings.model_fields)
    stated = loaded.settings
    assert (stated.max_facts, stated.fact_confidence_threshold, stated.fact_eviction_policy) == (100, 0.7, "confidence")
    assert (stated.debounce_seconds, stated.max_wait_seconds, stated.min_seconds_between_calls) == (30, 300, 0.5)
    assert (stated.file_lock_timeout_seconds, stated.shutdown_flush_timeout_seconds) == (10, 30)
    assert (stated.max_attempts, stated.workers, stated.queue_max_depth) == (5, 2, 1000)
    assert (stated.storage_path, stated.event_store, stated.model_name) == (None, "jsonl:", None)


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


def test_an_unknown_key_that_is_like_none_is_told_all_the_same() -> None:
    assert refusal({"zzzzqqqq": 1}) == "there is no configuration key zzzzqqqq (from the file)"
    assert "no configuration key 3 " in refusal({3: 1})
    assert "no configuration key True " in refusal({True: 1})


def test_an_unknown_key_of_the_model_names_the_nearest() -> None:
    assert "no configuration key model.temprature (from the file); the nearest is model.temperature" in refusal(
        {"model": {"temprature": 1}}
    )


RANGES = {
    "file_lock_timeout_seconds": (1, 120),
    "debounce_seconds": (0, 300),
    "max_wait_seconds": (1, 86_400),
    "min_seconds_between_calls": (0, 60),
    "max_attempts": (1, 100),
    "workers": (1, 32),
    "shutdown_flush_timeout_seconds": (1, 300),
    "fact_confidence_threshold": (0, 1),
}


@pytest.mark.parametrize(("key", "low", "high"), [(key, *bounds) for key, bounds in RANGES.items()])
def test_a_value_outside_its_range_names_the_range(key: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(load_settings({key: value}, None, {}).settings, key) == value
    for value in (low - 1, high + 1):
        assert refusal({key: value}) == f"{key} is {value} (from the file): it lies from {low} to {high}"
    assert f"{key} is '{high + 1}' (from the environment): it lies from" in refusal(
        env={f"BACKSTORY_{key.upper()}": str(high + 1)}
    )


def test_max_facts_lies_from_ten_to_its_limit() -> None:
    assert "it lies from 10 to max_facts_limit" in refusal({"max_facts": 9})
    assert "it lies from 10 to max_facts_limit, 500" in refusal({"max_facts": 501})
    assert load_settings({"max_facts": 501, "max_facts_limit": 600}, None, {}).settings.max_facts == 501
    assert "max_facts_limit, 600" in refusal({"max_facts": 601, "max_facts_limit": 600})
    assert "it lies from 500 upwards" in refusal({"max_facts_limit": 499})
    assert "it lies from 0 upwards" in refusal({"queue_max_depth": -1})


@pytest.mark.parametrize("value", ["ten", None, [1], {}, float("nan"), float("inf"), "", "1.5"])
def test_a_value_that_is_no_number(value: object) -> None:
    assert refusal({"max_facts": value}).startswith("max_facts is ")


def test_several_mistakes_are_told_at_once() -> None:
    told = refusal({"max_facts": 1, "workers": 0, "fact_eviction_policy": "luck"})
    assert all(key in told for key in ("max_facts", "workers", "fact_eviction_policy", "confidence"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_facts: 20\n", "no section `memory:`"),
        ("- a\n", "no section `memory:`"),
        ("memory: 7\n", "no section `memory:`"),
        ("memory:\n - max_facts\n", "no section `memory:`"),
        ("just words", "no section `memory:`"),
        ("memory: [unclosed\n", "is no YAML at line 2, column 1"),
        ("memory:\n\tmax_facts: 1\n", "is no YAML at line 2, column 1"),
        ("memory: &a\n  b: *c\n", "is no YAML"),
        ("a\0b", "is no YAML"),
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
    assert "is no YAML" in refusal(yaml(tmp_path, "memory: !!python/object/apply:os.getcwd []\n"))


def test_other_sections_are_somebody_elses(tmp_path: Path) -> None:
    file = yaml(tmp_path, "models: [1]\nmemory:\n  max_facts: 20\nsandbox: {}\n")
    assert load_settings(file, None, {}).settings.max_facts == 20


# What has no effect yet.


@pytest.mark.parametrize("key", sorted(_OTHER_KEYS))
def test_a_key_without_effect_is_reported(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "backstory.config"):
        loaded = load_settings({key: "anything"}, None, {})
    assert [record.getMessage() for record in caplog.records] == [
        f"{key} (from the file) has no effect in this version"
    ]
    assert key not in loaded.origin


def test_no_key_is_both_used_and_without_effect() -> None:
    assert not _OTHER_KEYS & set(Settings.model_fields)


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
    with pytest.raises(ConfigError, match="no event store 'postgresql'") as told:
        Backstory.open(tmp_path, event_store=f"postgresql://ada:{SECRET}@db/x")
    assert SECRET not in str(told.value)


# What of it is policy.


def test_only_what_is_stated_is_policy() -> None:
    assert policy_values(load_settings(environ={})) == {}
    stated = load_settings({"max_facts": 20}, {"fact_confidence_threshold": 1}, {"BACKSTORY_WORKERS": "3"})
    assert policy_values(stated) == {"max_facts": 20, "fact_confidence_threshold": 1.0}


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
    with pytest.raises(ConfigError, match="model is a int; it is a name"):
        as_model(7, Settings(), {})
