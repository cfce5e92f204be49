"""ETags of reads: the same until something that the answer depends on changes, and other from then on."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from served_home import CheckedClient, Server, user
from sizes import LONG, examples

from backstory import Backstory, MemoryHandle
from backstory.ledger.core.errors import BackstoryError

ADA = user("ada")
CODER = user("ada", "coder")
TAGGED = (
    "document",
    "memory",
    "facts",
    "log",
    "timeline",
    "usage",
    "head",
    "diff?a=1&b=1",
    "why-not?text=tea",
    "threads",
    "commits/1",
    "commits/1/refusals",
    "graph",
)
ON_TURNS = ("threads", "messages-graph", "turns?thread=t", "facts/{fact}/why")


def got(client: CheckedClient, url: str, scope: dict[str, str], **headers: str):  # type: ignore[no-untyped-def]
    path, _, query = url.partition("?")
    params = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    return client.get(f"/v1/{path}", params={**scope, **params}, headers=headers)


@pytest.fixture
def server(servers: Callable[..., Server]) -> Server:
    """A server on which an agent without a memory of its own reads its user's: its tags follow that memory, too."""
    return servers(agent_reads="fallback")


@pytest.fixture
def other(server: Server) -> Backstory:
    """Another process on the same home."""
    return server.other()


@pytest.mark.parametrize("url", TAGGED)
@pytest.mark.parametrize("scope", [ADA, CODER], ids=["user", "agent"])
def test_a_tag_stays_until_a_commit_by_any_process(
    client: CheckedClient, other: Backstory, url: str, scope: dict[str, str]
) -> None:
    with other:
        other.memory("ada").add_fact("likes tea")
        other.memory("ada").record("t", exchange("tea"))
        first = got(client, url, scope)
        assert first.headers["cache-control"] == "private, no-cache"
        tag = first.headers["etag"]
        for stated in (tag, f"W/{tag}", f'"x", {tag}', f'{tag},"x"', f'"x" ,  W/{tag} , "y"'):
            again = got(client, url, scope, **{"If-None-Match": stated})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        for stated in ('"x"', tag.strip('"'), "", '"', f'"{tag}"', f'{tag}x"'):
            assert got(client, url, scope, **{"If-None-Match": stated}).content == first.content
        # An agent without a memory of its own reads its user's.
        other.memory("ada").add_fact("likes milk")
        after = got(client, url, scope, **{"If-None-Match": tag})
        assert (after.status_code, after.headers["etag"] == tag) == (200, False)


def test_any_tag_is_one_where_there_is_an_answer_and_none_where_there_is_not(
    client: CheckedClient, other: Backstory
) -> None:
    with other:
        other.memory("ada").add_fact("likes tea")
    for url in TAGGED:
        assert got(client, url, ADA, **{"If-None-Match": "*"}).status_code == 304
    assert got(client, "facts/none", ADA, **{"If-None-Match": "*"}).status_code == 404
    assert got(client, "facts?cursor=x", ADA, **{"If-None-Match": "*"}).status_code == 400


def test_a_tag_follows_the_turns_where_the_answer_shows_turns_and_only_there(
    client: CheckedClient, other: Backstory
) -> None:
    with other:
        memory = other.memory("ada")
        memory.record("t", exchange("tea"))
        fact = memory.add_fact("likes tea").fact.id
        with_turns = [url.format(fact=fact) for url in ON_TURNS]
        without = [url for url in TAGGED if url not in with_turns]
        tags = {url: got(client, url, ADA).headers["etag"] for url in (*with_turns, *without)}
        memory.record("t", exchange("milk"), mode="append")
        now = {url: got(client, url, ADA, **{"If-None-Match": tag}).status_code for url, tag in tags.items()}
    assert now == {**dict.fromkeys(with_turns, 200), **dict.fromkeys(without, 304)}


def test_an_agent_that_gets_a_memory_of_its_own_has_another_tag(client: CheckedClient, other: Backstory) -> None:
    with other:
        other.memory("ada").add_fact("likes tea")
        tag = got(client, "document", CODER).headers["etag"]
        other.memory("ada", "coder").add_fact("likes Python")
        own = got(client, "document", CODER, **{"If-None-Match": tag})
        assert [fact["content"] for fact in own.json()["facts"]] == ["likes Python"]
        # From then on it no longer depends on its user's.
        other.memory("ada").add_fact("likes milk")
        assert got(client, "document", CODER, **{"If-None-Match": own.headers["etag"]}).status_code == 304


