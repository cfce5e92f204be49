"""DeerFlow's configuration, as it stands, with a word for whatever means nothing here."""

from __future__ import annotations

import logging
import re

import pytest
from hosts import ChatModel, learned, talk

from backstory.deerflow.config import read_backend_config
from backstory.ledger.core.errors import ConfigError

EVERY_KEY = {
    "storage_path": "",
    "storage_class": "",
    "strict_user_scope": True,
    "manifest_filename": "memory.json",
    "file_lock_timeout_seconds": 7,
    "retrieval_adapter": "fts5",
    "debounce_seconds": 20,
    "queue_max_depth": 5,
    "max_facts": 50,
    "fact_eviction_policy": "hybrid-v1",
    "fact_eviction_shadow_enabled": True,
    "eviction_confidence_weight": 0.5,
    "eviction_confirmation_weight": 0.3,
    "eviction_access_weight": 0.2,
    "eviction_confirmation_half_life_days": 30,
    "eviction_access_half_life_days": 10,
    "eviction_correction_reserved_fraction": 0.2,
    "eviction_correction_reserved_max": 3,
    "eviction_audit_max_entries": 10,
    "fact_confidence_threshold": 0.5,
    "max_injection_tokens": 900,
    "token_counting": "char",
    "guaranteed_categories": ["correction", "goal"],
    "guaranteed_token_budget": 300,
    "staleness_review_enabled": False,
    "staleness_age_days": 60,
    "staleness_min_candidates": 2,
    "staleness_max_removals_per_cycle": 5,
    "staleness_protected_categories": [],
    "staleness_max_lifetime_multiplier": 10.0,
    "staleness_max_extension_days": 1000,
    "consolidation_enabled": True,
    "consolidation_min_facts": 4,
    "consolidation_max_groups_per_cycle": 2,
    "consolidation_max_sources": 6,
    "watermark_max_keys": 100,
    "patterns_dir": None,
    "prompts_dir": None,
    "model": {"provider": None, "model": "m", "api_key": "k", "base_url": None, "temperature": 0.1},
}


def test_every_key_of_deerflows_is_taken(tmp_path):
    read = read_backend_config({**EVERY_KEY, "storage_path": str(tmp_path)}, "tool")
    assert (read.home, read.deerflow) == (tmp_path / "backstory", tmp_path)
    stated = read.settings
    assert (stated.max_facts, stated.fact_eviction_policy, stated.mode) == (50, "hybrid", "tool")
    assert (stated.model.model, stated.model.api_key, stated.model.temperature) == ("m", "k", 0.1)
    assert stated.guaranteed_categories == ("correction", "goal")
    assert read.own_model


def test_a_manager_keeps_to_what_is_configured(host):
    manager = host.manager(
        ChatModel(), **{key: value for key, value in EVERY_KEY.items() if key not in ("storage_path", "model")}
    )
    manager.create_fact("Likes tea", user_id="ada")
    policy = manager._hosting.home.memory("ada").policy().policy
    assert (policy.max_facts, policy.fact_confidence_threshold, policy.consolidation_enabled) == (50, 0.5, True)
    with pytest.raises(ValueError, match="strict_user_scope"):
        manager.get_memory()
    manager.add("t1", talk())


def told_of(caplog, level):
    return [r.getMessage() for r in caplog.records if r.levelno == level and "not needed" in r.getMessage()]


def test_what_somebody_set_and_has_no_effect_here_is_told_once(host, caplog):
    host.manager(retrieval_adapter="", watermark_max_keys=1, failure_policy={"read": "x"}, storage_class="deerflow.x.Y")
    told = told_of(caplog, logging.WARNING)
    for key in ("retrieval_adapter", "watermark_max_keys", "failure_policy", "storage_class"):
        assert sum(key in line for line in told) == 1


def test_what_stands_in_everybodys_file_warns_nobody(host, caplog):
    usual = {"retrieval_adapter": "fts5", "manifest_filename": "memory.json", "storage_class": "file"}
    usual |= {"fact_eviction_shadow_enabled": False, "eviction_audit_max_entries": 200, "watermark_max_keys": 4096}
    with caplog.at_level(logging.INFO):
        host.manager(ChatModel(), **usual)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    (told,) = told_of(caplog, logging.INFO)
    assert all(key in told for key in usual)


def test_a_storage_path_that_is_a_file_is_refused(host):
    host.folder.mkdir()
    (host.folder / "memory").write_text("x")
    with pytest.raises(ConfigError, match="must be a folder, got the file"):
        host.manager(storage_path=str(host.folder / "memory"))


@pytest.mark.parametrize(
    "theirs", ["file", "deerflow.agents.memory.storage.FileMemoryStorage", "backstory.deerflow:LedgerMemoryStorage"]
)
def test_a_store_of_deerflows_is_none_of_ours(tmp_path, theirs):
    assert (
        read_backend_config(
            {"storage_path": str(tmp_path), "storage_class": theirs}, "middleware"
        ).settings.storage_class
        == ""
    )


def test_a_store_of_our_own_is_used(host):
    with pytest.raises(ConfigError, match=r"nowhere\.Store"):
        host.manager(storage_class="nowhere.Store")


