"""Containers that the files of `deploy/` start: from the image, the compose files and the Kubernetes manifests."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
NATS_CONF = DEPLOY / "nats" / "nats.conf"

COMBINATIONS = (
    ("compose.yaml",),
    ("compose.yaml", "compose.postgres.yaml"),
    ("compose.yaml", "compose.postgres.yaml", "compose.redis.yaml"),
    ("compose.yaml", "compose.nats.yaml"),
    ("compose.yaml", "compose.nats.yaml", "compose.redis.yaml"),
)
COMPOSE_FILES = sorted(DEPLOY.glob("compose*.yaml"))
MANIFESTS = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))

SECRETS = {
    "event-store": "postgresql://backstory_writer:secret@db:5432/backstory",
    "redis-url": "rediss://:secret@cache:6379/0",
    "tokens": '{"tokens": []}',
    "openai-api-key": "secret",
    "token": "12e5",
    "route-password": "7k",
}
"""Values of the keys of Secrets. Two of them nats-server would read as numbers."""

_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([?-])([^}]*))?\}")
_REFERENCE = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True)
class Container:
    """What is started: `words` follow the image's entry point, or are the whole command of another image."""

    place: str
    image: str
    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        return "backstory:" in self.image


class Image:
    """The Dockerfile, read by its last stage."""

    def __init__(self) -> None:
        parser = DockerfileParser(str(DEPLOY / "Dockerfile"))
        self.steps = [step for step in parser.structure if step["instruction"] != "COMMENT"]
        last = max(at for at, step in enumerate(self.steps) if step["instruction"] == "FROM")
        self.final = self.steps[last:]
        self.environment = parser.envs

    def value(self, instruction: str) -> str:
        (value,) = [step["value"] for step in self.final if step["instruction"] == instruction]
        return value

    def words(self, instruction: str) -> list[str]:
        """The words of an instruction in exec form; json.JSONDecodeError where a shell would run it."""
        return json.loads(self.value(instruction))

    @property
    def probe(self) -> list[str]:
        return json.loads(self.value("HEALTHCHECK").partition("CMD ")[2])

    @property
    def sources(self) -> list[str]:
        """What is copied from the repository."""
        copies = [shlex.split(step["value"]) for step in self.steps if step["instruction"] == "COPY"]
        return [name for words in copies if not words[0].startswith("--from") for name in words[:-1]]


IMAGE = Image()


def compose(names: Sequence[str], variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Merge compose files: mappings by key, later values over earlier ones. Variables get their names as values."""
    merged: dict[str, Any] = {}
    for name in names:
        _merge(merged, yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8")))
    return _filled(merged, variables)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, list) and isinstance(into.get(key), list):
            into[key] = [*into[key], *value]
        else:
            into[key] = value


def _filled(value: Any, variables: Mapping[str, str] | None) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name, kind, text = match.groups()
        return (variables or {}).get(name, text if kind == "-" else name.lower())

    return _VARIABLE.sub(fill, value).replace("$$", "$")


def manifests(paths: Sequence[Path] = MANIFESTS) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the manifests, and its name."""
    for path in paths:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(DEPLOY)}:{document['kind']}", document


def pods(paths: Sequence[Path] = MANIFESTS) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every object that starts pods: its name, itself, and the template of the pods."""
    for place, document in manifests(paths):
        template = document.get("spec", {}).get("template")
        if template is not None:
            yield place, document, template


def _in_kubernetes() -> Iterator[Container]:
    for place, document, template in pods():
        for container in template["spec"]["containers"]:
            environment: dict[str, str] = {}
            for variable in container.get("env", ()):
                environment[variable["name"]] = _expanded(_value(variable, document), environment)
            words = [*container.get("command", ()), *container.get("args", ())]
            yield Container(place, container["image"], [_expanded(word, environment) for word in words], environment)


def _value(variable: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    source = variable.get("valueFrom")
    if source is None:
        return variable["value"]
    if "secretKeyRef" in source:
        return SECRETS[source["secretKeyRef"]["key"]]
    field_path = source["fieldRef"]["fieldPath"]
    ordinal = document["spec"].get("ordinals", {}).get("start", 0)
    return {
        "metadata.name": f"{document['metadata']['name']}-{ordinal}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
    }[field_path]


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: environment[match[1]], text)


def _in_compose(names: Sequence[str]) -> Iterator[Container]:
    for name, service in compose(names)["services"].items():
        yield Container(
            f"{names[-1]}:{name}", service["image"], service.get("command", ()), service.get("environment", {})
        )


CONTAINERS = (
    Container("Dockerfile", "backstory:itself", IMAGE.words("CMD")),
    *(container for names in COMBINATIONS for container in _in_compose(names)),
    *_in_kubernetes(),
)
OURS = [container for container in CONTAINERS if container.ours]
