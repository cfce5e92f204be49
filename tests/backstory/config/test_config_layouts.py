"""Configuration in DeerFlow's layouts, old and new: what means the same is understood; nothing is skipped unsaid."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from backstory.config.file import NOT_NEEDED
from backstory.config.loading import Loaded, load_settings
from backstory.ledger.core.errors import ConfigError

SECRET = "$ecret_0123456789"  # noqa: S105 the secret that must not be told


class Reader:
    """Loads a file of this text, or a mapping, and hears what is warned of."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.file = folder / "config.yaml"
        self._caplog = caplog

    def __call__(
        self, text: object, env: dict[str, str] | None = None, **arguments: object
    ) -> tuple[Loaded, list[str]]:
        self._caplog.clear()
        config = text
        if isinstance(text, str):
            self.file.write_text(text, encoding="utf-8")
            config = self.file
        with self._caplog.at_level(logging.WARNING, "backstory"):
            loaded = load_settings(config, arguments, env or {})  # type: ignore[arg-type]
        named = f"the configuration file {self.file}"
        return loaded, [record.getMessage().replace(named, "FILE") for record in self._caplog.records]

    def refused(self, text: object, env: dict[str, str] | None = None, **arguments: object) -> str:
        with pytest.raises(ConfigError) as told:
            self(text, env, **arguments)
        assert self._caplog.records == []
        return str(told.value).replace(f"the configuration file {self.file}", "FILE")


@pytest.fixture
def read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Reader:
    return Reader(tmp_path, caplog)


def stated(loaded: Loaded) -> dict[str, object]:
    return {key: getattr(loaded.settings, key) for key, origin in loaded.origin.items() if origin != "default"}


# Keys below `backend_config:`.


def test_keys_below_backend_config_mean_the_same(read: Reader) -> None:
    loaded, told = read(
        "memory:\n  enabled: false\n  mode: tool\n  backend_config:\n    max_facts: 50\n    workers: 3\n"
    )
    assert stated(loaded) == {"enabled": False, "mode": "tool", "max_facts": 50, "workers": 3}
    assert loaded.origin["max_facts"] == "file"
    assert told == []


def test_an_empty_key_says_nothing_in_the_newer_layout_and_is_an_error_in_ours(read: Reader) -> None:
    loaded, told = read("memory:\n  mode:\n  backend_config:\n    model:\n      # provider: openai\n    max_facts:\n")
    assert (stated(loaded), told) == ({}, [])
    assert stated(read("memory:\n  enabled: true\n  backend_config:\n")[0]) == {"enabled": True}
    assert "got None (from the file)" in read.refused("memory:\n  max_facts:\n")


def test_an_older_key_beside_backend_config_is_understood_with_a_warning(read: Reader) -> None:
    loaded, told = read({"max_facts": 20, "model_name": "m", "enabled": True, "backend_config": {"workers": 3}})
    assert stated(loaded) == {"max_facts": 20, "model_name": "m", "enabled": True, "workers": 3}
    assert told == ["max_facts, model_name in the configuration is beside `backend_config:` and is read: move it below"]


def test_the_key_below_backend_config_wins_over_an_older_one_beside_it(read: Reader) -> None:
    loaded, told = read("memory:\n  max_facts: 20\n  backend_config:\n    max_facts: 30\n")
    assert loaded.settings.max_facts == 30
    assert told == [
        "max_facts in FILE is beside `backend_config:` and is read: move it below",
        "max_facts in FILE is both beside `backend_config:` and below it: the one below it is used",
    ]


def test_a_key_of_the_host_is_the_hosts(read: Reader) -> None:
    loaded, told = read({"enabled": False, "backend_config": {"enabled": True, "mode": "tool"}})
    assert stated(loaded) == {"enabled": False, "mode": "tool"}
    assert told == [
        "enabled in the configuration is both beside `backend_config:` and below it: the one beside it is used"
    ]


def test_environment_and_arguments_beat_what_is_below_backend_config(read: Reader) -> None:
    config = {"backend_config": {"max_facts": 20, "workers": 3, "max_attempts": 4}}
    loaded, _ = read(config, {"BACKSTORY_WORKERS": "4"}, max_attempts=6)
    assert stated(loaded) == {"max_facts": 20, "workers": 4, "max_attempts": 6}


