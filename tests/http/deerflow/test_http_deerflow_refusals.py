"""What DeerFlow's routes answer when something is wrong: the codes and the words that clients of its gateway show."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import PATIENCE
from gateway_client import FACTS, MEMORY, Gateway, contents, document, fact

from backstory.deerflow.memory import HostedMemory
from backstory.ledger.core.errors import (
    BackstoryError,
    ConflictError,
    LockTimeoutError,
    ModelUnavailableError,
    RefusedError,
    StoreError,
    WitnessError,
    WrongExpectedVersionError,
)

CONFLICT = "Memory changed concurrently; reload and retry."
CORRUPT = "Stored memory data is corrupted."
EMPTY = "Memory fact content cannot be empty."
JSON = {"content-type": "application/json"}


def damage(ledger: Path) -> None:
    lines = ledger.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"at":"2', b'"at":"3', 1)
    ledger.write_bytes(b"".join(lines))


@pytest.mark.parametrize("content", [" ", "\n\t ", "\u3000"])
def test_a_fact_without_text_is_400(gateway: Gateway, content: str) -> None:
    client = gateway.client()
    (kept,) = client.post(FACTS, json={"content": "Runs"}).json()["facts"]
    for response in (
        client.post(FACTS, json={"content": content}),
        client.patch(f"{FACTS}/{kept['id']}", json={"content": content}),
    ):
        assert (response.status_code, response.json()) == (400, {"detail": EMPTY})
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_a_fact_that_is_too_long_is_400_and_says_so(gateway: Gateway) -> None:
    response = gateway.client().post(FACTS, json={"content": "x" * 50_001})
    assert response.status_code == 400
    assert "50,001 characters" in response.json()["detail"]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@pytest.mark.parametrize("fact_id", ["fact_missing", "fact_", "走路", "%00"])
def test_an_unknown_fact_is_404(gateway: Gateway, method: str, fact_id: str) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    body = {"content": "Walks"} if method == "PATCH" else None
    response = client.request(method, f"{FACTS}/{fact_id}", json=body)
    named = "\0" if fact_id == "%00" else fact_id
    assert (response.status_code, response.json()) == (404, {"detail": f"Memory fact '{named}' not found."})
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_an_empty_patch_of_an_unknown_fact_is_404(gateway: Gateway) -> None:
    response = gateway.client().patch(f"{FACTS}/fact_missing", json={})
    assert (response.status_code, response.json()) == (404, {"detail": "Memory fact 'fact_missing' not found."})


def test_a_duplicate_is_409(gateway: Gateway) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    other = client.post(FACTS, json={"content": "Swims"}).json()["facts"][1]["id"]
    for response in (
        client.post(FACTS, json={"content": "  RUNS. "}),
        client.patch(f"{FACTS}/{other}", json={"content": "runs"}),
    ):
        assert (response.status_code, response.json()) == (
            409,
            {"detail": "A fact with the same content already exists."},
        )
    assert contents(client.get(MEMORY)) == ["Runs", "Swims"]


def test_a_memory_full_of_facts_by_hand_is_409(gateways: Callable[..., Gateway]) -> None:
    client = gateways(max_facts=10).client()
    for number in range(10):
        assert client.post(FACTS, json={"content": f"Fact {number}"}).status_code == 200
    response = client.post(FACTS, json={"content": "One more"})
    assert response.status_code == 409
    assert response.json() == {
        "detail": "Fact was not stored because the configured memory.max_facts capacity policy evicted it"
    }


FACT_BODIES: list[tuple[bytes, list[object]]] = [
    (b"{}", ["body", "content"]),
    (b'{"content":""}', ["body", "content"]),
    (b'{"content":3}', ["body", "content"]),
    (b'{"content":"x","confidence":1.01}', ["body", "confidence"]),
    (b'{"content":"x","confidence":-0.01}', ["body", "confidence"]),
    (b'{"content":"x","confidence":NaN}', ["body", "confidence"]),
    (b'{"content":"x","confidence":"sure"}', ["body", "confidence"]),
    (b'{"content":"\\ud800"}', ["body", "content"]),
    (b'{"content":"x","category":null}', ["body", "category"]),
    (b"{broken", ["body", 1]),
    (b"[]", ["body"]),
]


@pytest.mark.parametrize(("body", "where"), FACT_BODIES, ids=[body.decode() for body, _ in FACT_BODIES])
def test_a_body_of_the_wrong_shape_is_422_in_fastapis_form(gateway: Gateway, body: bytes, where: list[object]) -> None:
    response = gateway.client().post(FACTS, content=body, headers=JSON)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/json")
    (problem,) = response.json()["detail"]
    assert problem["loc"] == where
    assert isinstance(problem["msg"], str)
    assert problem["msg"]
    assert isinstance(problem["type"], str)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"facts": [{"content": "no id"}]}, ["body", "facts", 0, "id"]),
        ({"facts": [{"id": "fact_a"}]}, ["body", "facts", 0, "content"]),
        ({"facts": [{"id": "fact_a", "content": "x", "confidence": "sure"}]}, ["body", "facts", 0, "confidence"]),
        # It would count as 1.
        ({"facts": [{"id": "fact_a", "content": "x", "confidence": True}]}, ["body", "facts", 0, "confidence"]),
        ({"facts": {}}, ["body", "facts"]),
        ({"user": []}, ["body", "user"]),
        ({"user": {"workContext": "Go"}}, ["body", "user", "workContext"]),
        ({"history": {"recentMonths": {"summary": 3}}}, ["body", "history", "recentMonths", "summary"]),
        ([], ["body"]),
    ],
)
def test_an_import_of_the_wrong_shape_is_422_and_changes_nothing(
    gateway: Gateway, body: object, where: list[object]
) -> None:
    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    response = client.post(f"{MEMORY}/import", json=body)
    assert response.status_code == 422
    assert [problem["loc"] for problem in response.json()["detail"]] == [where]
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_an_import_takes_values_that_deerflow_takes(gateway: Gateway) -> None:
    body = json.dumps(document(fact("fact_a", "Runs"), fact("fact_b", "Swims"), fact("fact_c", "  ")))
    body = body.replace("0.9", "NaN", 1).replace("0.9", "17", 1)
    response = gateway.client().post(f"{MEMORY}/import", content=body, headers=JSON)
    assert response.status_code == 200
    assert [(one["content"], one["confidence"]) for one in response.json()["facts"]] == [("Runs", 0.5), ("Swims", 1.0)]


ALL = (
    ("GET", MEMORY, None),
    ("GET", f"{MEMORY}/export", None),
    ("GET", f"{MEMORY}/status", None),
    ("POST", f"{MEMORY}/reload", None),
    ("POST", FACTS, {"content": "Swims"}),
    ("PATCH", f"{FACTS}/fact_2_0", {"content": "Swims"}),
    ("DELETE", f"{FACTS}/fact_2_0", None),
)
REPLACING = (("DELETE", MEMORY, None), ("POST", f"{MEMORY}/import", document(fact("fact_a", "Swims"))))


@pytest.mark.parametrize(("method", "path", "body"), ALL)
def test_a_damaged_memory_is_500_without_its_paths_while_others_work(
    gateways: Callable[..., Gateway], caplog: pytest.LogCaptureFixture, method: str, path: str, body: object
) -> None:
    written = gateways()
    for user in ("ada", "bob"):
        written.client(user=user).post(FACTS, json={"content": "Runs"})
    written.home.close()
    damage(written.path / "users/ada/ledger.jsonl")
    (written.path / "users/ada/index.sqlite").unlink(missing_ok=True)
    gateway = gateways()
    response = gateway.client().request(method, path, json=body)
    assert (response.status_code, response.json()) == (500, {"detail": CORRUPT})
    assert "users/ada/ledger" in caplog.text
    assert gateway.client(user="bob").request(method, path, json=body).status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), REPLACING)
def test_to_clear_or_import_goes_on_from_a_damaged_memory(
    gateways: Callable[..., Gateway], caplog: pytest.LogCaptureFixture, method: str, path: str, body: object
) -> None:
    written = gateways()
    written.client().post(FACTS, json={"content": "Runs"})
    written.home.close()
    ledger = written.path / "users/ada/ledger.jsonl"
    damage(ledger)
    damaged = ledger.read_bytes()
    (ledger.parent / "index.sqlite").unlink(missing_ok=True)
    client = gateways().client()
    assert client.get(MEMORY).status_code == 500
    response = client.request(method, path, json=body)
    assert response.status_code == 200
    assert contents(response) == ([] if body is None else ["Swims"])
    assert str(ledger.parent) not in response.text
    assert (ledger.parent / "ledger.damaged-1").read_bytes() == damaged
    assert "ledger.damaged-1" in caplog.text
    assert client.get(MEMORY).json() == response.json()


def test_to_clear_goes_on_from_a_damaged_memory_of_an_agent(gateways: Callable[..., Gateway]) -> None:
    written = gateways()
    written.client().post(FACTS, json={"content": "Runs"})
    written.home.memory("ada", "lead").record("t1", [{"role": "user", "content": "I swim."}])
    written.home.memory("ada", "lead").add_fact("Reviews code")
    written.home.close()
    transcript = written.path / "users/ada/agents/lead/transcript.jsonl"
    transcript.write_bytes(transcript.read_bytes().replace(b"swim", b"sink"))
    gateway = gateways()
    assert gateway.client().delete(MEMORY).status_code == 200
    assert transcript.with_name("transcript.damaged-1").exists()
    assert gateway.home.memory("ada", "lead").own.document().facts == ()
    assert gateway.home.memory("ada", "lead").threads() == ()


FAILED = {
    ("GET", MEMORY): (503, "Failed to read memory data."),
    ("GET", f"{MEMORY}/export"): (503, "Failed to read memory data."),
    ("GET", f"{MEMORY}/status"): (503, "Failed to read memory data."),
    ("POST", f"{MEMORY}/reload"): (503, "Failed to read memory data."),
    ("POST", FACTS): (500, "Failed to create memory fact."),
    ("PATCH", f"{FACTS}/fact_2_0"): (500, "Failed to update memory fact."),
    ("DELETE", f"{FACTS}/fact_2_0"): (500, "Failed to delete memory fact."),
    ("DELETE", MEMORY): (500, "Failed to clear memory data."),
    ("POST", f"{MEMORY}/import"): (500, "Failed to import memory data."),
}
METHOD_OF = {
    ("GET", MEMORY): "document",
    ("GET", f"{MEMORY}/export"): "document",
    ("GET", f"{MEMORY}/status"): "document",
    ("POST", f"{MEMORY}/reload"): "reload",
    ("POST", FACTS): "add_fact",
    ("PATCH", f"{FACTS}/fact_2_0"): "edit_fact",
    ("DELETE", f"{FACTS}/fact_2_0"): "remove_fact",
    ("DELETE", MEMORY): "clear",
    ("POST", f"{MEMORY}/import"): "overwrite",
}
BODY_OF = {(method, path): body for method, path, body in ALL + REPLACING}


@pytest.mark.parametrize("request_of", FAILED, ids=" ".join)
@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (StoreError("cannot write /srv/secret/ledger.jsonl: no space left"), None),
        (WitnessError("the witness is away", kind="OSError"), None),
        (OSError(5, "Input/output error", "/srv/secret/ledger.jsonl"), None),
        (ModelUnavailableError("overloaded"), None),
        (LockTimeoutError("/srv/secret is locked"), (409, CONFLICT)),
        (WrongExpectedVersionError("another head", actual=3), (409, CONFLICT)),
        (ConflictError("it would overwrite"), (409, CONFLICT)),
        (RefusedError("refused (rule): not this", rule="rule"), (409, "refused (rule): not this")),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_failure_has_an_answer_that_names_no_file_of_the_server(
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    request_of: tuple[str, str],
    error: BackstoryError | OSError,
    answer: tuple[int, str] | None,
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise error

    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    monkeypatch.setattr(HostedMemory, METHOD_OF[request_of], fail)
    response = client.request(*request_of, json=BODY_OF[request_of])
    code, detail = answer or FAILED[request_of]
    assert (response.status_code, response.json()) == (code, {"detail": detail})
    logged = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert [str(error) in line for line in logged] == ([True] if code >= 500 else [])


def test_a_store_that_takes_no_writes_fails_the_change_and_not_the_reading(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise StoreError("cannot append: no space left on device; free some")

    client = gateway.client()
    client.post(FACTS, json={"content": "Runs"})
    monkeypatch.setattr(gateway.home.store, "append", full)
    response = client.post(FACTS, json={"content": "Swims"})
    assert (response.status_code, response.json()) == (500, {"detail": "Failed to create memory fact."})
    assert contents(client.get(MEMORY)) == ["Runs"]


def test_memory_is_used_off_the_event_loop(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    used_in: list[str] = []
    document_of = HostedMemory.document

    def noted(memory: HostedMemory) -> object:
        used_in.append(threading.current_thread().name)
        return document_of(memory)

    monkeypatch.setattr(HostedMemory, "document", noted)
    assert gateway.client().get(MEMORY).status_code == 200
    assert [name.startswith("backstory-agent") for name in used_in] == [True]


def test_a_request_that_waits_does_not_hold_up_others(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()
    reload = HostedMemory.reload

    def waits(memory: HostedMemory) -> object:
        entered.set()
        assert go_on.wait(PATIENCE)
        return reload(memory)

    monkeypatch.setattr(HostedMemory, "reload", waits)
    codes: list[int] = []
    with gateway.client() as client:
        slow = threading.Thread(target=lambda: codes.append(client.post(f"{MEMORY}/reload").status_code))
        slow.start()
        assert entered.wait(PATIENCE)
        assert client.get(MEMORY).status_code == 200
        assert codes == []
        go_on.set()
        slow.join(PATIENCE)
    assert codes == [200]
