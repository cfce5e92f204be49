"""What the containers start: our command line takes every command, our configuration every variable."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer
from deploy.started import CONTAINERS, NATS_CONF, OURS, ROOT, Container, manifests

from backstory.cli.app import app
from backstory.config.loading import load_settings
from backstory.config.settings import Settings
from backstory.http.access.tokens import VARIABLE, TokenFile, Tokens
from backstory.ledger.core.errors import ConfigError
from backstory.ledger.engines.nats.address import read_address
from backstory.worker import Selection

READ = {f"BACKSTORY_{key.upper()}" for key in Settings.model_fields} | {
    VARIABLE,
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
}
NATS_PORT = 4222


def parsed(words: list[str]) -> Any:
    """Parse a command line as `backstory` does, and run nothing."""
    command, name = typer.main.get_command(app), "backstory"
    context = command.make_context(name, list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context


def engine(container: Container) -> str:
    return container.environment.get("BACKSTORY_EVENT_STORE", "jsonl:").partition(":")[0]


def by_place(containers: list[Container]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("container", containers, ids=lambda one: one.place)


@by_place(OURS)
def test_the_command_line_takes_the_command(container: Container) -> None:
    context = parsed(list(container.words))
    assert context.info_name in ("serve", "worker", "migrate")
    if context.info_name == "worker":
        Selection.of(context.params["scopes"])


def test_the_page_has_only_commands_that_exist() -> None:
    text = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    ours = [
        match[1].strip()
        for line in lines
        if (match := re.search(r"(?:^backstory|\brun --rm --no-deps server) (.+)", line))
    ]
    assert len(ours) >= 2
    for words in ours:
        parsed(shlex.split(words))


@by_place(OURS)
def test_every_variable_is_one_that_is_read(container: Container) -> None:
    used = {name for word in _stated_words(container) for name in re.findall(r"\$\((\w+)\)", word)}
    assert {name for name in container.environment if name not in READ | used} == set()


def _stated_words(container: Container) -> list[str]:
    """The words before references are replaced."""
    for place, document in manifests():
        if place == container.place and "template" in document["spec"]:
            return [word for one in document["spec"]["template"]["spec"]["containers"] for word in one.get("args", ())]
    return list(container.words)


@by_place(OURS)
def test_the_configuration_takes_the_values(container: Container, tmp_path: Any) -> None:
    loaded = load_settings(environ=container.environment, home=tmp_path)
    assert loaded.settings.event_store == container.environment.get("BACKSTORY_EVENT_STORE", "jsonl:")
    Tokens(TokenFile(tmp_path / "tokens.json"), container.environment)


def test_the_variables_that_kubernetes_makes_for_a_service_would_be_refused(tmp_path: Any) -> None:
    """The reason for `enableServiceLinks: false`."""
    with pytest.raises(ConfigError, match="no configuration key port"):
        load_settings(environ={"BACKSTORY_PORT": "tcp://10.0.0.1:8765"}, home=tmp_path)


@by_place([one for one in OURS if one.place.startswith("compose.postgres") and engine(one) == "postgresql"])
def test_the_address_of_postgres_is_that_of_its_service(container: Container) -> None:
    from psycopg.conninfo import conninfo_to_dict

    stated = conninfo_to_dict(container.environment["BACKSTORY_EVENT_STORE"])
    (server,) = [one for one in CONTAINERS if one.place == "compose.postgres.yaml:postgres"]
    assert server.place.endswith(f":{stated['host']}")
    assert stated["port"] == "5432"
    named = {key: server.environment[f"POSTGRES_{name}"] for key, name in (("user", "USER"), ("dbname", "DB"))}
    assert {key: stated[key] for key in named} == named
    assert stated["password"] == server.environment["POSTGRES_PASSWORD"]


@by_place([one for one in OURS if one.place.startswith("compose.nats") and engine(one) == "nats"])
def test_the_address_of_nats_is_that_of_its_services_with_what_they_keep(container: Container) -> None:
    address = read_address(container.environment["BACKSTORY_EVENT_STORE"])
    nodes = [one for one in CONTAINERS if one.place.startswith("compose.nats.yaml:nats-")]
    hosts = {f"nats://{one.environment['NATS_NAME']}:{NATS_PORT}" for one in nodes}
    assert set(address.servers) == hosts
    assert (address.replicas, address.sync) == (len(nodes), "always")
    assert {one.environment["NATS_TOKEN"] for one in nodes} == {f'"{address.token}"'}
    assert f"port: {NATS_PORT}" in NATS_CONF.read_text(encoding="utf-8")


@by_place([one for one in OURS if "BACKSTORY_REDIS_URL" in one.environment and one.place.startswith("compose")])
def test_the_address_of_redis_is_that_of_its_service(container: Container) -> None:
    from redis.connection import parse_url

    (server,) = {one.environment["REDIS_PASSWORD"] for one in CONTAINERS if one.place == "compose.redis.yaml:redis"}
    stated = parse_url(container.environment["BACKSTORY_REDIS_URL"])
    assert (stated["host"], stated["port"], stated["password"]) == ("redis", 6379, server)


def test_each_kind_of_container_was_found() -> None:
    """So that no check above passes because there is nothing to check."""
    kinds = {(one.place.partition(":")[0].partition("/")[0], one.words[0], engine(one)) for one in OURS}
    assert kinds >= {
        ("Dockerfile", "serve", "jsonl"),
        ("compose.yaml", "worker", "jsonl"),
        ("compose.postgres.yaml", "migrate", "postgresql"),
        ("compose.postgres.yaml", "worker", "postgresql"),
        ("compose.nats.yaml", "serve", "nats"),
        ("compose.redis.yaml", "worker", "nats"),
        ("kubernetes", "serve", "postgresql"),
        ("kubernetes", "migrate", "postgresql"),
    }