def test_keys_without_a_value_say_nothing(tmp_path):
    read = read_backend_config({"storage_path": str(tmp_path), "model": None, "max_facts": None}, "middleware")
    assert read.settings.max_facts == 100
    assert not read.own_model
    assert "max_facts" not in read.stated


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"max_facts": 5}, "from 10"),
        ({"debounce_seconds": "soon"}, "debounce_seconds"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_that_says_so(host, config, told):
    with pytest.raises(ConfigError, match=told):
        host.manager(**config)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"storage_pat": "x"}, "backend_config.storage_path"),
        ({"max_fact": 1}, "backend_config.max_facts"),
        ({"model": {"modle": "x"}}, "backend_config.model.model"),
        ({"model": {"provider": "fake", "model": "m", "temprature": 1}}, "backend_config.model.temperature"),
    ],
)
def test_an_unknown_key_is_warned_of_once_and_the_agent_runs(host, caplog, monkeypatch, config, told):
    monkeypatch.setattr("backstory.deerflow.model_port.make_chat_model", lambda _: ChatModel())
    manager = host.manager(ChatModel(), **config)
    manager.create_fact("Likes tea", user_id="ada")
    manager.close()
    manager.create_fact("Likes cake", user_id="ada")
    (warning,) = [r.getMessage() for r in caplog.records if "no configuration key" in r.getMessage()]
    assert f"the nearest is {told}; it is ignored" in warning


def test_our_own_keys_work_as_well(host):
    manager = host.manager(ChatModel(), event_store="jsonl:", summary_min_turns=0, max_wait_seconds=5, workers=1)
    assert manager._hosting.home.config.settings.max_wait_seconds == 5


def test_the_environment_beats_the_file_but_not_the_hosts_mode(host, monkeypatch):
    monkeypatch.setenv("BACKSTORY_MAX_FACTS", "20")
    monkeypatch.setenv("BACKSTORY_MODE", "tool")
    manager = host.manager(ChatModel(), max_facts=50)
    assert manager._hosting.home.config.settings.max_facts == 20
    assert manager._hosting.home.config.settings.mode == "middleware"


def test_a_model_that_only_the_environment_names_is_memorys_own(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKSTORY_MODEL", "m")
    assert read_backend_config({"storage_path": str(tmp_path)}, "middleware").own_model


def test_the_home_lies_beside_what_deerflow_keeps(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKSTORY_HOME", str(tmp_path / "base"))
    for path, folder in (
        (str(tmp_path / "deer"), tmp_path / "deer"),
        ("below", tmp_path / "base" / "below"),
        (str(tmp_path / "old" / "memory.json"), tmp_path / "old"),
    ):
        read = read_backend_config({"storage_path": path}, "middleware")
        assert (read.home, read.deerflow) == (folder / "backstory", folder)
    read = read_backend_config({}, "middleware")
    assert (read.home, read.deerflow) == (tmp_path / "base", None)


def test_only_the_host_says_how_long_a_shutdown_may_take(tmp_path):
    path = {"storage_path": str(tmp_path)}
    assert read_backend_config(path, "middleware").settings.shutdown_flush_timeout_seconds == 1
    kept = read_backend_config({**path, "shutdown_flush_timeout_seconds": 9}, "middleware")
    assert kept.settings.shutdown_flush_timeout_seconds == 9


def test_the_key_of_another_providers_model_is_not_shown(tmp_path):
    model = {"provider": "anthropic", "model": "claude", "api_key": "sk-secret"}
    read = read_backend_config({"storage_path": str(tmp_path), "model": model}, "middleware")
    assert "sk-secret" not in repr(read)
    assert read.own_model


# DeerFlow's own prompts and patterns.

OWN = "messages:\n- {role: system, content: 'The prompt of NAME.'}\n- {role: user, content: '{conversation}'}\n"


def test_deerflows_own_prompts_are_asked_with_also_those_of_one_agent(host, tmp_path):
    (tmp_path / "prompts" / "coder").mkdir(parents=True)
    (tmp_path / "prompts" / "memory_update.chat.yaml").write_text(OWN.replace("NAME", "all"))
    (tmp_path / "prompts" / "coder" / "memory_update.chat.yaml").write_text(OWN.replace("NAME", "coder"))
    model = ChatModel()
    manager = host.manager(model, prompts_dir=str(tmp_path / "prompts"))
    for agent in (None, "coder"):
        manager.add("t1", talk(), user_id="ada", agent_name=agent)
        assert learned(manager, agent=agent) == ["Likes tea"]
    assert "The prompt of all." in str(model.asked[0].messages)
    assert "The prompt of coder." in str(model.asked[1].messages)


@pytest.mark.parametrize("agent", ["", "coder"])
def test_a_prompt_that_cannot_be_used_stops_the_start_and_names_the_file(host, tmp_path, agent):
    path = tmp_path / "prompts" / agent / "memory_update.chat.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(OWN.replace("conversation", "conversation.x"))
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        host.manager(ChatModel(), prompts_dir=str(tmp_path / "prompts"))


def test_a_conversation_of_trivial_messages_is_covered_without_asking_the_model(host, tmp_path):
    (tmp_path / "trivial.yaml").write_text("- 'Ahoj'\n")
    model = ChatModel()
    manager = host.manager(model, patterns_dir=str(tmp_path))
    manager.add("t1", talk("Ahoj!", "Hello."), user_id="ada")
    assert learned(manager) == []
    assert model.asked == []
    assert manager._hosting.home.memory("ada").status().pending == ()
    manager.add("t1", [*talk("Ahoj!", "Hello."), *talk("I like tea.", number=2)], user_id="ada")
    assert learned(manager) == ["Likes tea"]
