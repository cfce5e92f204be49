"""Files of memory tests: what is wrong with one is said with its place, and the schema on the page is today's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from backstory.ledger.core.errors import ConfigError, InputError
from backstory.memory_tests.file import read_test, schema
from backstory.memory_tests.run import run_tests

ROOT = Path(__file__).parents[2]

BEGIN = "conversations: [said.jsonl]\nexpect:\n"
WRONG = (
    ("", "must be a mapping"),
    ("- a", "must be a mapping"),
    ("a: [", "is neither YAML nor JSON"),
    ("conversations: [a]\n", "expect is missing"),
    ("expect: [{never: a}]\n", "either conversations, a list of files, or home"),
    ("conversations: a.jsonl\nexpect: [{never: a}]\n", "conversations: it must be a list, such as [a, b]"),
    ("home: ../kept\nexpect: [{never: a}]\n", "home: it must have keys, such as {key: value}"),
    (f"{BEGIN}  - remembers: {{holds: 3}}\n", "expect[1].remembers.holds: it must be a text: put it into quotes"),
    ("conversations: []\nexpect: [{never: a}]\n", "conversations: "),
    ("conversation: [a]\nexpect: [{never: a}]\n", "conversation is no key: did you mean conversations?"),
    (f"{BEGIN}  - nevr: x\n", "expect[1].nevr is no key: did you mean never?"),
    (f"{BEGIN}  - never: x\n    forgets: y\n", "expect[1]: it must have exactly one of"),
    (f"{BEGIN}  - at: monday\n", "expect[1]: it must have exactly one of"),
    (f"{BEGIN}  - never: {{}}\n", "expect[1].never: it must be a text, or have one of"),
    (f"{BEGIN}  - never: 5\n", "expect[1].never: "),
    (f"{BEGIN}  - never: {{catgory: health}}\n", "expect[1].never.catgory is no key: did you mean category?"),
    (f"{BEGIN}  - never: {{matches: '['}}\n", "expect[1].never.matches: it is no regular expression"),
    (f"{BEGIN}  - refused: {{rule: treshold}}\n", "treshold is no rule: did you mean threshold?"),
    (f"{BEGIN}  - count: {{}}\n", "expect[1].count: it must have either facts, or max and min"),
    (f"{BEGIN}  - count: {{facts: {{maxx: 1}}}}\n", "expect[1].count.facts.maxx is no key: did you mean max?"),
    (f"{BEGIN}  - context: {{for: x}}\n", "expect[1].context: it must have one of holds, lacks, like, matches"),
)


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_wrong_file_is_told_with_the_key_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ada.test.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as told:
        read_test(path)
    assert said in str(told.value)
    assert str(path) in str(told.value)


def test_a_policy_key_that_is_none_and_one_out_of_range_are_told(files) -> None:
    with pytest.raises(ConfigError, match="max_fact is no policy key; the nearest is max_facts"):
        files.run({"never": "x"}, policy={"max_fact": 20})
    with pytest.raises(ConfigError, match="max_facts"):
        files.run({"never": "x"}, policy={"max_facts": 2})


def test_an_at_that_is_nowhere_names_the_threads(files) -> None:
    with pytest.raises(InputError, match=r"at: sunday is no thread of the conversations \(monday, friday, …\)"):
        files.run({"never": "x", "at": "sunday"})
    with pytest.raises(InputError, match="at: 9 is no"):
        files.run({"never": "x", "at": 9})


def test_a_missing_or_broken_conversation_is_told_with_its_line(files) -> None:
    with pytest.raises(InputError, match=r"cannot read .*none\.jsonl"):
        files.run({"never": "x"}, conversations=["none.jsonl"])
    (files.folder / "said.jsonl").write_text('{"role": "user", "content": "hi", "thread_id": "t"}\n{"role": "king"}\n')
    with pytest.raises(InputError, match=r"said\.jsonl: line 2: role must be one of"):
        files.run({"never": "x"})
    (files.folder / "said.jsonl").write_text("\n")
    with pytest.raises(InputError, match="there is no message in"):
        files.run({"never": "x"})


def test_conversations_of_two_people_are_refused(files) -> None:
    files.rows("said.jsonl", *({**one, "user_id": one["thread_id"]} for one in files.said))
    with pytest.raises(InputError, match="belong to several memories"):
        files.run({"never": "x"})


def test_no_file_and_no_run_at_all_are_wrong_use(files) -> None:
    from backstory.ledger.core.errors import UsageError

    with pytest.raises(UsageError, match="name the file"):
        run_tests([])
    with pytest.raises(UsageError, match="times must be at least 1"):
        run_tests([files.test({"never": "x"})], times=0)


def test_a_file_may_be_json(files) -> None:
    path = files.folder / "ada.json"
    path.write_text(
        json.dumps({"conversations": ["said.jsonl"], "replies": "replies.jsonl", "expect": [{"forgets": "Oslo"}]})
    )
    assert run_tests([path]).ok


def test_the_schema_on_the_page_is_that_of_the_program() -> None:
    page = ROOT / "docs/reference/memory-test.schema.json"
    assert json.loads(page.read_text(encoding="utf-8")) == schema(), "write it again: make docs"


def test_the_schema_takes_the_demos_file_and_refuses_a_misspelt_key() -> None:
    given = yaml.safe_load((ROOT / "backstory/cli/demo_tests/ada.test.yaml").read_text(encoding="utf-8"))
    check = jsonschema.Draft202012Validator(schema())
    assert list(check.iter_errors(given)) == []
    given["expect"].append({"count": {"facts": {"maxx": 3}}})
    assert list(check.iter_errors(given))


def test_the_example_for_github_actions_is_a_workflow() -> None:
    example = str(ROOT / "examples/memory-tests.yml")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", example]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