def test_with_shared_sections_a_tag_follows_the_ledger_of_the_agent_and_of_the_user(
    servers: Callable[..., Server],
) -> None:
    server = servers(shared_summaries=True)
    with (
        server.client() as client,
        server.home.__class__.open(server.path, background=False, shared_summaries=True, clock=server.clock) as bs,
    ):
        tags = []
        for scope in (("ada", "coder"), ("ada", None), ("ada", "writer")):
            bs.memory(*scope).record("t", exchange("tea"), mode="append")
            section = {"summary": f"is {scope}", "shouldUpdate": True}
            bs.memory(*scope).extract([{"thread_id": "t", "reply": {"user": {"workContext": section}}}])  # type: ignore[list-item]
            answer = got(client, "document", CODER)
            tags.append((answer.headers["etag"], answer.json()["user"]["workContext"]["summary"]))
    assert len({tag for tag, _ in tags}) == len(tags) == len({text for _, text in tags})


@pytest.mark.parametrize("url", ["status", "search?query=tea", "context", "policy", "parked", "verify"])
def test_what_depends_on_more_than_the_log_has_no_tag(client: CheckedClient, url: str) -> None:
    answer = got(client, url, ADA, **{"If-None-Match": "*"})
    assert (answer.status_code, "etag" in answer.headers, answer.headers["cache-control"]) == (200, False, "no-store")


def test_the_tag_of_a_change_is_that_of_the_memory_that_it_left(client: CheckedClient) -> None:
    added = client.post("/v1/facts", params=ADA, json={"content": "likes tea"})
    assert added.headers["etag"] == got(client, "document", ADA).headers["etag"]


def test_the_tag_of_a_change_never_covers_what_another_has_changed_meanwhile(
    client: CheckedClient, server: Server, other: Backstory
) -> None:
    """With such a tag as If-Match the client would overwrite a change that it has not seen."""
    raced: list[int] = []

    def race(scope: object, commit: object, *_: object) -> None:
        if not raced:
            raced.append(other.memory("ada").add_fact("likes milk").commit)

    with other:
        other.memory("ada").add_fact("likes rum")
        server.home.memory("ada")._services.own._listeners += (race,)  # type: ignore[operator]
        added = client.post("/v1/facts", params=ADA, json={"content": "likes tea"})
        assert raced == [added.json()["commit"] + 1]
        seen = added.headers.get("etag")
        edit = f"/v1/facts/{added.json()['fact']['id']}"
        headers = {} if seen is None else {"If-Match": seen}
        assert (
            not headers or client.patch(edit, params=ADA, json={"category": "goal"}, headers=headers).status_code == 412
        )


# A client's cache, as a property.

URLS = (
    "document",
    "document?at=2",
    "document?at=2026-03-01T12:00:00Z",
    "memory",
    "memory?at=2&contains=tea",
    "timeline",
    "timeline?since=2&buckets=3",
    "usage",
    "facts",
    "facts?limit=1",
    "log",
    "log?thread=t",
    "log?limit=1",
    "commits/2",
    "commits/2/refusals",
    "graph",
    "graph?thread=t",
    "messages-graph",
    "threads",
    "turns?thread=t",
    "turns?thread=other&limit=1",
    "why-not?text=tea",
    "head",
    "diff?a=1&b=2",
    "facts/fact_2_0",
    "facts/fact_2_0/why",
    "sections/user.workContext/why",
)
SCOPES = (("ada", None), ("ada", "coder"), ("ada", "writer"), ("bob", None))

said = st.sampled_from(["tea", "milk", "rum"])
thread = st.sampled_from(["t", "other"])
act = st.one_of(
    st.tuples(st.just("add"), said),
    st.tuples(st.just("edit"), said),
    st.tuples(st.just("remove"), st.just("")),
    st.tuples(st.just("record"), thread, said),
    st.tuples(st.just("replace"), thread, said),
    st.tuples(st.just("extract"), thread, said),
    st.tuples(st.just("fail"), thread, said),
    st.tuples(st.just("discard"), thread, said),
    st.tuples(st.just("revert"), st.just("")),
    st.tuples(st.just("rollback"), st.just("")),
    st.tuples(st.just("clear"), st.just("")),
    st.tuples(st.just("import"), said),
    st.tuples(st.just("policy"), said),
    st.tuples(st.just("forget"), said),
    st.tuples(st.just("forget thread"), thread),
    st.tuples(st.just("forget user"), st.just("")),
)


def learned(what: str) -> dict[str, object]:
    section = {"summary": f"sells {what}", "shouldUpdate": True}
    return {"newFacts": [{"content": f"likes {what}", "confidence": 0.9}], "user": {"workContext": section}}


