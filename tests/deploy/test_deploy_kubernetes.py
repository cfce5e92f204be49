"""The Kubernetes manifests: valid by Kubernetes' own schemas, and what they name is there."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import Mock

import kubernetes_validate
import pytest
from deploy.started import IMAGE, NATS_CONF, ROOT, manifests, pods

from backstory.config.settings import Settings
from backstory.http import server
from backstory.http.access.gate import _PUBLIC
from backstory.http.routes.home import unversioned
from backstory.http.routes.worker import worker_app
from backstory.http.server import DEFAULT_PORT

OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
OBJECTS = list(manifests())
PODS = list(pods())
OURS = [one for one in PODS if "nats" not in one[0]]
END_SECONDS = server._GRACE_SECONDS + Settings().shutdown_flush_timeout_seconds
KEY = re.compile(r"PASSWORD|TOKEN|KEY|STORE|REDIS_URL|ROUTES")


def each(found: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("one", found, ids=lambda one: one[0])


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [document for _, document in OBJECTS if (document["kind"], document["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@each(OBJECTS)
def test_the_schema_takes_it(one: Any, version: str) -> None:
    kubernetes_validate.validate(one[1], version, strict=True)


@each(PODS)
def test_a_selector_selects_its_own_pods(one: Any) -> None:
    _, document, template = one
    if document["kind"] != "Job":
        assert document["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]


@each([one for one in OBJECTS if one[1]["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy")])
def test_what_selects_pods_selects_those_of_one_template(one: Any) -> None:
    spec = one[1]["spec"]
    stated = spec.get("podSelector") or spec["selector"]
    labels = stated.get("matchLabels", stated)
    assert len([place for place, _, template in PODS if labels.items() <= template["metadata"]["labels"].items()]) == 1


@each([one for one in PODS if one[1]["kind"] != "Job"])
def test_what_runs_for_long_has_two_pods_or_more_of_which_one_may_be_taken(one: Any) -> None:
    _, document, template = one
    assert document["spec"]["replicas"] >= 2
    budgets = [
        found["spec"]
        for _, found in OBJECTS
        if found["kind"] == "PodDisruptionBudget"
        and found["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    ]
    assert [budget["maxUnavailable"] for budget in budgets] == [1]


@each(PODS)
def test_a_pod_has_no_more_rights_than_it_needs(one: Any) -> None:
    spec = one[2]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}


@each(PODS)
def test_a_pod_gets_no_variables_of_services(one: Any) -> None:
    assert one[2]["spec"]["enableServiceLinks"] is False


@each(PODS)
def test_a_pod_mounts_the_volumes_that_it_has(one: Any) -> None:
    _, document, template = one
    claims = document["spec"].get("volumeClaimTemplates", ())
    volumes = {*(claim["metadata"]["name"] for claim in claims), *(v["name"] for v in template["spec"]["volumes"])}
    (container,) = template["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == volumes
    if one in OURS:
        assert mounts == {"home": IMAGE.environment["BACKSTORY_HOME"], "tmp": "/tmp"}  # noqa: S108 its name


@each([one for one in OURS if one[1]["kind"] != "Job"])
def test_a_pod_has_the_time_to_end(one: Any) -> None:
    spec = one[2]["spec"]
    (container,) = spec["containers"]
    before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert spec["terminationGracePeriodSeconds"] > before + END_SECONDS


@each(PODS)
def test_probes_ask_routes_without_a_token_at_ports_that_exist(one: Any) -> None:
    (container,) = one[2]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    routes = {
        "server": {route.path for route in unversioned.routes} & _PUBLIC,
        "worker": {route.path for route in worker_app(Mock(), Mock(), Mock()).routes},
    }
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        if container["name"] != "migrate":
            assert container[kind]["httpGet"]["port"] in ports
        if container["name"] in routes:
            assert container[kind]["httpGet"]["path"] in routes[container["name"]]
            assert ports == {"http": DEFAULT_PORT}
            assert container["args"][-4:] == IMAGE.words("CMD")[-4:]


@each([one for one in PODS if one[2]["spec"]["containers"][0]["name"] == "server"])
def test_a_server_starts_once_the_engine_answers_and_then_stays_while_the_engine_is_away(one: Any) -> None:
    (container,) = one[2]["spec"]["containers"]
    probed = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    # All pods share the engine, so a later probe that asked it would take all of them at once.
    assert probed == {"startupProbe": "/readyz", "livenessProbe": "/healthz", "readinessProbe": "/healthz"}


def test_services_lead_to_the_ports_of_their_pods() -> None:
    for name, place in (("backstory", "kubernetes/server.yaml"), ("backstory-nats", "kubernetes/nats/nats.yaml")):
        (container,) = next(t for found, _, t in PODS if found.startswith(place))["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        service = named("Service", name)["spec"]
        assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports


def test_the_ports_of_nats_are_those_of_its_configuration() -> None:
    text = NATS_CONF.read_text(encoding="utf-8")
    (container,) = named("StatefulSet", "backstory-nats")["spec"]["template"]["spec"]["containers"]
    stated = {port["name"]: port["containerPort"] for port in container["ports"]}
    client, cluster = re.findall(r"(?m)^\s*port: (\d+)", text)
    (monitor,) = re.findall(r"(?m)^http_port: (\d+)", text)
    assert stated == {"client": int(client), "cluster": int(cluster), "monitor": int(monitor)}
    (policy,) = [document["spec"] for _, document in OBJECTS if document["kind"] == "NetworkPolicy"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(stated.values())


def test_the_nodes_of_nats_know_each_other_by_name() -> None:
    document = named("StatefulSet", "backstory-nats")
    service, replicas = document["spec"]["serviceName"], document["spec"]["replicas"]
    assert named("Service", service)["spec"]["clusterIP"] == "None"
    (container,) = document["spec"]["template"]["spec"]["containers"]
    (routes,) = [variable["value"] for variable in container["env"] if variable["name"] == "NATS_ROUTES"]
    assert re.findall(r"@([\w.-]+):6222", routes) == [f"backstory-nats-{n}.{service}" for n in range(replicas)]


def test_as_many_shards_are_stated_as_there_are_pods() -> None:
    document = named("StatefulSet", "backstory-shard")
    (container,) = document["spec"]["template"]["spec"]["containers"]
    (shards,) = [variable["value"] for variable in container["env"] if variable["name"] == "SHARDS"]
    assert int(shards) == document["spec"]["replicas"]
    assert document["spec"]["ordinals"]["start"] == 1


@each(PODS)
def test_secrets_come_from_secrets_whose_keys_the_page_makes(one: Any) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    for variable in one[2]["spec"]["containers"][0].get("env", ()):
        source = variable.get("valueFrom", {}).get("secretKeyRef")
        if source is not None:
            made = [part for part in page.split("create secret generic ")[1:] if part.startswith(f"{source['name']} ")]
            given = {
                key for part in made for key in re.findall(r"--from-(?:literal|file)=([\w-]+)=", part.split("\n\n")[0])
            }
            assert source["key"] in given or source.get("optional"), source
        elif KEY.search(variable["name"]):
            assert "$(" in variable["value"], variable["name"]


def test_there_is_no_secret_in_a_file() -> None:
    assert [place for place, document in OBJECTS if document["kind"] == "Secret"] == []
