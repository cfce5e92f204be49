"""The verbs that find: what they print, what --json gives, and how far meaning is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from commandline import Cli, said

from backstory.ledger.core.errors import ModelUnavailableError
from backstory.projections.search.vectors.embedder import Floats


@pytest.fixture
def talk(story: Cli) -> Cli:
    story.run(
        "record",
        story.file(
            "more.jsonl",
            said("t3", "c1", "user", "I play the violin.", name="Ada", at="2026-01-02T03:04:05Z"),
            said("t3", "c2", "assistant", "Since when?", at="2026-01-02T03:04:06Z"),
        ),
    )
    return story


def test_search_gives_a_list_of_facts(story: Cli) -> None:
    (hit,) = story.json("search", "Bergen")
    assert set(hit) == {"id", "content", "score", "category", "confidence", "createdAt", "source"}
    assert (hit["id"], hit["content"], hit["category"], hit["source"]) == (
        "fact_3_0",
        "User lives in Bergen",
        "knowledge",
        "t2",
    )
    assert hit["score"] > 0


def test_search_in_turns_gives_the_hosts_ids_and_where_they_were_said(talk: Cli) -> None:
    hit = talk.json("search", "violin", "--in", "turns", "--top", "1")[0]
    assert set(hit) == {"id", "content", "score", "thread", "n", "role", "at", "name"}
    assert (hit["id"], hit["thread"], hit["role"], hit["at"], hit["name"]) == (
        "c1",
        "t3",
        "user",
        "2026-01-02T03:04:05.000000Z",
        "Ada",
    )


@pytest.mark.parametrize("query", ["zebra", ""])
def test_where_nothing_is_alike_the_answer_is_no(story: Cli, query: str) -> None:
    assert story.json("search", query, code=1) == []
    assert "Nothing was found" in story.run("search", query, code=1).stdout


def test_nothing_is_made_by_looking(cli: Cli) -> None:
    assert cli.json("search", "tea", code=1) == []
    assert cli.json("search", "tea", "--in", "turns", code=1) == []
    assert not cli.home.exists()


def test_search_is_narrowed(talk: Cli) -> None:
    assert [hit["id"] for hit in talk.json("search", "user Bergen", "--category", "knowledge", "--top", "1")] == [
        "fact_3_0"
    ]
    assert talk.json("search", "user", "--category", "goal", code=1) == []
    assert [hit["source"] for hit in talk.json("search", "user", "--thread", "t2")] == ["t2"]
    assert talk.json("search", "user", "--until", "2020-01-01", code=1) == []
    turns = ("search", "violin", "--in", "turns")
    assert talk.json(*turns, "--since", "2026-01-02T03:04:06Z", "--thread", "t1", code=1) == []
    assert talk.json(*turns, "--since", "2026-01-01", "--until", "2026-01-02T03:04:06Z")[0]["id"] == "c1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--in", "threads"), "'facts', 'turns'"),
        (("--in", "turns", "--category", "goal"), "only facts have a category"),
        (("--since", "soon"), "ISO 8601"),
        (("--since", "2026-03-02", "--until", "2026-03-01"), "until must be later than since"),
    ],
)
def test_wrong_use_names_what_there_is(story: Cli, words: tuple[str, ...], told: str) -> None:
    assert told in story.error("search", "tea", *words, code=2)


@pytest.mark.parametrize("where", ["facts", "turns"])
def test_a_thread_that_is_not_there_is_told(talk: Cli, where: str) -> None:
    assert "there is no thread nope" in talk.error("search", "violin", "--in", where, "--thread", "nope", code=1)
    assert talk.json("search", "xylophone", "--in", where, "--thread", "t2", code=1) == []


def test_at_least_one_is_to_be_found(story: Cli) -> None:
    assert "--top" in story.error("search", "tea", "--top", "0", code=2)


def test_a_page_of_facts_and_one_of_turns(talk: Cli) -> None:
    head, line = talk.run("search", "Bergen").stdout.splitlines()
    assert head.split() == ["SCORE", "ID", "CATEGORY", "FACT"]
    assert line.split(None, 3)[1:] == ["fact_3_0", "knowledge", "User lives in Bergen"]
    head, line = talk.run("search", "violin", "--in", "turns", "--top", 1).stdout.splitlines()
    assert head.split() == ["SCORE", "TIME", "THREAD", "WHO", "TURN"]
    assert line.split(None, 1)[1].split() == ["2026-01-02", "03:04:05Z", "t3", "Ada", "I", "play", "the", "violin."]


def test_a_hit_is_explained(talk: Cli) -> None:
    why = talk.json("search", "Bergen", "--explain")[0]["why"]
    assert why["wordsRank"] == 1
    assert sum(part["score"] for part in why["words"]) == pytest.approx(why["wordsScore"])
    assert "meaningRank" not in why
    shown = talk.run("search", "Bergen", "--explain").stdout
    assert "fact_3_0" in shown
    assert "| User lives in Bergen" in shown
    assert "1. by words" in shown
    assert "(own words)" in shown
    shown = talk.run("search", "violin", "--in", "turns", "--explain").stdout
    assert "c1" in shown
    assert "t3" in shown


def test_words_alone_say_nothing_of_meaning(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_EMBEDDING_MODEL", "none")
    assert story.run("search", "Bergen").stderr == ""
    error = story.error("embed", code=3)
    assert "embedding_model" in error


class Model:
    """A stand-in for an embedding model, to which all texts mean the same."""

    name = "all-alike"
    local = True

    def passages(self, texts: Sequence[str], timeout: float | None = None) -> Floats:
        import numpy as np

        return np.ones((len(texts), 1), np.float32)

    def query(self, text: str) -> Floats:
        return self.passages([text])[0]


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.config.embedder_factory.as_embedder", lambda *_: Model())


@pytest.mark.usefixtures("embedder")
def test_search_says_how_far_meaning_is_until_it_is_there(story: Cli) -> None:
    before = story.run("--json", "search", "Bergen")
    assert before.stderr == "backstory: by meaning: 0 of 2 facts; run `backstory embed`\n"
    assert len(json.loads(before.stdout)) == 1
    assert "0 of 4 turns" in story.run("search", "Bergen", "--in", "turns").stderr
    assert story.json("embed") == {"model": "all-alike", "embedded": 6, "total": 6, "new": 6}
    assert "has embedded 6 of 6 facts and turns, 0 now" in story.run("embed").stdout
    after = story.run("search", "Bergen", "--explain")
    assert after.stderr == ""
    assert "1. by meaning, similarity 1.000" in after.stdout
    assert len(story.json("search", "zebra")) == 2


@pytest.mark.usefixtures("embedder")
def test_what_meaning_alone_brought_in_is_marked(story: Cli) -> None:
    story.run("embed")
    head, *lines = story.run("search", "Bergen").stdout.splitlines()
    assert head.split() == ["SCORE", "BY", "ID", "CATEGORY", "FACT"]
    assert [line.split()[1:3] for line in lines] == [["words", "fact_3_0"], ["meaning", "fact_2_0"]]
    head, *lines = story.run("search", "zebra", "--in", "turns").stdout.splitlines()
    assert head.split() == ["SCORE", "BY", "TIME", "THREAD", "WHO", "TURN"]
    assert {line.split()[1] for line in lines} == {"meaning"}
    first, second = story.json("search", "Bergen")
    assert "byMeaning" not in first
    assert second["byMeaning"] is True
    assert "`search_min_similarity` demands" in " ".join(story.run("search", "--help").stdout.split())


@pytest.mark.usefixtures("embedder")
def test_a_query_that_says_nothing_finds_nothing_with_a_model_too(story: Cli) -> None:
    story.run("embed")
    assert story.json("search", "???", code=1) == []


@pytest.mark.usefixtures("embedder")
def test_embed_may_stop_and_go_on(story: Cli) -> None:
    stopped = story.run("--json", "embed", "--timeout", "0")
    assert json.loads(stopped.stdout) == {"model": "all-alike", "embedded": 0, "total": 6, "new": 0}
    assert stopped.stderr == "backstory: stopped after 0 s with 0 of 6 embedded; run it again\n"
    assert "stopped after 0 s with 0 of 6 embedded" in story.run("embed", "--timeout", "0", "--all").stderr
    done = story.run("--json", "embed", "--timeout", "60")
    assert json.loads(done.stdout)["new"] == 6
    assert done.stderr == ""
    assert story.run("embed", "--timeout", "0", "--all").stderr == ""


@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("timeout", ["nan", "-1", "x"])
@pytest.mark.parametrize("more", [(), ("--all",)])
def test_a_time_that_is_none_is_wrong_use(story: Cli, timeout: str, more: tuple[str, ...]) -> None:
    assert "timeout" in story.error("embed", "--timeout", timeout, *more, code=2)


@pytest.mark.usefixtures("embedder")
def test_all_of_a_home_shares_the_time(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    story.run("--user", "ada", "fact", "add", "Likes tea")
    given: list[float | None] = []
    real = Model.passages

    def passages(self: Model, texts: Sequence[str], timeout: float | None = None) -> Floats:
        given.append(timeout)
        now[0] += 40
        return real(self, texts)

    now = [0.0]
    monkeypatch.setattr(Model, "passages", passages)
    monkeypatch.setattr("backstory.cli.verbs.search.time", SimpleNamespace(monotonic=lambda: now[0]))
    told = story.run("embed", "--all", "--timeout", "70").stderr
    assert "stopped after 70 s with 6 of 7 embedded" in told
    assert len(given) == 2


@pytest.mark.usefixtures("embedder")
def test_embed_all_goes_through_the_home(story: Cli) -> None:
    story.run("--user", "ada", "fact", "add", "Likes tea")
    found = story.json("embed", "--all")
    assert [(one["user"], one["agent"], one["embedded"], one["total"], one["new"]) for one in found] == [
        (None, None, 6, 6, 6),
        ("ada", None, 1, 1, 1),
    ]
    head, *lines = story.run("embed", "--all").stdout.splitlines()
    assert head.split() == ["USER", "AGENT", "EMBEDDED", "OF", "NOW"]
    assert [line.split() for line in lines] == [["-", "-", "6", "6", "0"], ["ada", "-", "1", "1", "0"]]


def test_a_model_that_cannot_be_reached_is_told_beside_the_answer(
    story: Cli, embedder: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.run("embed")

    def fail(self: Model, text: str) -> Floats:
        raise ModelUnavailableError("nobody is at home")

    monkeypatch.setattr(Model, "query", fail)
    result = story.run("--json", "search", "Bergen")
    assert len(json.loads(result.stdout)) == 1
    assert result.stderr == "backstory: warning: search goes on by words alone: nobody is at home\n"
    monkeypatch.setattr(Model, "passages", lambda self, texts, timeout=None: fail(self, ""))
    story.run("fact", "add", "Likes tea")
    assert "nobody is at home" in story.error("embed", code=3)
    assert "nobody is at home" in story.error("embed", "--all", code=3)


def test_a_search_may_be_configured(story: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_SEARCH_TOP_K", "1")
    assert len(story.json("search", "user")) == 1
    assert len(story.json("search", "user", "--top", 2)) == 2


def test_control_characters_in_what_is_found_do_not_reach_the_terminal(cli: Cli) -> None:
    cli.run("fact", "add", "Likes \x1b[31mred\x1b[0m tea")
    assert "\x1b" not in cli.run("search", "tea").stdout
    assert "\x1b" not in cli.run("search", "tea", "--explain").stdout
    assert json.loads(cli.run("--json", "search", "tea").stdout)[0]["content"] == "Likes \x1b[31mred\x1b[0m tea"
