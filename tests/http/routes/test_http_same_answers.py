"""Every route answers the value that the command line and the Python API give for the same home."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from served_home import CheckedClient, Json, Server, copied, user
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.ledger.concurrency.clock import SystemClock

ADA = user("ada")
CODER = user("ada", "coder")


@pytest.fixture
def told(servers: Callable[..., Server], tmp_path: Path) -> Server:
    copied(tmp_path / "told")
    return servers("told", clock=SystemClock())


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckedClient]:
    """A client of a server on a copy of the stored home, for all tests that only read."""
    home = copied(tmp_path_factory.mktemp("same") / "told")
    server = Server(home, clock=SystemClock())
    server.home.warm()  # so that the first block's tokens are counted, too
    with server.client() as client:
        yield client


def by_command(home: Path, scope: dict[str, str], *words: str) -> Json:
    options = [part for key, value in scope.items() for part in (f"--{key}", value)]
    done = CliRunner().invoke(app, ["--home", str(home), "--json", *options, *words])
    return json.loads(done.stdout)


READS: list[tuple[tuple[str, ...], str, str | None]] = [
    (("show",), "/v1/document", None),
    (("show", "--at", "3"), "/v1/document?at=3", None),
    (("show", "--at", "2026-11-22T21:40:23Z"), "/v1/document?at=2026-11-22T21:40:23Z", None),
    (("fact", "list"), "/v1/facts", "items"),
    (("log",), "/v1/log", "items"),
    (("log", "--limit", "2"), "/v1/log?limit=2", "items"),
    (("log", "--since", "2026-11-22T21:40:23Z"), "/v1/log?since=2026-11-22T21:40:23Z", "items"),
    (("threads",), "/v1/threads", "items"),
    (("search", "dinner"), "/v1/search?query=dinner", "hits"),
    (("search", "Oslo", "--top", "1", "--explain"), "/v1/search?query=Oslo&top_k=1&explain=true", "hits"),
    (("search", "dinner", "--in", "turns"), "/v1/search?query=dinner&within=turns", "hits"),
    (("context", "--for", "dinner"), "/v1/context?for=dinner", None),
    (("context", "--max-tokens", "60"), "/v1/context?max_tokens=60", None),
    (("head",), "/v1/head", None),
    (("status",), "/v1/status", None),
    (("policy",), "/v1/policy", None),
    (("verify",), "/v1/verify", None),
    (("why-not", "Ada likes peanuts"), "/v1/why-not?text=Ada likes peanuts", "refusals"),
    (("graph",), "/v1/graph", None),
    (("graph", "--limit", "1"), "/v1/graph?limit=1", None),
    (("graph", "--messages"), "/v1/messages-graph", None),
]
OLD = ("show", "--at", "3")
OF_ADA: list[tuple[tuple[str, ...], str, str | None]] = [
    (("why", "fact_2_0"), "/v1/facts/fact_2_0/why", None),
    (("why", "fact_2_1"), "/v1/facts/fact_2_1/why", None),
    (("fact", "get", "fact_2_1"), "/v1/facts/fact_2_1", None),
    (("diff", "2", "5"), "/v1/diff?a=2&b=5", None),
    (("log", "--fact", "fact_2_0"), "/v1/log?fact=fact_2_0", "items"),
    (("log", "--thread", "monday"), "/v1/log?thread=monday", "items"),
    (("turns", "monday"), "/v1/turns?thread=monday", "items"),
    (("search", "Oslo", "--thread", "monday"), "/v1/search?query=Oslo&thread=monday", "hits"),
    (("graph", "--thread", "monday"), "/v1/graph?thread=monday", None),
    (("graph", "--fact", "fact_2_0", "--since", "2"), "/v1/graph?fact=fact_2_0&since=2", None),
    (("graph", "--messages", "--thread", "monday"), "/v1/messages-graph?thread=monday", None),
]


@pytest.mark.parametrize(
    ("scope", "words", "url", "part"),
    [
        *((ADA, *each) for each in (*READS, *OF_ADA)),
        # `/v1/facts` lists one ledger; `fact list` of an agent also its user's facts.
        *((CODER, *each) for each in READS if each[0] not in (OLD, ("fact", "list"))),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_a_read_answers_as_the_command_does(
    read: CheckedClient, scope: dict[str, str], words: tuple[str, ...], url: str, part: str | None
) -> None:
    path, _, query = url.partition("?")
    params = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    served = read.get_json(path, **scope, **params)
    home = read.app.state.home.home
    assert (served if part is None else served[part]) == by_command(home, scope, *words)


def test_the_scopes_are_those_of_the_command(told: Server) -> None:
    with told.client() as client:
        assert client.get_json("/v1/scopes")["items"] == by_command(told.path, {}, "scopes")


def test_a_section_is_explained_as_the_python_api_explains_it(told: Server) -> None:
    with told.client() as client:
        served = client.get_json("/v1/sections/user.workContext/why", **ADA)
    with told.other() as bs:
        assert served == json.loads(msgspec.json.encode(bs.memory("ada").why_section("user.workContext")))


def test_each_commit_is_found_by_its_number_as_the_log_lists_it(told: Server) -> None:
    with told.client() as client:
        listed = client.get_json("/v1/log", **ADA)["items"]
        assert [client.get_json(f"/v1/commits/{entry['seq']}", **ADA) for entry in listed] == listed != []
        last = listed[0]["seq"]
        for seq, status in ((0, 404), (last + 1, 404), (10**18, 404), ("x", 400)):
            assert client.get(f"/v1/commits/{seq}", params=ADA).status_code == status
        beyond = client.get(f"/v1/commits/{last + 1}", params=ADA)
        assert beyond.json()["detail"] == f"there is no commit {last + 1}: the ledger ends at {last}"


def test_why_not_also_gives_the_facts_that_are_remembered(told: Server) -> None:
    with told.client() as client:
        served = client.get_json("/v1/why-not", text="Ada lives in Oslo", **ADA)
    with told.other() as bs:
        found = bs.memory("ada").why_not("Ada lives in Oslo")
    assert [fact["id"] for fact in served["remembered"]] == [fact.id for fact in found.remembered] != []


@pytest.mark.parametrize(
    ("words", "route", "body"),
    [
        (("revert", "3", "--dry-run"), "revert", {"seq": 3, "dry_run": True}),
        (("revert", "HEAD", "--dry-run"), "revert", {"dry_run": True}),
        (("rollback", "--to", "2", "--dry-run"), "rollback", {"to": 2, "dry_run": True}),
        (("forget", "--fact", "fact_2_1", "--dry-run"), "forget", {"fact_id": "fact_2_1", "dry_run": True}),
        (("forget", "--thread", "monday", "--dry-run"), "forget", {"thread": "monday", "dry_run": True}),
        (("forget", "--matching", "Oslo", "--dry-run"), "forget", {"matching": "Oslo", "dry_run": True}),
        (("forget", "--all", "--dry-run"), "forget", {"everything": True, "dry_run": True}),
        (("what-if", "--max-facts", "2"), "what-if", {"policy": {"max_facts": 2}}),
        (("what-if", "--max-facts", "2", "--until", "3"), "what-if", {"policy": {"max_facts": 2}, "until": 3}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_a_dry_run_answers_as_the_command_does_and_writes_nothing(
    told: Server, words: tuple[str, ...], route: str, body: dict[str, object]
) -> None:
    before = told.home.memory("ada").head()
    with told.client() as client:
        served = client.post(f"/v1/{route}", params=ADA, json=body)
        assert served.status_code == 200
    assert served.json() == by_command(told.path, ADA, *words)
    with told.other() as bs:
        assert bs.memory("ada").head() == before


CHANGES: list[tuple[tuple[str, ...], str, str, dict[str, object] | None]] = [
    (("fact", "add", "Ada rows"), "POST", "facts", {"content": "Ada rows"}),
    (
        ("fact", "add", "Ada rows", "--category", "goal", "--confidence", "0.7"),
        "POST",
        "facts",
        {"content": "Ada rows", "category": "goal", "confidence": 0.7},
    ),
    (("fact", "edit", "fact_2_1", "Ada is vegan"), "PATCH", "facts/fact_2_1", {"content": "Ada is vegan"}),
    (("fact", "edit", "fact_2_1", "--category", "goal"), "PATCH", "facts/fact_2_1", {"category": "goal"}),
    (("fact", "remove", "fact_2_1"), "DELETE", "facts/fact_2_1", None),
    (("revert", "3"), "POST", "revert", {"seq": 3}),
    (("rollback", "--to", "3"), "POST", "rollback", {"to": 3}),
    (("clear",), "POST", "clear", None),
    (("policy", "--set", "max_facts=10"), "PATCH", "policy", {"max_facts": 10}),
    (("forget", "--fact", "fact_2_1", "--yes"), "POST", "forget", {"fact_id": "fact_2_1"}),
    (("forget", "--matching", "Oslo", "--yes"), "POST", "forget", {"matching": "Oslo"}),
    (("forget", "--all", "--yes"), "POST", "forget", {"everything": True}),
]


@pytest.mark.parametrize(("words", "method", "route", "body"), CHANGES, ids=lambda each: str(each)[:60])
def test_a_change_answers_and_leaves_what_the_command_does(  # noqa: PLR0917 a case has four parts
    told: Server, tmp_path: Path, words: tuple[str, ...], method: str, route: str, body: object
) -> None:
    """The same change is made through each door of its own copy of the home; times and hashes differ."""
    copied(tmp_path / "other")
    with told.client() as client:
        served = client.request(method, f"/v1/{route}", params=ADA, json=body)
        assert served.status_code == (201 if (method, route) == ("POST", "facts") else 200), served.text
        then = client.get_json("/v1/document", **ADA)
    assert timeless(served.json()) == timeless(by_command(tmp_path / "other", ADA, *words))
    assert timeless(then) == timeless(by_command(tmp_path / "other", ADA, "show"))
    assert by_command(told.path, ADA, "verify")["ok"]
    assert by_command(told.path, ADA, "log", "--limit", "1")[0]["cause"]["actor"] == "http"


def timeless(value: Json) -> Json:
    """Leave out what the moment of a change decides."""
    if isinstance(value, dict):
        left_out = {"at", "createdAt", "lastUpdated", "updatedAt", "changedAt", "confirmedAt"}
        return {key: timeless(each) for key, each in value.items() if key not in left_out}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def test_a_conversation_is_recorded_extracted_and_explained(client, server: Server) -> None:  # type: ignore[no-untyped-def]
    messages = [{"role": "user", "content": "I row.", "id": "m1"}, {"role": "assistant", "content": "Noted."}]
    recorded = client.post("/v1/record", params=ADA, json={"thread": "t", "messages": messages})
    assert recorded.json() == {"threads": 1, "turns": 2, "skipped": 0, "backlog": False, "superseded": 0, "cut": 0}
    reply = {"newFacts": [{"content": "Ada rows", "confidence": 0.9, "evidence": ["m1"]}]}
    done = client.post("/v1/extract", params=ADA, json={"replies": [{"thread_id": "t", "reply": reply}]})
    assert done.json() == {"updates": 1, "failed": 0, "commits": [2]}
    (fact,) = client.get_json("/v1/facts", **ADA)["items"]
    why = client.get_json(f"/v1/facts/{fact['id']}/why", **ADA)
    assert [turn["content"] for turn in why["evidence"]] == ["I row."]


def test_parked_updates_are_listed_tried_again_and_discarded(client, server: Server) -> None:  # type: ignore[no-untyped-def]
    for thread in ("a", "b"):
        messages = [{"role": "user", "content": f"I like {thread}."}, {"role": "assistant", "content": "Noted."}]
        client.post("/v1/record", params=ADA, json={"thread": thread, "messages": messages})
    replies = [{"thread_id": thread, "reply": "no object"} for thread in ("a", "b")]
    assert client.post("/v1/extract", params=ADA, json={"replies": replies}).json()["failed"] == 2
    assert [one["thread"] for one in client.get_json("/v1/parked", **ADA)["items"]] == ["a", "b"]
    assert client.post("/v1/discard", params=ADA, json={"thread": "a"}).json()["commits"]
    assert [one["thread"] for one in client.get_json("/v1/parked", **ADA)["items"]] == ["b"]
    # Without a model nothing can be tried again.
    refused = client.post("/v1/retry", params=ADA)
    assert (refused.status_code, refused.json()["error"]) == (409, "NoModelError")
    assert client.post("/v1/flush", params=ADA, json={"timeout": 1}).status_code == 200
    assert client.post("/v1/discard", params=ADA, json={"thread": "a"}).status_code == 404


def test_a_user_is_removed_altogether(told: Server) -> None:
    with told.client() as client:
        shown = client.post("/v1/forget-user", params=ADA, json={"dry_run": True}).json()
        assert {scope["agent"] for scope in shown["scopes"]} == {None, "coder"}
        assert client.post("/v1/forget-user", params=CODER).status_code == 400
        assert client.post("/v1/forget-user").status_code == 400
        assert client.post("/v1/forget-user", params=ADA).status_code == 200
        assert client.get_json("/v1/scopes")["items"] == []
        assert client.post("/v1/forget-user", params=ADA).status_code == 404


UNREADABLE: list[tuple[object, str]] = [
    ({"role": "narrator", "content": "x"}, "narrator"),
    ({"role": "user", "id": ["x"], "content": "y"}, "id"),
    ({"role": "user", "content": "x", "at": "yesterday"}, "ISO 8601"),
    ({"content": "x"}, "role must be"),
    ({"role": "user", "content": "x", "metadata": 7}, "metadata"),
]


@pytest.mark.parametrize(("message", "named"), UNREADABLE)
def test_a_message_that_cannot_be_read_is_refused_as_the_python_api_refuses_it(
    client,
    server: Server,
    message: object,
    named: str,  # type: ignore[no-untyped-def]
) -> None:
    good = {"role": "user", "content": "hi"}
    with pytest.raises(Exception, match=named) as refused:
        server.home.memory("ada").record("t", [good, message])
    served = client.post("/v1/record", params=ADA, json={"thread": "t", "messages": [good, message]})
    assert (served.status_code, served.json()["detail"]) == (400, str(refused.value))
    assert served.json()["error"] == type(refused.value).__name__
    assert client.get_json("/v1/scopes")["items"] == []


def test_messages_are_kept_as_the_python_api_keeps_them(client, server: Server) -> None:  # type: ignore[no-untyped-def]
    """Content blocks, calls of tools, metadata and names, in the shapes of OpenAI and of LangChain."""
    messages = [
        {"role": "human", "content": [{"type": "text", "text": "Look"}, {"type": "text", "text": "here"}], "id": "1"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c", "name": "f"},
        {"role": "ai", "content": "It is 42.", "name": "lead", "metadata": {"k": [1, None, "ü"]}, "cause_by": "Act"},
        {"role": "user", "content": "naïve 咖啡 🎉\u0000 \t", "id": "u1", "at": "2026-02-01T00:00:00Z"},
        {"role": "assistant", "content": "ok"},
        {"type": "human", "content": "And LangChain's own shape?", "additional_kwargs": {}},
        {"type": "ai", "content": "That, too.", "tool_calls": [], "response_metadata": {"k": 1}},
    ]
    sent = client.post("/v1/record", params=ADA, json={"thread": "t", "messages": messages})
    assert sent.status_code == 200, sent.text
    assert sent.json() == json.loads(msgspec.json.encode(server.home.memory("bob").record("t", messages)))
    served = client.get_json("/v1/turns", thread="t", **ADA)["items"]
    assert served == json.loads(msgspec.json.encode(server.home.memory("bob").transcript("t")))
    assert client.post("/v1/context", params=ADA, json={"messages": messages, "thread": "t"}).status_code == 200


@pytest.mark.parametrize(
    ("document", "replace"),
    [
        (["Ada rows", "Ada swims"], False),
        ({"facts": [{"content": "Ada rows", "id": "fact_x", "confidence": 0.9}]}, True),
    ],
)
def test_a_document_is_imported(told: Server, document: object, replace: bool) -> None:
    with told.client() as client:
        done = client.post("/v1/import", params=ADA, json={"document": document, "replace": replace})
        assert done.status_code == 200, done.text
        contents = [fact["content"] for fact in client.get_json("/v1/document", **ADA)["facts"]]
    assert ("Ada rows" in contents, "Ada lives in Oslo" in contents) == (True, not replace)


def test_a_path_is_no_document_to_import(client, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The Python API reads a file by its path; a client has no business with files of the server."""
    (tmp_path / "secret.json").write_text(json.dumps({"facts": [{"content": "secret"}]}))
    sent = client.post("/v1/import", params=ADA, json={"document": str(tmp_path / "secret.json")})
    assert sent.status_code == 422
    listed = client.post("/v1/import", params=ADA, json={"document": [str(tmp_path / "secret.json")]})
    assert "secret" not in json.dumps(client.get_json("/v1/facts", **ADA)["items"]) or listed.status_code == 200
