"""Kept replies: each fits what it was asked; a missing one is made by a model only on request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from backstory.ledger import extraction
from backstory.ledger.core.errors import InputError
from backstory.memory_tests.run import run_tests

PACKAGED = Path(extraction.__file__).parent / "prompts"
KNOWN = {"remembers": "lives in Oslo"}


class Scripted:
    """A model that answers alike each time, and counts."""

    name = "scripted"

    def __init__(self, content: str = "User lives in Oslo") -> None:
        self.content = content
        self.calls = 0

    def __call__(self, messages: list[dict[str, str]]) -> dict[str, object]:
        self.calls += 1
        return {"newFacts": [{"content": self.content, "category": "knowledge", "confidence": 0.9}]}


def test_record_keeps_what_a_model_answers_and_the_next_run_needs_none(files) -> None:
    model = Scripted()
    path = files.test(KNOWN, replies="kept.jsonl")
    assert run_tests([path], model=model, record=True).ok
    assert model.calls == 2
    rows = [json.loads(line) for line in (files.folder / "kept.jsonl").read_text().splitlines()]
    assert [(row["thread_id"], row["model"], "run" in row) for row in rows] == [
        ("monday", "Scripted", False),
        ("friday", "Scripted", False),
    ]
    again = run_tests([path])
    assert (again.ok, again.files[0].asked, model.calls) == (True, 0, 2)
    assert run_tests([path], model=model, record=True).files[0].asked == 0


def test_a_model_is_not_asked_where_replies_are_kept_and_none_is_to_be_recorded(files) -> None:
    path = files.test(KNOWN, replies="kept.jsonl")
    (files.folder / "kept.jsonl").write_text("")
    with pytest.raises(InputError, match=r"2 replies are missing: monday \(not recorded\), friday \(not recorded\)"):
        run_tests([path], model=Scripted())


def test_another_prompt_is_not_recorded_and_the_old_one_still_is(files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.test(KNOWN, replies="kept.jsonl")
    run_tests([path], model=Scripted(), record=True)
    prompts = files.folder / "prompts"
    shutil.copytree(PACKAGED, prompts)
    (prompts / "system.md").write_text((prompts / "system.md").read_text() + "\nBe brief.\n")
    monkeypatch.setenv("BACKSTORY_PROMPTS_DIR", str(prompts))
    with pytest.raises(InputError, match=r"monday \(not recorded for this prompt\)"):
        run_tests([path])
    assert run_tests([path], model=Scripted("User lives in Oslo now"), record=True).ok
    assert [fact.content for fact in run_tests([path]).files[0].memory] == ["User lives in Oslo now"]
    monkeypatch.delenv("BACKSTORY_PROMPTS_DIR")
    assert [fact.content for fact in run_tests([path]).files[0].memory] == ["User lives in Oslo"]


def test_other_words_are_not_recorded(files) -> None:
    path = files.test(KNOWN, replies="kept.jsonl")
    run_tests([path], model=Scripted(), record=True)
    files.rows("said.jsonl", files.said[0] | {"content": "I live in Rome."}, *files.said[1:])
    with pytest.raises(InputError, match=r"1 reply is missing: monday \(not recorded for this prompt\)"):
        run_tests([path])


def test_another_policy_still_fits_the_kept_replies(files) -> None:
    path = files.test(KNOWN, replies="kept.jsonl")
    run_tests([path], model=Scripted(), record=True)
    strict = files.test(KNOWN, replies="kept.jsonl", policy={"fact_confidence_threshold": 0.95})
    verdict = run_tests([strict]).files[0].expectations[0]
    assert (verdict.ok, verdict.rule) == (False, "threshold")


def test_replies_of_another_model_do_not_count_for_the_model_of_the_file(
    files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.rows("kept.jsonl", *({**row, "model": "old"} for row in files.replies))
    assert run_tests([files.test({"forgets": "Oslo"}, replies="kept.jsonl", model="old")]).ok
    with pytest.raises(InputError, match=r"missing \(model new\)"):
        run_tests([files.test({"forgets": "Oslo"}, replies="kept.jsonl", model="new")])


def test_record_without_a_file_or_a_model_says_what_is_needed(files) -> None:
    with pytest.raises(InputError, match=r"add `replies: ada\.test\.replies\.jsonl`"):
        run_tests([files.test(KNOWN, replies=None)], model=Scripted(), record=True)
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        run_tests([files.test(KNOWN, replies=None)])
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        run_tests([files.test(KNOWN)], record=True)
    with pytest.raises(InputError, match=r"cannot read .*none\.jsonl.*--record makes it with a model"):
        run_tests([files.test(KNOWN, replies="none.jsonl")])


def test_without_replies_the_model_is_asked(files) -> None:
    model = Scripted()
    result = run_tests([files.test(KNOWN, {**KNOWN, "at": "monday"}, replies=None)], model=model)
    assert (result.ok, model.calls, result.files[0].asked) == (True, 2, 2)


def test_a_model_that_fails_leaves_a_missing_reply(files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MAX_ATTEMPTS", "1")

    def fails(messages: list[dict[str, str]]) -> str:
        raise OSError("no route")

    with pytest.raises(InputError, match=r"monday \(fails failed: .*no route"):
        run_tests([files.test(KNOWN, replies="kept.jsonl")], model=fails, record=True)
    assert not (files.folder / "kept.jsonl").exists()


def test_runs_are_counted_and_keep_replies_of_their_own(files) -> None:
    answers = iter(["User lives in Oslo", "x", "User lives in Rome", "y", "User lives in Oslo", "z"])

    def wavers(messages: list[dict[str, str]]) -> dict[str, object]:
        return {"newFacts": [{"content": next(answers), "confidence": 0.9}]}

    path = files.test(KNOWN, {"never": "lives in Paris"}, replies="kept.jsonl")
    for options in ({"model": wavers, "record": True}, {}):
        result = run_tests([path], times=3, **options)
        assert [(one.ok, one.held, one.runs) for one in result.files[0].expectations] == [(False, 2, 3), (True, 3, 3)]
        assert result.files[0].updates == 6
    with pytest.raises(InputError, match="2 replies are missing"):
        run_tests([path], times=4)


def test_a_reply_that_nothing_asked_for_is_noted(files) -> None:
    files.rows("replies.jsonl", *files.replies, {"thread_id": "sunday", "reply": {"newFacts": []}})
    assert files.run(KNOWN).notes == ("kept replies that were not used, by thread: sunday (1)",)


def test_a_broken_reply_file_is_told_with_its_line(files) -> None:
    (files.folder / "replies.jsonl").write_text('{"thread_id": "monday"}\n')
    with pytest.raises(InputError, match=r"replies\.jsonl: line 1 of the replies"):
        files.run(KNOWN)
