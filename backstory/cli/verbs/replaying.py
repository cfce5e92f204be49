"""Verbs that replay conversations: reextract with another model, test what a memory learns."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backstory.cli.pages.labels import counted
from backstory.cli.pages.page import Column, Page
from backstory.cli.session import Session, progress
from backstory.cli.verbs.conversations import Replies
from backstory.ledger.core.errors import UsageError

if TYPE_CHECKING:
    from backstory.memory_tests.comparison import Compared, FileComparison
    from backstory.memory_tests.judging import Judgement
    from backstory.memory_tests.run import FileResult, TestResult
    from backstory.projections.what_if.reextract import UpdateCounts
    from backstory.results import Reextracted

_MOST_WORDS = 4
"""How many turns a failed expectation shows."""


def reextract(
    session: Session,
    *,
    model: Annotated[str | None, typer.Option(metavar="M", help="Name of the model. Default: as configured.")] = None,
    prompts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of prompt templates. Default: as configured.")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only this conversation.")] = None,
    replies: Replies = None,
    max_calls: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Maximum number of calls of the model.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tokens.")] = None,
) -> None:
    """Extract again from all recorded turns, and compare memory, cost and refusals. Writes nothing.

    Example: backstory reextract --model gpt-5-mini --max-calls 50
    """
    from backstory.cli.inputs import read_recorded_replies

    answers = read_recorded_replies(replies)
    if model is not None and answers is not None:
        raise UsageError("--model and --replies exclude each other: leave one of them out")
    left = "reextract writes nothing; --max-calls and --thread make it shorter"
    with session.when_interrupted(lambda: left), session.opened(model=model, prompts_dir=prompts) as bs:
        memory = session.named(bs)
        with progress("extracting again, commits", memory.head().seq, least=1) as step:
            result = memory.reextract(
                thread=thread, replies=answers, max_calls=max_calls, max_tokens=max_tokens, progress=step
            )
    session.answer(result, _comparison)
    if result.again.failed or (result.again.updates == 0 and not result.complete):
        raise typer.Exit(1)


def _comparison(page: Page, found: Reextracted) -> None:
    """Show the differences of memory, and the cost of both extractions side by side."""
    from backstory.cli.pages.history import diff_lines

    if found.again.updates > found.again.failed or not found.recorded.updates:
        diff_lines(page, found)
    else:
        page.line(("No update succeeded", "bold red"), ": there is nothing to compare.")
    columns = (Column(""), Column("recorded", right=True), Column("again", right=True))
    page.table(columns, _rows(found.recorded, found.again))
    for note in found.notes:
        page.line((note, "dim"))
    if not found.complete:
        page.line(("Stopped at the limit", "bold yellow"), f": both columns are as of commit {found.until}.")
    page.line(f"There would be {counted(found.facts, 'fact')}. Nothing was written.")


def _rows(recorded: UpdateCounts, again: UpdateCounts) -> Iterator[tuple[str, str, str]]:
    names = ("calls", "tokens_in", "tokens_out", "updates", "failed", "accepted")
    for name in names:
        yield name.replace("_", " "), f"{getattr(recorded, name):,}", f"{getattr(again, name):,}"
    for rule in sorted({*recorded.refused, *again.refused}):
        yield f"refused: {rule}", f"{recorded.refused.get(rule, 0):,}", f"{again.refused.get(rule, 0):,}"
    for reason in sorted({*recorded.failures, *again.failures}):
        yield f"failed: {reason}", f"{recorded.failures.get(reason, 0):,}", f"{again.failures.get(reason, 0):,}"
    yield "facts", f"{recorded.facts:,}", f"{again.facts:,}"


def run_tests(
    session: Session,
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Files of memory tests.")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Ask a model for the replies that are missing, and keep them.")
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option(metavar="OLD.json", help="Show what changed since an earlier result, written with --json."),
    ] = None,
    times: Annotated[int, typer.Option(min=1, metavar="N", help="Run each file N times, and show how often.")] = 1,
    junit: Annotated[str | None, typer.Option(metavar="FILE", help="Also write the result as JUnit XML.")] = None,
    from_fact: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Make the test FILE of this fact, or of a commit: it shows the words and asks."
        ),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="With --from-fact: replace a name in all words.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --from-fact: do not ask for confirmation.")] = False,
) -> None:
    """Test what a memory learns from conversations, in a scratch memory under today's rules.

    Exit 0 if all expectations hold, 1 if one does not, 2 if a file is wrong or a reply is missing.

    Example: backstory test ada.test.yaml
    """
    from backstory.ledger.disk.files import write_given
    from backstory.memory_tests.comparison import compare as compare_with
    from backstory.memory_tests.run import junit as as_junit
    from backstory.memory_tests.run import run_tests as run

    session.check_home()
    if from_fact is not None:
        _make_test(session, from_fact, files or [], rename or [], yes=yes)
        return
    result = run(files or (), home=session.home, config=session.config, record=record, times=times)
    if junit is not None:
        write_given(Path(junit), as_junit(result))
    if compare is None:
        session.answer(result, _test_lines)
    else:
        session.answer(compare_with(result, Path(compare)), _compared_lines)
    if not result.ok:
        raise typer.Exit(1)


def _make_test(session: Session, what: str, files: Sequence[str], renamed: Sequence[str], *, yes: bool) -> None:
    """Write a test of a fact or a commit, after its words were shown."""
    from backstory.cli.pages.answers import WrittenTest
    from backstory.memory_tests.incident import incident_of

    if len(files) > 1:
        raise UsageError(f"--from-fact makes one test: name one FILE, got {len(files)}")
    if not yes and (session.as_json or not sys.stdin.isatty()):
        raise UsageError(
            "no erasure reaches the words of a test, and there is no terminal to show them and ask: pass --yes"
        )
    names = {}
    for pair in renamed:
        old, equals, new = pair.partition("=")
        if not equals or not old:
            raise UsageError(f"--rename must be OLD=NEW, such as Ada=Kim, got {pair!r}")
        names[old] = new
    with session.memory() as memory:
        incident = incident_of(memory, what, Path(files[0]) if files else None, names)
    incident.must_be_new()
    if not session.as_json:
        shown = session.page()
        shown.line(("No erasure reaches these words once they are in a repository:", "bold yellow"))
        for words in incident.words:
            shown.quote(words)
    if not yes:
        session.confirm(f"Write them into {counted(len(incident.files), 'file')}?", "nothing was written")
    incident.write()
    for note in incident.notes:
        session.note(note)
    test = list(incident.files)[-1]
    session.answer(
        WrittenTest(test, tuple(incident.files), incident.words, incident.notes),
        lambda page, written: page.line(
            ("Wrote", "bold green"), f": {', '.join(written.files)}. Run `backstory test {test}`."
        ),
    )


def _compared_lines(page: Page, result: Compared) -> None:
    _test_lines(page, result)
    for one in result.compared:
        page.line(("Compared", "bold"), f": {one.file}" + (" was not in the earlier result" if one.new else ""))
        for line in _differences(one):
            page.line(line, indent=2)


def _differences(one: FileComparison) -> Iterator[str]:
    changes = {**one.expectations, **one.policy, **{f"refused by {rule}": n for rule, n in one.refused.items()}}
    changes |= {name.replace("_", " "): changed for name, changed in one.counts.items()}
    changes |= {"model": one.model} if one.model is not None else {}
    yield from (f"+ {fact.content}  {fact.category}" for fact in one.added)
    yield from (f"- {fact.content}  {fact.category}" for fact in one.removed)
    for name, changed in changes.items():
        yield f"{name}: {_value(changed.before)} -> {_value(changed.after)}"
    if one.prompts is not None:
        yield "the prompts differ"
    if not (one.new or one.added or one.removed or changes or one.prompts):
        yield "nothing changed"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else f"{value:,}" if type(value) is int else str(value)


def _test_lines(page: Page, result: TestResult) -> None:
    for one in result.files:
        _file_lines(page, one)
    total = counted(result.passed + result.failed, "expectation")
    end = "all hold" if result.ok else f"{result.failed} not met"
    page.line((f"{total}: {end}.", "bold green" if result.ok else "bold red"))


def _file_lines(page: Page, result: FileResult) -> None:
    tokens = f", {result.tokens_in:,} tokens in and {result.tokens_out:,} out" if result.tokens_in else ""
    what = f"{counted(result.updates, 'update')}, {counted(len(result.memory), 'fact')}{tokens}"
    page.line((result.file, "bold"), f": {what}")
    for verdict in result.expectations:
        _verdict_lines(page, verdict)
    for note in result.notes:
        page.line((note, "dim"), indent=2)


def _verdict_lines(page: Page, verdict: Judgement) -> None:
    rate = f" ({verdict.held} of {verdict.runs} runs)" if verdict.runs > 1 else ""
    mark = ("holds ", "green") if verdict.ok else ("FAILS ", "bold red")
    page.line(mark, f" {verdict.expect}{rate}", indent=2)
    if verdict.ok:
        return
    page.line(verdict.why, indent=9)
    for words in verdict.words[:_MOST_WORDS]:
        page.quote(words, indent=9)
    if (more := len(verdict.words) - _MOST_WORDS) > 0:
        page.line(f"| … and {counted(more, 'turn')} more", indent=9)
