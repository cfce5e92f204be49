"""The configuration that the manager leaves in the home, without secrets, and the command line that works by it."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest
from commandline import Cli
from doubles.misbehaving import MisbehavingServer, completion, failure
from hosts import TEA, ChatModel, Host, contents, learning, talk
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from backstory import Backstory
from backstory.config.host_file import HostModel, read_host_file
from backstory.deerflow.model_port import describe_model

KEY = "sk-the-secret"


class BaseChatOpenAI(BaseModel):
    """A chat model of the package langchain_openai."""

    __module__ = "langchain_openai.chat_models.base"
    model_config = ConfigDict(populate_by_name=True)

    model_name: str = "served"
    openai_api_key: SecretStr | None = None
    openai_api_base: str | None = Field(default=None, alias="base_url")
    temperature: float | None = None

    def invoke(self, messages: list[object], /, config: dict[str, object] | None = None) -> object:
        raise ServerError


class AzureChatOpenAI(BaseChatOpenAI):
    """A model of Azure, of the same package."""

    __module__ = "langchain_openai.chat_models.azure"

    azure_endpoint: str | None = None


class ChatMistralAI(BaseModel):
    """A chat model whose address has a name of its own."""

    __module__ = "langchain_mistralai.chat_models"

    model: str = "small"
    endpoint: str = Field(default="https://own.test/v1", alias="base_url")

    def invoke(self, messages: list[object], /, config: dict[str, object] | None = None) -> object:
        raise ServerError


class ServerError(Exception):
    """What a provider's library raises when the server answers with status 500."""

    status_code = 500


class ChatAnthropic(ChatModel):
    __module__ = "langchain_anthropic.chat_models"
    model_name = "claude"


class Patched(ChatAnthropic):
    """A class of the host that extends a provider's."""

    __module__ = "deerflow.models.patched"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "BACKSTORY_")):
            monkeypatch.delenv(name)


def home_of(host: Host) -> Path:
    return host.folder / "backstory"


def left(host: Host) -> dict[str, object]:
    return json.loads((home_of(host) / "host.json").read_bytes())


def line(host: Host) -> Cli:
    return Cli(home_of(host))


# What is left.


def test_what_is_in_force_is_left_in_the_home_with_where_it_comes_from(host, monkeypatch):
    monkeypatch.setenv("BACKSTORY_WORKERS", "3")
    host.manager(ChatModel(), max_facts=50, prompts_dir=None, fact_confidence_threshold=0.7)
    settings = left(host)["settings"]
    assert settings["max_facts"] == {"value": 50, "origin": "file"}
    assert settings["fact_confidence_threshold"] == {"value": 0.7, "origin": "file"}
    assert settings["workers"] == {"value": 3, "origin": "environment"}
    assert "storage_path" not in settings
    assert "debounce_seconds" not in settings
    assert stat.S_IMODE((home_of(host) / "host.json").stat().st_mode) == 0o600


