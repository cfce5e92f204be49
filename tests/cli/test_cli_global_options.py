"""Global options before and after the verb, help in all of its spellings, and short options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from commandline import Cli
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from backstory.cli.app import _listed, _made, app

GLOBAL = {"--home", "--user", "--agent", "--config", "--store", "--json", "--debug"}


def verbs(group: TyperGroup | None = None, *before: str) -> Iterator[tuple[str, ...]]:
    group = group or get_command(app)
    for name in group.commands:
        command = group.get_command(None, name)
        if isinstance(command, TyperGroup):
            yield from verbs(command, *before, name)
        else:
            yield (*before, name)


VERBS = sorted(verbs())


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


# After the verb.


def test_json_is_understood_after_the_verb(story: Cli) -> None:
    assert json.loads(story.run("status", "--json").stdout) == story.json("status")
    assert len(json.loads(story.run("fact", "list", "--json").stdout)) == 2
    assert len(json.loads(story.run("fact", "--json", "list").stdout)) == 2


def test_user_agent_and_home_are_understood_after_the_verb(cli: Cli) -> None:
    cli.run("fact", "add", "likes tea", "--user", "ada", "--agent=coder", "--json")
    cli.run("fact", "--user", "ada", "add", "likes coffee")
    scopes = json.loads(run("scopes", "--home", str(cli.home), "--json"))
    assert [(one["user"], one["agent"], one["facts"]) for one in scopes] == [("ada", None, 1), ("ada", "coder", 1)]
    assert run("show", "--home", str(cli.home), "--user", "ada").startswith("The memory of user ada")
    assert "likes tea" in run("--user", "ada", "show", "--agent", "coder", "--home", str(cli.home))


def test_config_and_store_are_understood_after_the_verb(cli: Cli) -> None:
    file = cli.folder / "settings.yaml"
    file.write_text("memory:\n  max_facts: 17\n", encoding="utf-8")
    assert json.loads(cli.run("config", "--json", "--config", str(file)).stdout)["max_facts"]["value"] == 17
    assert "nowhere" in cli.error("status", "--store", "nowhere:", code=2)


def test_debug_after_the_verb_shows_the_traceback(cli: Cli) -> None:
    (cli.home / "ledger.jsonl").mkdir(parents=True)
    assert "Traceback" not in cli.process("fact", "add", "likes tea").stderr
    ended = cli.process("fact", "add", "likes tea", "--debug")
    assert ended.returncode == 3
    assert "Traceback" in ended.stderr


def test_debug_after_the_verb_logs_more(story: Cli) -> None:
    before = story.process("--debug", "search", "Rust").stderr
    assert story.process("search", "Rust", "--debug").stderr.count("debug: ") == before.count("debug: ")


def test_an_error_is_json_with_the_option_after_the_verb(story: Cli) -> None:
    for words in (("why", "fact_9_9", "--json"), ("fact", "get", "fact_9_9", "--json")):
        assert json.loads(story.run(*words, code=1).stdout)["error"]["exit"] == 1
    assert json.loads(story.run("show", "--bogus", "--json", code=2).stdout)["error"]["exit"] == 2


def test_text_is_utf_8_with_json_after_the_verb(cli: Cli) -> None:
    cli.run("fact", "add", "likes café ☕")
    ended = subprocess.run(
        cli.command("show", "--json"),
        check=True,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert "☕" in ended.stdout.decode()


@pytest.mark.parametrize(
    "words", [("--user", "ada", "show", "--user", "bob"), ("fact", "--user", "a", "list", "--user", "b")]
)
def test_two_different_users_are_refused(cli: Cli, words: tuple[str, ...]) -> None:
    error = cli.error(*words, code=2)
    assert "--user is given twice" in error
    assert "leave one of them out" in error


def test_the_same_value_twice_is_no_error(cli: Cli) -> None:
    cli.run("--user", "ada", "fact", "add", "likes tea", "--user", "ada")
    assert json.loads(cli.run("--json", "--user", "ada", "fact", "--json", "list", "--user", "ada", "--json").stdout)


def test_a_value_after_two_dashes_is_no_option(story: Cli) -> None:
    story.run("fact", "add", "--", "--json")
    assert story.run("search", "--", "--json").stdout.startswith("SCORE")
    assert len(json.loads(story.run("search", "--json", "--", "--json").stdout)) == 1
    result = story.run("search", "--bogus", "--", "--json", code=2)
    assert result.stdout == ""


def test_the_value_of_an_option_is_no_option(story: Cli) -> None:
    assert story.run("context", "--for", "--json").stdout.startswith("<memory>")
    story.run("fact", "edit", "fact_2_0", "--content", "--user")
    assert "--user" in story.run("fact", "get", "fact_2_0").stdout


def test_a_store_that_is_named_stands_for_one_whose_address_the_host_keeps_for_the_tokens_too(cli: Cli) -> None:
    cli.home.mkdir(parents=True)
    host = cli.home / "host.json"
    host.write_text('{"version": 1, "host": "DeerFlow", "settings": {}, "withheld": ["event_store"]}')
    host.chmod(0o600)
    assert "give it with --store URL" in cli.error("token", "list", code=2)
    assert cli.json("--store", "postgresql://db/x", "token", "list") == []


def test_no_verb_has_an_option_of_its_own_with_a_global_name() -> None:
    root = get_command(app)
    for words in VERBS:
        command = root
        for word in words:
            command = command.get_command(None, word)
        own = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
        names = {param.name for param in command.params}
        assert not own & GLOBAL, words
        assert not names & {"home", "user", "agent", "config", "store", "as_json", "debug"}, words


# Help.


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_the_help_of_a_verb_is_short_and_shows_no_type_of_a_flag(words: tuple[str, ...]) -> None:
    shown = run(*words, "-h")
    assert run(*words, "--help") == shown
    assert run("help", *words) == shown
    assert "<bool>" not in shown
    assert "int range" not in shown
    assert not [option for option in GLOBAL if f"│ {option} " in shown]
    assert "Global options may stand after the verb as well" in " ".join(shown.split())


def test_help_of_the_whole_and_of_a_group() -> None:
    shown = run("--help")
    assert run("-h") == shown
    assert run("help") == shown
    assert "<bool>" not in shown
    assert run("help", "fact") == run("fact", "--help")
    assert "<bool>" not in run("help", "fact")


def test_help_of_an_unknown_verb_names_the_nearest(cli: Cli) -> None:
    assert "Did you mean 'search'" in cli.error("help", "serach", code=2)
    assert "Did you mean 'add'" in cli.error("help", "fact", "ad", code=2)
    assert "'add'" in cli.error("help", "log", "add", code=2)


def test_help_of_a_verb_opens_nothing(cli: Cli) -> None:
    code = (
        "import sys\n"
        "from backstory.cli.app import app\n"
        "try:\n    app(['help', 'log'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'openai', 'tiktoken', 'msgspec', 'orjson', 'yaml', 'asyncio'} & set(sys.modules)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout.endswith("[]\n")


# Short options.


def test_n_is_the_limit(story: Cli) -> None:
    assert story.json("log", "-n", "1") == story.json("log", "--limit", "1")
    assert len(story.json("search", "User", "-n", "1")) == 1
    assert story.json("graph", "-n", "1") == story.json("graph", "--limit", "1") != story.json("graph")


def test_the_signature_of_a_verb_is_read_when_it_is_asked_for() -> None:
    _made.cache_clear()
    root = get_command(app)
    assert {"record", "fact", "token", "help"} < set(root.commands)
    assert _made.cache_info().currsize == 0
    assert root.get_command(None, "fact") is root.get_command(None, "fact")
    assert _made.cache_info().currsize == 1


def test_the_list_of_verbs_reads_no_signature() -> None:
    _made.cache_clear()
    assert "reextract" in run("--help")
    assert _made.cache_info().currsize == 0
    for name in get_command(app).commands:
        shown, made = _listed(name), _made(name)
        assert (shown.name, shown.help, shown.rich_help_panel) == (made.name, made.help, made.rich_help_panel)