@pytest.mark.parametrize("below", [7, "file", [1], True])
def test_backend_config_has_keys_below_it(read: Reader, below: object) -> None:
    assert "backend_config in the configuration must have keys below it" in read.refused({"backend_config": below})


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ({"max_fact": 3}, "backend_config.max_fact (from the file); the nearest is backend_config.max_facts"),
        ({"zzzz": None}, "backend_config.zzzz (from the file); it"),
        ({"brand_new": 1}, "backend_config.brand_new (from the file); it"),
        ({"backend_config": {"max_facts": 3}}, "backend_config.backend_config (from the file)"),
        (
            {"model": {"temprature": 1, "model": "m"}},
            "backend_config.model.temprature (from the file); the nearest is backend_config.model.temperature",
        ),
    ],
)
def test_an_unknown_key_below_backend_config_is_warned_of_once(
    read: Reader, below: dict[str, object], told: str
) -> None:
    loaded, (warning,) = read({"backend_config": {**below, "workers": 3}})
    assert warning.startswith(f"there is no configuration key {told}")
    assert warning.endswith("; it is ignored")
    assert loaded.settings.workers == 3
    assert loaded.settings.max_facts == 100
    assert loaded.settings.model.model == ("m" if "model" in below else None)


def test_an_unknown_key_beside_backend_config_names_its_nearest(read: Reader) -> None:
    assert "the nearest is backend_config" in read.refused({"backend_confg": {"max_facts": 3}})
    assert "there is no configuration key zzzz" in read.refused({"zzzz": None, "backend_config": {}})
    assert "the nearest is max_facts" in read.refused("memory:\n  max_fact: 3\n")
    assert "the nearest is model.temperature" in read.refused({"model": {"temprature": 1}})


def test_backend_config_is_no_key_of_the_environment_or_of_arguments(read: Reader) -> None:
    assert "no configuration key backend_config (from the env" in read.refused({}, {"BACKSTORY_BACKEND_CONFIG": "{}"})
    assert "no configuration key backend_config (from the arg" in read.refused({}, None, backend_config={})


# A file without `memory:`.


def test_keys_at_the_top_of_a_file_are_understood_with_a_warning(read: Reader) -> None:
    loaded, told = read("max_facts: 20\nworkers: 3\n")
    assert stated(loaded) == {"max_facts": 20, "workers": 3}
    assert told == ["FILE has no section `memory:`; max_facts, workers at its top is read: move it below `memory:`"]
    assert stated(read("backend_config:\n  max_facts: 30\n")[0]) == {"max_facts": 30}


def test_what_stands_beside_keys_at_the_top_is_somebody_elses(read: Reader) -> None:
    loaded, _ = read("models: [1]\nmax_facts: 20\nsandbox: {}\nlog_level: info\n7: x\n")
    assert stated(loaded) == {"max_facts": 20}


def test_a_slip_among_keys_at_the_top_is_an_error(read: Reader) -> None:
    assert read.refused("max_facts: 20\ndebounce_second: 3\n") == (
        "FILE has no section `memory:`, and there is no configuration key debounce_second (from the file); the nearest "
        "is debounce_seconds"
    )
    assert read.refused("max_fact: 20\n") == "FILE has no section `memory:` with keys below it"


def test_keys_beside_memory_are_not_read_and_that_is_said(read: Reader) -> None:
    loaded, told = read("max_facts: 20\nmodel: m\nmemory:\n  workers: 3\n")
    assert stated(loaded) == {"workers": 3}
    assert told == ["max_facts in FILE is beside `memory:` and is ignored: move it below"]


def test_a_mapping_may_have_the_section_too(read: Reader) -> None:
    for config in ({"memory": {"max_facts": 20}}, {"memory": {"backend_config": {"max_facts": 20}}, "models": []}):
        assert [stated(loaded) for loaded, told in [read(config)] if not told] == [{"max_facts": 20}]
    assert stated(read({"memory": None})[0]) == {}
    assert "no section `memory:`" in read.refused({"memory": 7})


# What is DeerFlow's own.


