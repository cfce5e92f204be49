"""The OpenAPI document, the page that shows it, health and metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fakes import ScriptedModel, exchange, reply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from served_home import CheckedClient, Server, contract_of, user
from sizes import examples

from backstory.http.openapi.schemas import components
from backstory.ledger.extraction.models.model import Answer, Usage

ADA = user("ada")


@pytest.fixture
def document(server: Server) -> Mapping[str, Any]:
    return server.app.openapi()


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


# The document.


def test_it_is_served_as_it_is_made(client: CheckedClient, document: Mapping[str, Any]) -> None:
    served = client.get("/openapi.json")
    assert served.json()["openapi"].startswith("3.1")
    assert served.json()["paths"].keys() == document["paths"].keys()


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: Mapping[str, Any]) -> None:
    named = document["components"]["schemas"]
    found = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", repr(document)))
    assert found <= named.keys()
    assert named.keys() - found <= {"HTTPValidationError", "ValidationError"}, "nothing uses these"
    for name, schema in named.items():
        assert re.fullmatch(r"[A-Za-z0-9._]+", name), name
        Draft202012Validator.check_schema(schema)


def test_no_schema_takes_the_name_of_another(document: Mapping[str, Any]) -> None:
    """Those of the answers and those of the bodies are made by two libraries."""
    for name, schema in components().items():
        assert document["components"]["schemas"][name] == schema, name


def test_every_route_is_described(document: Mapping[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation.get("description") or path.startswith("/api/memory"), where
        assert operation["tags"], where
        assert {"401", "403", "503"} <= operation["responses"].keys(), where
        if "requestBody" in operation:
            assert {"408", "413"} <= operation["responses"].keys(), where
        for status, answer in operation["responses"].items():
            assert answer["description"], f"{where} {status}"
        for parameter in operation.get("parameters", ()):
            assert (
                parameter["schema"].get("description")
                or parameter.get("description")
                or path.startswith("/api/memory")
                or parameter["name"] in ("fact_id", "section", "max_tokens")
            ), f"{where} {parameter['name']}"


def test_every_example_is_one(server: Server, document: Mapping[str, Any]) -> None:
    contract = contract_of(server.app)
    checked = 0
    for _, _, operation in operations(document):
        for answer in operation["responses"].values():
            for content in answer.get("content", {}).values():
                if "example" in content:
                    contract.validate(content["schema"], content["example"])
                    checked += 1
        for parameter in operation.get("parameters", ()):
            for example in parameter["schema"].get("examples", ()):
                contract.validate(parameter["schema"], example)
                checked += 1
    for schema in document["components"]["schemas"].values():
        for example in schema.get("examples", ()):
            contract.validate(schema, example)
        for value in schema.get("properties", {}).values():
            for example in value.get("examples", ()):
                contract.validate(value, example)
                checked += 1
    assert checked > 30


def example_of(document: Mapping[str, Any], schema: Mapping[str, Any]) -> object:
    """Spell a value from the examples of a schema; what has none and is not required is left out."""
    if "$ref" in schema:
        return example_of(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "examples" in schema:
        return schema["examples"][0]
    if schema.get("type") == "object":
        required = schema.get("required", ())
        stated = {name: value for name, value in schema.get("properties", {}).items()
                  if name in required or "examples" in value}  # fmt: skip
        return {name: example_of(document, value) for name, value in stated.items()}
    if schema.get("type") == "array":
        return [example_of(document, schema["items"])]
    return example_of(document, schema["anyOf"][0])


def test_the_examples_of_requests_work(told: Server) -> None:
    """On a home with the demo's story each request of the document's examples is carried out."""
    document = told.app.openapi()
    by_id = {operation["operationId"]: (path, method, operation) for path, method, operation in operations(document)}
    with told.client() as client:
        for name in ("record", "add_fact", "edit_fact", "make_context", "what_if", "import_document", "set_policy",
                     "revert", "rollback", "forget"):  # fmt: skip
            path, method, operation = by_id[name]
            body = example_of(document, operation["requestBody"]["content"]["application/json"]["schema"])
            done = client.request(method.upper(), path.format(fact_id="fact_2_1"), params=ADA, json=body)
            assert done.status_code in (200, 201), (name, body, done.text)


# The page.


def test_the_page_asks_no_other_host_and_runs_no_script_of_its_own(client: CheckedClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|\*|unsafe-eval|script-src[^;]*unsafe", policy)
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(linked) == 4
    assert re.findall(r"<script[^>]*>([^<]+)", page.text) == []
    for link in linked:
        if not link.startswith("data:"):
            assert link.startswith("/")
            assert "//" not in link
            file = client.get(link)
            assert (file.status_code, len(file.content) > 100) == (200, True), link
    assert "http" not in client.get("/docs/begin.js").text
    assert client.get("/redoc").status_code == 404


def test_its_files_come_with_an_installed_package() -> None:
    installed = {str(file) for file in files("fastapi-offline") or ()}
    assert {"fastapi_offline/static/swagger-ui.css", "fastapi_offline/static/swagger-ui-bundle.js"} <= installed


# Health.


def test_a_home_that_cannot_be_written_is_not_ready(server: Server, client: CheckedClient) -> None:
    assert client.get("/readyz").json() == {"ok": True}
    server.home.memory("ada").add_fact("likes tea")
    assert client.get("/readyz").json() == {"ok": True}
    moved = server.path.rename(server.path.with_name("away"))
    server.path.write_text("no folder")
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert refused.json()["ok"] is False
    assert str(server.path.parent) not in refused.text
    assert client.get("/healthz").json() == {"ok": True}
    server.path.unlink()
    moved.rename(server.path)
    assert client.get("/readyz").status_code == 200


# Metrics.


def numbers(client: CheckedClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = client.get("/metrics").text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Mapping[Any, float], name: str, **labels: str) -> float:
    return found.get((name, tuple(sorted(labels.items()))), 0)


def test_what_is_done_is_counted(servers: Callable[..., Server]) -> None:
    answers = (Answer(reply("likes tea", "likes tea"), "gpt-x", Usage(70, 5)), "nothing", "nothing")
    server = servers(model=ScriptedModel(*answers), fact_confidence_threshold=0.5)
    with server.client() as client:
        client.post("/v1/record", params=ADA, json={"thread": "t", "messages": exchange("tea")})
        assert value(numbers(client), "backstory_threads_pending") == 1
        client.post("/v1/extract", params=ADA)
        for _ in range(2):
            client.post("/v1/facts", params=ADA, json={"content": "likes milk"})
        client.post("/v1/record", params=ADA, json={"thread": "u", "messages": exchange("rum")})
        client.post("/v1/extract", params=ADA)
        found = numbers(client)
    assert value(found, "backstory_commits_total", kind="manual") == 2
    assert value(found, "backstory_commits_total", kind="genesis") == 1
    assert value(found, "backstory_candidates_refused_total", rule="duplicate") == 2
    assert value(found, "backstory_model_tokens_total", model="gpt-x", direction="in") == 70
    assert value(found, "backstory_model_tokens_total", model="gpt-x", direction="out") == 5
    assert value(found, "backstory_threads_pending") == 0
    assert value(found, "backstory_threads_parked") == 1
    assert value(found, "backstory_outbox_deliveries") == 0
    seconds = "backstory_http_request_seconds_count"
    assert value(found, seconds, method="POST", route="/v1/facts", status="201") == 1
    assert value(found, seconds, method="POST", route="/v1/facts", status="409") == 1
    assert value(found, seconds, method="POST", route="/v1/record", status="200") == 2


def test_every_path_has_the_label_of_its_route_or_none(server: Server, client: CheckedClient) -> None:
    for path, method, _ in operations(server.app.openapi()):
        if path == "/v1/events":
            continue  # this client waits for the end of an answer
        client.request(
            method.upper(), path.format(fact_id="secret-1", section="secret-2", seq=9), params={"user": "secret-3"}
        )
    for n in range(20):
        client.get(f"/v1/nothing/{n}")
        client.get(f"/static/secret-{n}.js")
        client.request(f"METHOD{n}", "/v1/facts")
        client.get(f"/api/memory/secret-{n}")
    routes = {path for path, _, _ in operations(server.app.openapi())}
    labels = [dict(labels) for name, labels in numbers(client) if name.endswith("request_seconds_count")]
    known = {re.sub(r":\w+}", "}", label["route"]) for label in labels}
    assert known <= routes | {"none"}
    assert {"/v1/facts/{fact_id}", "/v1/facts", "/api/memory", "/v1/scopes"} <= known
    assert {label["method"] for label in labels} <= {"GET", "POST", "PATCH", "DELETE", "other"}
    assert "secret" not in client.get("/metrics").text


hostile = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).map(lambda text: f"s3cret{text}")


@given(name=hostile, thread=hostile, content=hostile)
@settings(max_examples=examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_name_and_no_content_is_in_the_metrics(
    servers: Callable[..., Server], tmp_path: Path, name: str, thread: str, content: str
) -> None:
    server = servers(f"h{len(list(tmp_path.iterdir()))}", model=ScriptedModel(reply(content), "s3cret"))
    with server.client() as client:
        params = {"user": name}
        messages = [{"role": "user", "content": content}, {"role": "assistant", "content": content}]
        client.post("/v1/record", params=params, json={"thread": thread, "messages": messages})
        client.post("/v1/extract", params=params)
        client.post("/v1/facts", params=params, json={"content": content, "category": content})
        client.get(f"/v1/facts/{quote(thread)}/why", params=params)
        client.get("/v1/turns", params={**params, "thread": content})
        client.get("/v1/facts", params={**params, "cursor": thread})
        assert "s3cret" not in client.get("/metrics").text


def test_metrics_are_those_of_one_server(servers: Callable[..., Server]) -> None:
    with servers("one").client() as one, servers("two").client() as two:
        one.post("/v1/facts", params=ADA, json={"content": "likes tea"})
        assert value(numbers(one), "backstory_commits_total", kind="manual") == 1
        assert value(numbers(two), "backstory_commits_total", kind="manual") == 0