def test_no_secret_is_left(host, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    host.manager(
        model={"model": "m", "api_key": KEY, "base_url": f"http://user:{KEY}@127.0.0.1/v1"},
        witness=f"command:send --key {KEY}",
        embedding_model="far",
        embedding_base_url=f"http://127.0.0.1/v1?api_key={KEY}",
    )
    assert KEY not in (home_of(host) / "host.json").read_text()
    told = left(host)
    assert sorted(told["withheld"]) == ["embedding_base_url", "embedding_model", "witness"]
    assert told["settings"]["embedding_model"]["value"] == "none"
    assert told["model"]["key_variable"] == "MY_KEY"
    assert told["model"]["withheld"] == ["base_url"]


@pytest.mark.parametrize(
    "address",
    [
        "https://user:pa/ss@own.test/v1",
        "https://user@own.test/v1",
        "https://own.test/v1?sig=s3cret",
        "https://own.test/v1?api-version=3&Authorization=s3cret",
        "https://own.test/v1?X-Amz-Credential=s3cret",
        "https://own.test/v1?k%65y=s3cret",
        "https://own.test/v1#access_token=s3cret",
        "https://own.test/v1;jwt=s3cret",
    ],
)
def test_an_address_that_may_hold_a_secret_is_withheld(host, address):
    host.manager(model={"model": "m", "base_url": address})
    told = left(host)["model"]
    assert (told["base_url"], told["withheld"]) == (None, ["base_url"])


@pytest.mark.parametrize(
    "address", ["https://own.test:8443/models/m@001", "https://own.test/v1?api-version=2024-06-01", "http://[::1]:9/v1"]
)
def test_an_address_without_a_secret_is_left(host, address):
    host.manager(model={"model": "m", "base_url": address})
    assert left(host)["model"]["base_url"] == address


def test_the_command_line_begins_no_memory_beside_an_event_store_that_is_not_copied(host, monkeypatch):
    host.manager(ChatModel()).close()
    path = home_of(host) / "host.json"
    path.write_text(json.dumps({**left(host), "withheld": ["event_store"]}))
    cli = line(host)
    told = cli.error("--user", "ada", "fact", "add", "Likes tea", code=2)
    assert "event_store whose address holds a password and is not copied here: give it with --store URL" in told
    assert not (home_of(host) / "users").exists()
    checks = {check["check"]: check for check in cli.json("doctor", code=1)}
    assert "--store URL" in checks["configuration"]["hint"]
    cli.run("--store", "jsonl:", "--user", "ada", "fact", "add", "Likes tea")


def test_a_key_that_no_variable_holds_is_withheld(host):
    host.manager(model={"model": "m", "api_key": KEY})
    assert left(host)["model"]["withheld"] == ["api_key"]
    assert KEY not in (home_of(host) / "host.json").read_text()


def test_the_file_is_written_only_when_something_changed(host):
    host.manager(ChatModel(), max_facts=50).close()
    path = home_of(host) / "host.json"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    host.manager(ChatModel(), max_facts=50).close()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    host.manager(ChatModel(), max_facts=60).close()
    assert left(host)["settings"]["max_facts"]["value"] == 60
    host.manager(ChatModel()).close()
    assert "max_facts" not in left(host)["settings"]


def test_a_file_that_cannot_be_written_stops_no_agent(host, caplog):
    (home_of(host) / "host.json").mkdir(parents=True)
    manager = host.manager(ChatModel(), max_facts=50)
    manager.create_fact("Likes tea", user_id="ada")
    assert "host.json cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            BaseChatOpenAI(openai_api_key=SecretStr(KEY), openai_api_base="http://127.0.0.1/v1", temperature=0.5),
            HostModel("openai", "served", "http://127.0.0.1/v1", 0.5, "MY_KEY"),
        ),
        (Patched(), HostModel("anthropic", "claude")),
        (ChatMistralAI(), HostModel("mistralai", "small", "https://own.test/v1")),
        (AzureChatOpenAI(openai_api_key=SecretStr(KEY), azure_endpoint="https://own.test"), None),
        (ChatModel(), None),
    ],
)
def test_the_default_model_of_the_host_is_described(host, monkeypatch, model, told):
    monkeypatch.setenv("MY_KEY", KEY)
    hosting = host.manager(model)._hosting
    assert describe_model(hosting._configured, hosting._model) == told


# What the command line does with it.