def first(memory: MemoryHandle) -> str:
    return next((fact.id for fact in memory.facts()), "none")


STEPS: dict[str, Callable[..., object]] = {
    "add": lambda memory, what: memory.add_fact(f"likes {what}"),
    "edit": lambda memory, what: memory.edit_fact(first(memory), f"loves {what}"),
    "remove": lambda memory, _: memory.remove_fact(first(memory)),
    "record": lambda memory, where, what: memory.record(where, exchange(what), mode="append"),
    "replace": lambda memory, where, what: memory.record(where, exchange(what), mode="replace"),
    "extract": lambda memory, where, what: memory.extract([{"thread_id": where, "reply": learned(what)}]),
    "fail": lambda memory, where, _: memory.extract([{"thread_id": where, "reply": "nothing"}]),
    "discard": lambda memory, where, _: memory.discard(where),
    "revert": lambda memory, _: memory.revert("HEAD", force=True),
    "rollback": lambda memory, _: memory.rollback(2),
    "clear": lambda memory, _: memory.clear(),
    "import": lambda memory, what: memory.import_document({"user": learned(what)["user"], "facts": [f"has {what}"]}),
    "policy": lambda memory, what: memory.set_policy(max_facts=10 + len(what)),
    "forget": lambda memory, what: memory.forget(matching=what),
    "forget thread": lambda memory, where: memory.forget(thread_id=where),
}


def carry_out(bs: Backstory, scope: tuple[str, str | None], step: tuple[str, ...]) -> None:
    kind, *words = step
    if kind == "forget user":
        bs.forget_user(scope[0])
    else:
        STEPS[kind](bs.memory(*scope), *words)


@pytest.mark.slow
@given(
    steps=st.lists(st.tuples(st.sampled_from(SCOPES), act, st.booleans()), min_size=2, max_size=12),
    shared=st.booleans(),
)
@settings(max_examples=examples(0.125))
def test_an_answer_that_is_said_to_be_the_same_is_the_same(
    steps: list[tuple[tuple[str, str | None], tuple[str, ...], bool]], shared: bool
) -> None:
    """Whatever is done, in this process or in another, and whichever memory is read how."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "home", shared_summaries=shared)
        other = Backstory.open(
            server.path, background=False, clock=server.clock, shared_summaries=shared, min_seconds_between_calls=0
        )
        known: dict[tuple[str, tuple[str, str | None], str], bytes] = {}
        with other, server.client() as client:
            for number, (scope, step, here) in enumerate(steps):
                server.clock.advance(1)
                with contextlib.suppress(BackstoryError):
                    carry_out(server.home if here else other, scope, step)
                for read in SCOPES:
                    # A third of them in turn; a tag that was wrong then is still wrong when its turn comes again.
                    for url in URLS if LONG else URLS[number % 3 :: 3]:
                        answer = got(client, url, user(*read))
                        if answer.status_code != 200:
                            assert "etag" not in answer.headers
                            continue
                        name = (url, read, answer.headers["etag"])
                        assert known.setdefault(name, answer.content) == answer.content, (url, read)


def test_a_time_that_is_counted_back_from_now_has_no_tag_and_is_not_kept(
    client: CheckedClient, other: Backstory
) -> None:
    with other:
        other.memory("ada").add_fact("likes tea")
    for url in ("document?at=now", "memory?at=1 min ago", "log?since=yesterday", "diff?a=1d ago&b=2"):
        found = got(client, url, ADA)
        assert (found.status_code, found.headers["cache-control"], found.headers.get("etag")) == (200, "no-store", None)
    assert "etag" in got(client, "document?at=HEAD", ADA).headers


def test_commits_and_times_are_named_as_on_the_command_line(client: CheckedClient, other: Backstory) -> None:
    with other:
        for words in ("likes tea", "likes milk"):
            other.memory("ada").add_fact(words)
    commit = got(client, "commits/2", ADA).json()
    assert (
        got(client, "commits/HEAD~1", ADA).json() == got(client, f"commits/{commit['hash'][:9]}", ADA).json() == commit
    )
    assert got(client, "document?at=HEAD~1", ADA).json() == got(client, "document?at=2", ADA).json()
    assert got(client, "commits/HEAD/refusals", ADA).json() == {"items": []}
    assert got(client, "document?at=2999-01-01", ADA).status_code == 400
    assert got(client, "diff?a=yesterday&b=2", ADA).status_code == 400
