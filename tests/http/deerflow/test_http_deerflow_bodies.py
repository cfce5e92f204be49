"""What DeerFlow's routes answer when all is well: the code and the body of each."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from gateway_client import EMPTY_SECTION, FACTS, MEMORY, SECTIONS, Gateway, contents, document, fact

from backstory.http.deerflow.models import MemoryConfig, MemoryStatus
from backstory.http.openapi.schemas import components
from backstory.projections.document.document import Document

ANSWERS: dict[str, type] = {MEMORY: Document, f"{MEMORY}/status": MemoryStatus, f"{MEMORY}/config": MemoryConfig}
READS = (("GET", MEMORY), ("GET", f"{MEMORY}/export"), ("POST", f"{MEMORY}/reload"))


def as_json(value: object) -> object:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(("method", "path"), READS)
def test_an_unused_memory_is_an_empty_document(gateway: Gateway, method: str, path: str) -> None:
    response = gateway.client().request(method, path)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    body = response.json()
    assert list(body) == ["version", "lastUpdated", "user", "history", "facts"]
    assert {group: body[group] for group in SECTIONS} == {
        group: dict.fromkeys(names, EMPTY_SECTION) for group, names in SECTIONS.items()
    }
    assert (body["version"], body["lastUpdated"], body["facts"]) == ("1.0", "", [])
    assert not (gateway.path / "users").exists()


@pytest.mark.parametrize(("method", "path"), READS)
def test_each_read_gives_memory_json(gateway: Gateway, method: str, path: str) -> None:
    memory = gateway.home.memory("ada")
    memory.add_fact("Likes 咖啡 <&>", "preference", 0.8)
    response = gateway.client().request(method, path)
    memory.flush()
    assert response.json() == json.loads((gateway.path / "users/ada/memory.json").read_bytes())
    assert "咖啡".encode() in response.content


def test_reload_brings_memory_json_up_to_date(gateway: Gateway) -> None:
    gateway.home.memory("ada").add_fact("Runs")
    assert gateway.client().post(f"{MEMORY}/reload").status_code == 200
    assert json.loads((gateway.path / "users/ada/memory.json").read_bytes())["facts"][0]["content"] == "Runs"


def test_a_fact_is_added_changed_and_deleted(gateway: Gateway) -> None:
    client = gateway.client()
    added = client.post(FACTS, json={"content": " Prefers tabs ", "category": "preference", "confidence": 0.88})
    assert added.status_code == 200
    (stored,) = added.json()["facts"]
    at = "2026-03-01T12:00:00.000000Z"
    assert stored == {
        "id": stored["id"],
        "content": "Prefers tabs",
        "category": "preference",
        "confidence": 0.88,
        "createdAt": at,
        "source": "manual",
        "byHand": True,
    }
    assert added.json()["lastUpdated"] == at
    changed = client.patch(f"{FACTS}/{stored['id']}", json={"content": "Prefers spaces"})
    assert changed.status_code == 200
    assert changed.json()["facts"] == [{**stored, "content": "Prefers spaces"}]
    deleted = client.delete(f"{FACTS}/{stored['id']}")
    assert (deleted.status_code, deleted.json()["facts"]) == (200, [])
    kinds = [entry.cause.action for entry in gateway.home.memory("ada").log()][:3]
    assert kinds == ["remove", "edit", "add"]


def test_a_fact_has_deerflows_defaults(gateway: Gateway) -> None:
    (stored,) = gateway.client().post(FACTS, json={"content": "Runs"}).json()["facts"]
    assert (stored["category"], stored["confidence"]) == ("context", 0.5)


@pytest.mark.parametrize(("stated", "stored"), [("workflow", "workflow"), (" Goal ", "goal"), ("", "context")])
def test_a_category_is_kept_as_given_and_an_empty_one_is_context(gateway: Gateway, stated: str, stored: str) -> None:
    client = gateway.client()
    (added,) = client.post(FACTS, json={"content": "Runs", "category": stated}).json()["facts"]
    assert added["category"] == stored
    client.patch(f"{FACTS}/{added['id']}", json={"category": "knowledge"})
    (changed,) = client.patch(f"{FACTS}/{added['id']}", json={"category": stated}).json()["facts"]
    assert changed["category"] == stored


@pytest.mark.parametrize("patch", [{}, {"content": None, "category": None, "confidence": None}, {"content": "Runs"}])
def test_a_patch_that_changes_nothing_gives_the_memory(gateway: Gateway, patch: dict[str, object]) -> None:
    client = gateway.client()
    before = client.post(FACTS, json={"content": "Runs", "category": "goal", "confidence": 0.7}).json()
    response = client.patch(f"{FACTS}/{before['facts'][0]['id']}", json=patch)
    assert (response.status_code, response.json()) == (200, before)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"category": "knowledge"}, {"category": "knowledge"}),
        ({"confidence": 0.0}, {"confidence": 0.0}),
        ({"content": "走路", "confidence": 1}, {"content": "走路", "confidence": 1.0}),
    ],
)
def test_a_patch_keeps_what_it_leaves_out(
    gateway: Gateway, patch: dict[str, object], expected: dict[str, object]
) -> None:
    client = gateway.client()
    (before,) = client.post(FACTS, json={"content": "Runs", "category": "goal", "confidence": 0.7}).json()["facts"]
    response = client.patch(f"{FACTS}/{before['id']}", json=patch)
    assert response.json()["facts"] == [{**before, **expected}]


def test_an_import_replaces_the_memory_and_gives_it_back(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    client.post(f"{MEMORY}/import", json=document(topOfMind="Moving house"))
    sent = [
        fact("fact_a", "Use make dev.", category="correction", sourceError="The agent said npm start."),
        fact("fact_b", "Likes tea"),
    ]
    response = client.post(f"{MEMORY}/import", json=document(*sent, workContext="Writes Go"))
    assert response.status_code == 200
    body = response.json()
    assert body["facts"] == sent
    assert body["user"]["workContext"]["summary"] == "Writes Go"
    assert body["user"]["topOfMind"]["summary"] == ""
    assert client.get(MEMORY).json() == body


def test_an_export_imported_elsewhere_is_the_same_document_byte_for_byte(gateways: Callable[..., Gateway]) -> None:
    one, other = gateways("one"), gateways("other")
    sent = [
        fact("fact_a", "Use 'make dev'\n<b>&amp;", category="correction", sourceError="npm start"),
        fact(
            "fact_b",
            "住在奥斯陆 🏔️",
            expectedValidDays=30,
            confirmationCount=2,
            lastConfirmedAt="2026-03-21T00:00:00.000000Z",
        ),
        fact("fact_c", "Merged", consolidatedFrom=["fact_x", "fact_y"], byHand=True),
        fact("fact_d", "Entered", source="manual", confidence=0.2),
    ]
    one.client().post(f"{MEMORY}/import", json=document(*sent, workContext="Schreibt Go", recentMonths="搬家"))
    exported = one.client().get(f"{MEMORY}/export").content
    other.client(user="bob").post(FACTS, json={"content": "Is replaced"})
    headers = {"content-type": "application/json"}
    answered = other.client(user="bob").post(f"{MEMORY}/import", content=exported, headers=headers).content
    assert answered == exported
    assert other.client(user="bob").get(f"{MEMORY}/export").content == exported
    assert json.loads(exported)["facts"] == [*sent[:3], {**sent[3], "byHand": True}]


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ({"type": "conversation", "threadId": "t9"}, "t9"),
        ({"type": "manual", "threadId": "t9"}, "manual"),
        ({"threadId": "t9"}, "t9"),
        ({"type": "conversation"}, "conversation"),
        ({}, "import"),
        (7, "import"),
    ],
)
def test_a_source_that_is_an_object_is_read_as_deerflow_reads_it(gateway: Gateway, source: object, stored: str) -> None:
    body = document(fact("fact_a", "Runs", source=source))
    client = gateway.client()
    (read,) = client.post(f"{MEMORY}/import", json=body).json()["facts"]
    assert read["source"] == stored
    described = client.get("/openapi.json").json()["components"]["schemas"]["ImportedFact"]["properties"]["source"]
    assert not described.keys() & {"type", "anyOf"}, "the document says that another value is refused"


def test_an_import_without_anything_empties_memory_and_can_be_undone(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    assert client.post(f"{MEMORY}/import", json={}).json()["facts"] == []
    gateway.home.memory("ada").revert()
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_clearing_empties_the_user_and_the_users_agents_and_keeps_the_history(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    gateway.home.memory("ada", "lead").add_fact("Reviews code")
    gateway.client(user="bob").post(FACTS, json={"content": "Swims"})
    response = client.delete(MEMORY)
    assert (response.status_code, response.json()["facts"]) == (200, [])
    assert gateway.home.memory("ada", "lead").own.document().facts == ()
    assert contents(gateway.client(user="bob").get(MEMORY)) == ["Swims"]
    gateway.home.memory("ada").revert()
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_the_status_is_the_configuration_and_the_memory(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    status = client.get(f"{MEMORY}/status")
    assert status.status_code == 200
    assert status.json() == {"config": client.get(f"{MEMORY}/config").json(), "data": client.get(MEMORY).json()}


def test_the_configuration_has_deerflows_form(gateways: Callable[..., Gateway]) -> None:
    gateway = gateways(max_facts=42, mode="tool", injection_enabled=False)
    config = gateway.client().get(f"{MEMORY}/config").json()
    assert set(config) == {
        "enabled",
        "mode",
        "injection_enabled",
        "shutdown_flush_timeout_seconds",
        "manager_class",
        "backend_config",
    }
    assert (config["enabled"], config["mode"], config["injection_enabled"]) == (True, "tool", False)
    assert config["shutdown_flush_timeout_seconds"] == 30.0
    assert config["manager_class"] == "backstory.deerflow:BackstoryMemoryManager"
    assert config["backend_config"]["max_facts"] == 42
    assert config["backend_config"]["debounce_seconds"] == 30.0
    assert not {"enabled", "mode", "injection_enabled"} & set(config["backend_config"])


def test_every_answer_is_what_the_openapi_document_says(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(
        f"{MEMORY}/import", json=document(fact("fact_a", "Runs", expectedValidDays=30, byHand=True), workContext="Go")
    )
    for path, kind in ANSWERS.items():
        answer = client.get(path)
        assert as_json(msgspec.json.decode(answer.content, type=kind)) == answer.json()
    described = client.get("/openapi.json").json()
    operations = {(method, path) for path, methods in described["paths"].items() for method in methods}
    assert operations == {
        ("get", MEMORY),
        ("delete", MEMORY),
        ("post", f"{MEMORY}/reload"),
        ("get", f"{MEMORY}/export"),
        ("post", f"{MEMORY}/import"),
        ("post", FACTS),
        ("patch", f"{FACTS}/{{fact_id}}"),
        ("delete", f"{FACTS}/{{fact_id}}"),
        ("get", f"{MEMORY}/config"),
        ("get", f"{MEMORY}/status"),
    }
    assert components()["DocumentFact"]["required"] == [
        "id",
        "content",
        "category",
        "confidence",
        "createdAt",
        "source",
    ]
    for name in ("ImportedMemory", "CreatedFact", "FactPatch"):
        assert described["components"]["schemas"][name]["examples"], name
    for path, name in (
        (MEMORY, "Document"),
        (f"{MEMORY}/status", "MemoryStatus"),
        (f"{MEMORY}/config", "MemoryConfig"),
    ):
        content = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        assert content["schema"] == {"$ref": f"#/components/schemas/{name}"}
        assert name in components()


def test_the_examples_are_bodies_that_are_accepted(gateway: Gateway) -> None:
    client = gateway.client()
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    imported = client.post(f"{MEMORY}/import", json=schemas["ImportedMemory"]["examples"][0])
    assert [one["id"] for one in imported.json()["facts"]] == ["fact_2_0"]
    assert client.patch(f"{FACTS}/fact_2_0", json=schemas["FactPatch"]["examples"][0]).status_code == 200
    assert client.post(FACTS, json=schemas["CreatedFact"]["examples"][0]).status_code == 200