@pytest.mark.parametrize("key", NOT_NEEDED)
def test_a_key_of_deerflow_that_is_not_needed_is_passed_over_and_why_is_said(read: Reader, key: str) -> None:
    for config in ({key: "anything"}, {"backend_config": {key: None, "max_facts": 100}, key: 1}):
        loaded, told = read(config)
        assert told[-1] == f"not needed here: {key} (from the file): {NOT_NEEDED[key]}"
        assert key not in loaded.origin
    assert read({}, {f"BACKSTORY_{key.upper()}": "x"})[1][0].startswith(
        f"not needed here: {key} (from the environment)"
    )
    assert read({}, None, **{key: 3})[1][0].startswith(f"not needed here: {key} (from the argument)")


def test_several_keys_that_are_not_needed_make_one_line(read: Reader) -> None:
    (told,) = read({"manager_class": "deermem", "backend_config": {"retrieval_adapter": "fts5"}})[1]
    assert told.count("(from the file): ") == 2


def test_deerflows_own_store_leaves_the_engine_to_say(read: Reader) -> None:
    loaded, told = read({"backend_config": {"storage_class": "file"}})
    assert loaded.settings.storage_class == ""
    assert told == ["storage_class 'file' (from the file) is a store of DeerFlow; event_store keeps the memory"]


def test_a_value_may_name_an_environment_variable(read: Reader) -> None:
    env = {"KEY": "sk-1", "FACTS": "50"}
    loaded, _ = read({"backend_config": {"model": {"api_key": "$KEY", "model": "a$KEY"}, "max_facts": "$FACTS"}}, env)
    assert (loaded.settings.model.api_key, loaded.settings.model.model) == ("sk-1", "a$KEY")
    assert (loaded.settings.max_facts, loaded.origin["max_facts"]) == (50, "file")
    assert read.refused({"model": {"api_key": SECRET}}) == (
        "model.api_key (from the file) names an environment variable that is not set: set it"
    )


def test_a_whole_deerflow_configuration_is_understood(read: Reader) -> None:
    """Every key of DeerFlow 2's memory section, at another value than ours by default."""
    backend = {
        "storage_path": "there",
        "storage_class": "file",
        "strict_user_scope": True,
        "manifest_filename": "memory.json",
        "file_lock_timeout_seconds": 11,
        "retrieval_adapter": "",
        "debounce_seconds": 31,
        "queue_max_depth": 0,
        "max_facts": 101,
        "fact_eviction_policy": "hybrid-v1",
        "fact_eviction_shadow_enabled": True,
        "eviction_confidence_weight": 0.5,
        "eviction_confirmation_weight": 0.3,
        "eviction_access_weight": 0.2,
        "eviction_confirmation_half_life_days": 91,
        "eviction_access_half_life_days": 31,
        "eviction_correction_reserved_fraction": 0.2,
        "eviction_correction_reserved_max": 11,
        "eviction_audit_max_entries": 0,
        "fact_confidence_threshold": 0.6,
        "max_injection_tokens": 2001,
        "token_counting": "char",
        "guaranteed_categories": ["goal"],
        "guaranteed_token_budget": 501,
        "staleness_review_enabled": False,
        "staleness_age_days": 91,
        "staleness_min_candidates": 4,
        "staleness_max_removals_per_cycle": 11,
        "staleness_protected_categories": ["goal"],
        "staleness_max_lifetime_multiplier": 21.0,
        "staleness_max_extension_days": 3651,
        "consolidation_enabled": True,
        "consolidation_min_facts": 9,
        "consolidation_max_groups_per_cycle": 4,
        "consolidation_max_sources": 9,
        "watermark_max_keys": 1,
        "patterns_dir": "patterns",
        "prompts_dir": "prompts",
        "model": {"provider": "openai", "model": "m", "api_key": "k", "base_url": "http://x", "temperature": 1},
    }
    host = {
        "enabled": False,
        "mode": "tool",
        "injection_enabled": False,
        "shutdown_flush_timeout_seconds": 31.0,
        "manager_class": "deermem",
    }
    loaded, told = read({**host, "backend_config": backend})
    given = {key: value for key, value in {**host, **backend}.items() if key not in NOT_NEEDED}
    spelled = {
        "storage_class": "",
        "fact_eviction_policy": "hybrid",
        "guaranteed_categories": ("goal",),
        "staleness_protected_categories": ("goal",),
    }
    found = stated(loaded)
    assert loaded.settings.model.model_dump() == given.pop("model")
    del found["model"]
    assert found == {**given, **spelled}
    assert len(told) == 2  # DeerFlow's store, what is not needed
