"""Generator of docs/reference/command-line.md: every verb, its options, and what it prints on the demo's story."""

from __future__ import annotations

import inspect
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from backstory.cli.app import app

PAGE = Path(__file__).parent.parent / "docs/reference/command-line.md"

INTRODUCTION = """# Command line

`make docs` writes this page from the verbs themselves, and a test compares them. `backstory help VERB` shows the same.
Outputs are those of the demo's story (`backstory demo --keep story --before-undo`), with `--user ada`, in the order of
this page: a fact that `fact add` adds is there for the verbs after it. … stands for a time, a size or a path.

| exit code | meaning |
|---|---|
| 0 | It is done. |
| 1 | The request is valid and was refused, nothing was found, or the model failed. |
| 2 | The request can never work: a wrong option, name, file or setting. |
| 3 | It failed: the log is damaged or locked, the disk or the engine is not there. |
| 130, 141 | It was interrupted; the reader of its output went away. |

An error is one line on standard error. With `--json` the result, or the error, is one JSON value on standard output.
"""
ON_THE_STORY = {
    "status": "status",
    "show": "show --at 2",
    "log": "log",
    "threads": "threads",
    "turns": "turns friday",
    "search": "search peanuts",
    "context": 'context --for "what can I cook?"',
    "why": "why fact_3_0",
    "why-not": "why-not Thai",
    "diff": "diff 2 3",
    "what-if": "what-if --threshold 0.96",
    "verify": "verify",
    "revert": "revert 3",
    "rollback": "rollback 3 --dry-run",
    "export": "export --markdown",
    "scopes": "scopes",
    "fact list": "fact list",
    "fact get": "fact get fact_2_1",
    "fact add": 'fact add "Ada has a cat" --category context',
    "fact edit": 'fact edit fact_2_2 "Ada lives in Bergen" --from 2026-03',
    "fact remove": "fact remove fact_2_1",
}
"""What runs for a verb whose output a reader wants to see; the others show the example of their help."""
_UNSTEADY = re.compile(r"20(?!26-03)\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ|(?<=commit )\d+, [0-9a-f]{12}(?=\n)|\d+\.\d KiB")
_WIDTH = 100


def verbs() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Yield the name and the command of each verb, in the order of `backstory --help`."""
    yield from _below(typer.main.get_command(app), "")


def _below(group: object, before: str) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    assert isinstance(group, TyperGroup)
    for name in group.commands:
        command = group.get_command(typer.Context(group), name)
        if isinstance(command, TyperGroup):
            yield from _below(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def page() -> str:
    with tempfile.TemporaryDirectory() as folder:
        story = Path(folder) / "story"
        runner = CliRunner(env={"TZ": "UTC", "COLUMNS": str(_WIDTH), "USER": "you", "LOGNAME": "you"})
        assert runner.invoke(app, ["demo", "--keep", str(story), "--before-undo"]).exit_code == 0
        with chdir(story):
            options = _table(typer.main.get_command(app).params)
            parts = [INTRODUCTION, "## Global options\n\nThey stand before the verb or after it.\n", *options, ""]
            for name, command in verbs():
                parts += [
                    f"## {name}\n",
                    *_about(command),
                    *_table(command.params),
                    "",
                    *_output(runner, name, command),
                ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _paragraphs(command: typer.core.TyperCommand) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]


def _about(command: typer.core.TyperCommand) -> list[str]:
    return [f"{part}\n" for part in _paragraphs(command) if not part.startswith("Example: ")]


def _example(command: typer.core.TyperCommand) -> str:
    return next(part.removeprefix("Example: ") for part in _paragraphs(command) if part.startswith("Example: "))


def _table(params: list[typer.core.TyperOption | typer.core.TyperArgument]) -> list[str]:
    rows = []
    for param in params:
        if getattr(param, "hidden", False) or "--help" in param.opts:
            continue
        if param.param_type_name == "argument":
            name = param.metavar or param.name or ""
        else:
            name = ", ".join(param.opts) + (f" {param.metavar}" if param.metavar else "")
        text = " ".join((param.help or "").split()).replace("|", "\\|")
        stated = param.default is not None and param.default is not False and not callable(param.default)
        rows.append(f"| `{name}` | {text}{f' Default: {param.default}.' if stated and param.default != () else ''} |")
    return ["| option | what |", "|---|---|", *rows] if rows else []


def _output(runner: CliRunner, name: str, command: typer.core.TyperCommand) -> list[str]:
    if name not in ON_THE_STORY:
        return [f"```console\n$ {_example(command)}\n```\n"]
    asked = ON_THE_STORY[name]
    result = runner.invoke(app, ["--home", "home", "--user", "ada", *shlex.split(asked)])
    said = result.stdout + result.stderr
    assert result.exit_code == 0, (asked, said)
    steady = _UNSTEADY.sub(lambda found: "…".ljust(len(found[0])), said).replace(str(Path.cwd()), "…").rstrip()
    return [f"```console\n$ backstory {asked}\n{steady}\n```\n"]
