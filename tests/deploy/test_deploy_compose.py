"""The compose files: valid by the schema of the specification, alone and together, without a secret in them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from deploy.started import COMBINATIONS, COMPOSE_FILES, DEPLOY, IMAGE, compose

from backstory.config.settings import Settings
from backstory.http import server

SECRET = re.compile(r"PASSWORD|TOKEN|KEY|STORE|REDIS_URL|ROUTES")
END_SECONDS = server._GRACE_SECONDS + Settings().shutdown_flush_timeout_seconds


def by_files() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("names", COMBINATIONS, ids=" ".join)


def test_the_schema_takes_every_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, *map(str, COMPOSE_FILES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_is_in_a_combination() -> None:
    assert {path.name for path in COMPOSE_FILES} == {name for names in COMBINATIONS for name in names}


@by_files()
def test_what_is_named_is_there(names: tuple[str, ...]) -> None:
    whole = compose(names)
    for name, service in whole["services"].items():
        assert service.get("image"), name
        assert set(service.get("depends_on", ())) <= set(whole["services"]), name
        for needed, how in service.get("depends_on", {}).items():
            ends = how["condition"] == "service_completed_successfully"
            assert ends == (whole["services"][needed].get("restart") == "no"), f"{name} waits for {needed}"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith("./") else source in whole["volumes"], volume


@by_files()
def test_a_service_is_waited_for_only_if_it_says_that_it_is_healthy(names: tuple[str, ...]) -> None:
    services = compose(names)["services"]
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                check = services[needed].get("healthcheck", {"test": IMAGE.probe if needed == "server" else None})
                assert check.get("test"), f"{name} waits for {needed}"


@by_files()
def test_our_containers_have_no_more_rights_than_they_need(names: tuple[str, ...]) -> None:
    ours = {name: one for name, one in compose(names)["services"].items() if one["image"].startswith("backstory:")}
    assert {"server", "worker"} <= set(ours)
    for name, service in ours.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        places = [entry.split(":")[0 if entry.startswith("/") else 1] for entry in service.get("volumes", ())]
        written = [*places, *(entry.split(":")[0] for entry in service["tmpfs"])]
        assert sorted(written) == [IMAGE.environment["BACKSTORY_HOME"], "/tmp"], name  # noqa: S108 its name
        options = [entry.partition(":")[2] for entry in service["tmpfs"] if entry.startswith("/data:")]
        user, group = IMAGE.value("USER").split(":")
        assert options in ([], [f"uid={user},gid={group},mode=0700"]), name


@by_files()
def test_server_and_worker_have_the_time_to_end(names: tuple[str, ...]) -> None:
    services = compose(names)["services"]
    for name in ("server", "worker"):
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > END_SECONDS


@by_files()
def test_nothing_but_the_server_is_published_and_that_on_this_machine(names: tuple[str, ...]) -> None:
    published = {name: one["ports"] for name, one in compose(names)["services"].items() if "ports" in one}
    assert list(published) == ["server"]
    assert all(port.startswith("127.0.0.1:") for port in published["server"])


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: path.name)
def test_secrets_come_from_the_environment_and_cannot_be_left_out(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    required = set(re.findall(r"\$\{(\w+):\?", text))
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
    assert {name for name in used - required if SECRET.search(name)} == set()
    whole = yaml.safe_load(text)
    blocks = [service.get("environment", {}) for service in whole["services"].values()]
    for name, value in (item for block in blocks for item in block.items()):
        if SECRET.search(name):
            assert set(re.findall(r"\$\{(\w+)", value)) & required, name
