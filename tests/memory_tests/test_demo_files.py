"""The demo's memory test: what a change of a rule, of a reply or of the code does to it; and the measures of a run."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from backstory.cli import demo
from backstory.ledger.core.errors import InputError
from backstory.memory_tests.run import FileResult, run_tests

CLI = Path(demo.__file__).parent


@pytest.fixture
def story(tmp_path: Path) -> Path:
    for file in (*(CLI / "demo_data").iterdir(), *(CLI / "demo_tests").iterdir()):
        shutil.copy(file, tmp_path)
    return tmp_path / "ada.test.yaml"


def failing(story: Path) -> list[str]:
    return [one.expect for one in run_tests([story]).files[0].expectations if not one.ok]


def replies(story: Path) -> list[dict]:
    return [json.loads(line) for line in story.with_name("ada.replies.jsonl").read_text().splitlines()]


def rewrite(story: Path, rows: list[dict]) -> None:
    story.with_name("ada.replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_all_holds_today(story: Path) -> None:
    assert failing(story) == []


def test_a_lower_threshold_is_caught(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_FACT_CONFIDENCE_THRESHOLD", "0.3")
    assert 'refused like: "Thai food", rule: "threshold"' in failing(story)


def test_a_higher_threshold_is_caught(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_FACT_CONFIDENCE_THRESHOLD", "0.96")
    assert 'remembers "cycles to the bakery"' in failing(story)


def test_a_smaller_cap_is_caught(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MAX_FACTS", "10")
    assert failing(story) == ['remembers "cycles to the bakery"', "count facts: 13"]


def test_a_rule_that_is_switched_off_is_caught(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_GATE_ENABLED", "false")
    assert 'refused like: "Ada has a cold", rule: "gate"' in failing(story)


def test_a_category_that_is_taken_away_is_caught(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_FREE_CATEGORIES", "false")
    assert failing(story) == ['remembers like: "has a dog", category: "pets"']


def test_another_category_in_a_reply_is_caught(story: Path) -> None:
    rows = replies(story)
    rows[0]["reply"]["newFacts"][1]["category"] = "knowledge"
    rewrite(story, rows)
    assert failing(story) == ['remembers holds: "vegetarian", category: "preference"']


def test_the_mistaken_reply_is_caught(story: Path) -> None:
    mistaken = json.loads(story.with_name("friday.reply.jsonl").read_text())
    rewrite(story, [*replies(story)[:2], mistaken])
    assert {'remembers "severely allergic to peanuts"', 'never "no longer allergic"'} < {*failing(story)}


def test_a_reply_that_is_taken_away_is_caught(story: Path) -> None:
    rewrite(story, replies(story)[:2])
    with pytest.raises(InputError, match=r"1 reply is missing: friday \(not recorded\)"):
        run_tests([story])


@pytest.mark.slow
def test_a_hundred_conversations_of_twenty_turns_take_less_than_ten_seconds_and_give_the_same_twice(files) -> None:
    said = [
        {
            "thread_id": f"t{thread}",
            "id": f"t{thread}-{n}",
            "role": ("user", "assistant")[n % 2],
            "at": f"2026-0{1 + thread // 25}-{1 + thread % 25:02d}T10:{n:02d}:00Z",
            "content": f"In talk {thread} my town {20 * thread + n} has a bakery, a harbour and {n} bridges.",
        }
        for thread in range(100)
        for n in range(20)
    ]
    facts = [[{"content": f"Town {t} has bakery {n}", "confidence": 0.9} for n in range(2)] for t in range(100)]
    files.rows("said.jsonl", *said)
    files.rows("replies.jsonl", *({"thread_id": f"t{t}", "reply": {"newFacts": facts[t]}} for t in range(100)))

    def run() -> FileResult:
        return files.run(
            {"remembers": "Town 99 has"}, {"remembers": "Town 3 has", "at": "t3"}, {"count": {"facts": 100}}
        )

    begun = time.process_time()
    first = run()
    assert time.process_time() - begun < 10
    assert (first.ok, first.updates) == (True, 100)
    assert run() == first
