"""The page of all keys says what the code does, and `backstory config` shows what is in force."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.config.file import NOT_NEEDED
from backstory.config.settings import DEFAULT_MODEL, ModelSettings, Settings, kind_of
from backstory.ledger.core.policy import CATEGORIES, POLICY_KEYS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
ROWS = {
    row[1]: (row[2].strip(), row[3].strip(), row[4].strip())
    for row in re.finditer(r"^\| `(\w+)` \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", PAGE, re.MULTILINE)
}
SECRET = "sk-very-secret-0123456789"  # noqa: S105 the secret that must not be shown


def spelled_default(field: FieldInfo) -> str:
    match field.default:
        case None | "" | ModelSettings():
            return ""
        case bool():
            return str(field.default).lower()
        case str():
            return f"`{field.default}`"
        case tuple():
            return ", ".join(f"`{item}`" for item in field.default)
    return f"{field.default}"


def spelled_range(key: str, field: FieldInfo) -> str:
    kind = field.annotation
    if key == "max_facts":
        return "10 to `max_facts_limit`"
    if key == "model":
        return "keys below it"
    if kind is bool:
        return "true, false"
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if key == "categories":
        return "names, objects"
    if key == "instructions":
        return "up to 4000 characters"
    if key == "hooks_leave_out":
        return "paths"
    if get_origin(kind) is tuple:
        return "categories"
    return kind_of(key).partition(" from ")[2] or "text"


def test_the_page_lists_every_key_once_and_no_other() -> None:
    assert sorted(ROWS) == sorted(Settings.model_fields)
    assert len(re.findall(r"^\| `\w+` \|[^|\n]*\|[^|\n]*\|[^|\n]*\|$", PAGE, re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("key", Settings.model_fields)
def test_the_page_has_the_default_and_the_range_of_a_key_and_what_it_means(key: str) -> None:
    field = Settings.model_fields[key]
    default, range_, meaning = ROWS[key]
    assert (default, range_) == (spelled_default(field), spelled_range(key, field))
    assert meaning


def test_the_page_says_why_a_key_of_deerflow_is_not_needed() -> None:
    reasons = dict(re.findall(r"^\| `(\w+)` \| ([^|\n]+) \|$", PAGE, re.MULTILINE))
    assert reasons == NOT_NEEDED


def test_the_page_names_the_categories_the_model_and_the_keys_below_it() -> None:
    assert f"Categories are {', '.join(f'`{word}`' for word in CATEGORIES)}." in PAGE
    assert f"`{{{', '.join(ModelSettings.model_fields)}}}`" in ROWS["model"][2]
    assert f"else `{DEFAULT_MODEL}`" in ROWS["model_name"][2]


def test_the_page_says_which_keys_are_policy() -> None:
    start = PAGE.index("## Admission")
    policy = PAGE[start : PAGE.index("## Context block")]
    assert set(re.findall(r"^\| `(\w+)` ", policy, re.MULTILINE)) - {"max_facts_limit"} == set(POLICY_KEYS)


# The verb.


def run(folder: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["--home", str(folder / "home"), *words])
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    return result.stdout


def test_config_gives_every_key_its_value_and_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "backstory.yaml"
    file.write_text(
        "memory:\n  enabled: true\n  backend_config:\n    fact_eviction_policy: hybrid-v1\n"
        f"    embedding_model: m\n    embedding_base_url: http://:{SECRET}@x@host/1?password={SECRET}&db=3\n"
        f"    model: {{api_key: {SECRET}, base_url: 'http://me:{SECRET}@host/v1?api-key={SECRET}'}}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("BACKSTORY_GUARANTEED_CATEGORIES", "goal,correction")
    shown = json.loads(run(tmp_path, "--json", "--config", str(file), "--store", "jsonl:", "config"))
    assert set(shown) == {*Settings.model_fields, "user", "agent"}
    assert {tuple(value) for value in shown.values()} == {("value", "from")}
    assert shown["fact_eviction_policy"] == {"value": "hybrid", "from": "file"}
    assert shown["guaranteed_categories"] == {"value": ["goal", "correction"], "from": "environment"}
    assert shown["event_store"] == {"value": "jsonl:", "from": "argument"}
    assert shown["workers"] == {"value": 2, "from": "default"}
    assert shown["embedding_base_url"]["value"] == "http://…@host/1?password=…&db=3"
    assert shown["model"]["value"]["base_url"] == "http://…@host/v1?api-key=…"
    assert shown["model"]["value"]["api_key"] == "…"
    assert not (tmp_path / "home").exists()


def test_config_is_a_page_for_people_spelled_as_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTORY_MODE", "tool")
    lines = {tuple(line.split()) for line in run(tmp_path, "config").splitlines()}
    assert {
        ("mode", "environment", "tool"),
        ("gate_enabled", "default", "true"),
        ("debounce_seconds", "default", "30"),
        ("guaranteed_categories", "default", "correction"),
        ("model", "default", "provider:", "openai"),
        ("model_name", "default"),
    } <= lines


def test_the_help_of_config_points_to_policy() -> None:
    assert "`policy`" in CliRunner().invoke(app, ["config", "--help"]).stdout
