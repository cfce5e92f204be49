"""The image: a small, non-root container that a signal reaches, with what the repository has."""

from __future__ import annotations

import re
import tomllib

import pytest
from deploy.started import DEPLOY, IMAGE, ROOT, compose, pods

from backstory.http.routes.home import unversioned
from backstory.http.server import DEFAULT_PORT
from backstory.version import __version__

ROUTES = {route.path for route in unversioned.routes}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_what_is_installed_exists_as_extras() -> None:
    (stated,) = re.findall(r"\.whl\)\[([\w,]+)\]", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    extras = stated.split(",")
    assert {"server", "postgres", "nats", "redis", "mcp", "tokens"} == set(extras)
    assert set(extras) <= set(project()["optional-dependencies"])


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n")
    assert "*" in lines
    assert sorted(IMAGE.sources) == sorted(line[1:] for line in lines if line.startswith("!"))
    assert [name for name in IMAGE.sources if not (ROOT / name).exists()] == []


def test_what_the_wheel_needs_is_copied() -> None:
    stated = project()
    # The licences of what the page brings along lie within the package.
    licences = {name for name in stated["license-files"] if not name.startswith("backstory/")}
    needed = {"pyproject.toml", stated["readme"], *licences, "backstory"}
    links = {path.name for path in (ROOT / "backstory").iterdir() if path.is_symlink()}
    assert needed | links == set(IMAGE.sources)


def test_python_is_a_version_that_the_project_supports() -> None:
    (version,) = re.findall(r"ARG PYTHON=(\S+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    assert f"Programming Language :: Python :: {version}" in project()["classifiers"]


def test_no_shell_stands_between_a_signal_and_the_process() -> None:
    assert IMAGE.words("ENTRYPOINT") == ["backstory"]
    assert IMAGE.value("STOPSIGNAL") == "SIGTERM"


def test_it_is_not_root_and_its_home_is_a_volume() -> None:
    user, group = IMAGE.value("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert IMAGE.value("VOLUME") == IMAGE.environment["BACKSTORY_HOME"] == IMAGE.environment["HOME"]


@pytest.mark.parametrize(("place", "template"), [(place, template) for place, _, template in pods()])
def test_pods_run_as_the_user_of_the_image(place: str, template: dict) -> None:
    context = template["spec"]["securityContext"]
    if "nats" not in place:
        assert f"{context['runAsUser']}:{context['runAsGroup']}" == IMAGE.value("USER")
        assert context["fsGroup"] == context["runAsGroup"]


def test_the_health_check_asks_a_route_of_the_server_at_its_port() -> None:
    command, option, code = IMAGE.probe
    assert (command, option) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    port, path = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", code)[0]
    assert int(port) == DEFAULT_PORT
    assert path in ROUTES


def test_every_port_of_the_server_is_the_same() -> None:
    words = IMAGE.words("CMD")
    service = compose(["compose.yaml"])["services"]["server"]
    assert [words[words.index("--port") + 1], IMAGE.value("EXPOSE")] == [str(DEFAULT_PORT)] * 2
    assert [port.split(":") for port in service["ports"]] == [["127.0.0.1", str(DEFAULT_PORT), str(DEFAULT_PORT)]]
    assert service["command"] == words


def test_every_named_version_is_that_of_the_project() -> None:
    named = [
        (path.name, version)
        for path in (*DEPLOY.rglob("*.yaml"), ROOT / "docs" / "how-to" / "deploy.md")
        for version in re.findall(r"backstory:(\d[\w.]*)", path.read_text(encoding="utf-8"))
    ]
    assert named
    assert {version for _, version in named} == {__version__}, named