def test_the_command_line_works_by_the_hosts_settings(host, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    host.manager(BaseChatOpenAI(openai_api_key=SecretStr(KEY)), max_facts=10, fact_confidence_threshold=0.5).close()
    cli = line(host)
    shown = cli.json("config")
    assert shown["max_facts"] == {"value": 10, "from": "host (file)"}
    assert shown["model_name"] == {"value": "served", "from": "host"}
    assert KEY not in json.dumps(shown)
    assert cli.json("--user", "ada", "status")["model"] == "served"
    for number in range(10):
        cli.run("--user", "ada", "fact", "add", f"Fact number {number}", "--category", "context")
    assert "10" in cli.error("--user", "ada", "fact", "add", "One too many", "--category", "context", code=1)
    policy = cli.json("--user", "ada", "policy")["policy"]
    assert (policy["max_facts"], policy["fact_confidence_threshold"]) == (10, 0.5)
    checks = {check["check"]: check for check in cli.json("doctor", code=0)}
    assert "max_facts=10" in checks["configuration"]["hint"]
    assert "served" in checks["model"]["hint"]


def test_the_command_line_commits_no_other_policy(host):
    manager = host.manager(ChatModel(), max_facts=20)
    manager.create_fact("Likes tea", user_id="ada")
    seq = manager._hosting.home.memory("ada").status().seq
    manager.close()
    line(host).run("--user", "ada", "fact", "add", "Likes cake")
    entries = line(host).json("--user", "ada", "log")
    assert max(entry["seq"] for entry in entries) == seq + 1
    host.manager(ChatModel(), max_facts=20).create_fact("Likes jam", user_id="ada")
    assert max(entry["seq"] for entry in line(host).json("--user", "ada", "log")) == seq + 2


def test_a_memory_that_the_command_line_begins_has_the_hosts_policy(host):
    host.manager(ChatModel(), max_facts=20).close()
    cli = line(host)
    cli.run("--user", "bob", "fact", "add", "Likes cake")
    seq = max(entry["seq"] for entry in cli.json("--user", "bob", "log"))
    manager = host.manager(ChatModel(), max_facts=20)
    manager.create_fact("Likes jam", user_id="bob")
    assert max(entry["seq"] for entry in cli.json("--user", "bob", "log")) == seq + 1
    assert cli.json("--user", "bob", "policy")["policy"]["max_facts"] == 20


def test_a_later_source_beats_the_hosts(host, monkeypatch, tmp_path):
    host.manager(ChatModel(), max_facts=20, workers=3, max_attempts=4, fact_confidence_threshold=0.5).close()
    file = tmp_path / "own.yaml"
    file.write_text("memory: {max_facts: 30, workers: 4, model_name: mine}\n")
    monkeypatch.setenv("BACKSTORY_WORKERS", "5")
    shown = line(host).json("--config", file, "config")
    assert (shown["max_facts"]["value"], shown["max_facts"]["from"]) == (30, "file")
    assert (shown["workers"]["value"], shown["workers"]["from"]) == (5, "environment")
    assert (shown["max_attempts"]["value"], shown["max_attempts"]["from"]) == (4, "host (file)")
    assert shown["model_name"] == {"value": "mine", "from": "file"}
    with Backstory.open(home_of(host), background=False) as bs:
        assert bs.config.settings.max_facts == 100
    with Backstory.open(home_of(host), background=False, as_hosted=True, max_facts=40) as bs:
        assert (bs.config.settings.max_facts, bs.config.settings.max_attempts) == (40, 4)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "host.json is damaged"),
        (b'{"version": 2, "host": "DeerFlow", "settings": {}}', "newer version"),
        (b'{"version": 1, "host": "DeerFlow", "settings": {"max_facts": {"value": 1, "origin": "file"}}}', "not used"),
        (b'{"version": 1, "host": "D", "settings": {"some_day": {"value": 1, "origin": "file"}}}', ""),
        (b'{"version": 1, "host": "D", "settings": {}, "model": {"provider": "../x", "name": "x"}}', ""),
    ],
)
def test_a_file_that_cannot_be_used_stops_no_command(host, content, told):
    host.manager(ChatModel()).create_fact("Likes tea", user_id="ada")
    (home_of(host) / "host.json").write_bytes(content)
    result = line(host).run("--user", "ada", "show")
    assert "Likes tea" in result.stdout
    assert told in result.stderr


# What a log line advises.


def parked(host: Host, llm: object, **config: object) -> None:
    manager = host.manager(llm, max_attempts=1, **config)
    manager.add_nowait("t1", talk(), user_id="ada")
    manager.shutdown_flush(20)
    manager.close()


def test_retry_asks_the_model_of_the_host(host, monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", KEY)
    with MisbehavingServer(completion(learning("Likes tea")), repeat=True) as server:
        parked(host, BaseChatOpenAI(openai_api_key=SecretStr(KEY), openai_api_base=server.base_url))
        assert "the model served answered with status 500; its turns are kept on disk, and `retry`" in caplog.text
        cli = line(host)
        (fault,) = cli.json("--user", "ada", "status")["faults"]
        assert "answered with status 500" in fault["detail"]
        cli.run("--user", "ada", "retry")
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].body["model"] == "served"
    told = cli.json("--user", "ada", "status")
    assert (told["facts"], told["parked"], told["faults"]) == (1, [], [])


def test_retry_says_in_one_line_which_key_is_missing(host, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    parked(host, BaseChatOpenAI(openai_api_key=SecretStr(KEY), openai_api_base="http://127.0.0.1:9/v1"))
    monkeypatch.delenv("MY_KEY")
    # The key of another provider is not sent to the host's server.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    cli = line(host)
    assert "the host's model served needs its key: set MY_KEY" in cli.error("--user", "ada", "retry", code=3)
    told = cli.json("--user", "ada", "status")
    assert told["model"].startswith("served (it cannot be asked here")
    assert [one["attempts"] for one in told["parked"]] == [1]
    checks = {check["check"]: check for check in cli.json("doctor", code=1)}
    assert "set MY_KEY" in checks["model"]["hint"]


@pytest.mark.parametrize("configured", [True, False])
def test_a_key_of_the_command_line_is_not_sent_to_a_server_that_needs_none(host, monkeypatch, configured):
    with MisbehavingServer(failure(500), completion(TEA), repeat=True) as server:
        if configured:
            parked(host, None, model={"model": "served", "base_url": server.base_url})
        else:
            parked(host, BaseChatOpenAI(openai_api_base=server.base_url))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
        line(host).run("--user", "ada", "retry")
        assert server.requests
        assert all("sk-another" not in request.headers["authorization"] for request in server.requests)


def test_retry_says_that_a_key_is_not_copied(host):
    parked(host, BaseChatOpenAI(openai_api_key=SecretStr(KEY)))
    assert "is written out in the host's configuration" in line(host).error("--user", "ada", "retry", code=3)


def test_retry_says_which_package_a_provider_needs(host, monkeypatch):
    monkeypatch.setattr("backstory.config.model_factory.find_spec", lambda name: None)
    parked(host, Patched(ServerError()))
    assert "claude needs langchain: run this in the env" in line(host).error("--user", "ada", "retry", code=3)


def test_retry_makes_a_model_of_another_provider(host, monkeypatch):
    made = []

    def make(name, **how):
        made.append((name, how))
        return ChatModel(TEA)

    monkeypatch.setattr("langchain.chat_models.init_chat_model", make)
    monkeypatch.setattr("backstory.config.model_factory.find_spec", lambda name: name)
    parked(host, Patched(ServerError()))
    line(host).run("--user", "ada", "show")
    assert made == []
    line(host).run("--user", "ada", "retry")
    assert made == [("claude", {"model_provider": "anthropic"})]
    assert line(host).json("--user", "ada", "status")["facts"] == 1


def test_the_status_of_a_server_is_told_for_the_openai_protocol_too(host, caplog):
    with MisbehavingServer(failure(500), repeat=True) as server:
        parked(host, None, model={"model": "m", "base_url": server.base_url})
    assert "the model m answered with status 500" in caplog.text


# DeerFlow's own file.


def test_the_configuration_file_of_deerflow_is_understood(host, tmp_path, caplog):
    host.manager(ChatModel(), max_facts=20).create_fact("Likes tea", user_id="ada")
    file = tmp_path / "config.yaml"
    file.write_text(
        "config_version: 34\n"
        "models: [{name: gpt, use: 'langchain_openai:ChatOpenAI', api_key: $NOT_SET}]\n"
        "memory:\n"
        "  enabled: true\n"
        "  mode: middleware\n"
        "  manager_class: backstory.deerflow:BackstoryMemoryManager\n"
        "  backend_config: {max_facts: 40, new_key: 1, storage_class: file, model: {provider: anthropic, model: c}}\n"
    )
    with caplog.at_level(logging.WARNING):
        shown = line(host).json("--config", file, "config")
    assert shown["max_facts"] == {"value": 40, "from": "file"}
    result = line(host).run("--config", file, "--user", "ada", "status")
    assert "no configuration key backend_config.new_key" in result.stderr


@pytest.mark.parametrize(("mode", "used"), [(0o600, True), (0o644, True), (0o660, False), (0o606, False)])
def test_settings_that_another_user_may_have_written_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, used: bool
) -> None:
    path = tmp_path / "host.json"
    path.write_text('{"version": 1, "host": "DeerFlow", "settings": {}}')
    path.chmod(mode)
    assert (read_host_file(tmp_path) is not None) is used
    assert ("can be written by another user" in caplog.text) is not used


@pytest.mark.parametrize("where", ["option", "option after the verb", "environment"])
def test_an_agent_has_deerflows_name_on_the_command_line_too(host, monkeypatch, where):
    host.manager().create_fact("Writes Go", confidence=0.9, user_id="ada", agent_name="Coder")
    named = ("--agent", "Coder") if where == "option" else ()
    after = ("--agent", "Coder") if where == "option after the verb" else ()
    if where == "environment":
        monkeypatch.setenv("BACKSTORY_AGENT", "CODER")
    cli = line(host)
    assert [fact["content"] for fact in cli.json("--user", "ada", *named, "show", *after)["facts"]] == ["Writes Go"]
    said = cli.file("t1.jsonl", {"thread_id": "t1", "role": "user", "content": "Hi"})
    cli.run("--user", "ada", *named, "record", said, *after)
    cli.run("--user", "ada", *named, "forget", "--matching", "Writes Go", "--yes", *after)
    assert contents(host.manager(), agent="coder") == []
    assert [path.name for path in (home_of(host) / "users" / "ada" / "agents").iterdir()] == ["coder"]


def test_without_a_host_the_names_of_agents_are_as_given(tmp_path):
    cli = Cli(tmp_path / "home")
    cli.run("--user", "ada", "--agent", "Coder", "fact", "add", "Writes Go")
    assert (cli.home / "users" / "ada" / "agents" / "Coder").is_dir()
