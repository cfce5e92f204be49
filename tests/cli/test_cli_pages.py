"""What people see: plain in a pipe, dressed on a terminal, and never steered by what was said."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from commandline import Cli, fact, reply, said
from rich.console import Console
from typer.testing import CliRunner

from backstory.cli.app import app
from backstory.cli.pages.history import refusal_table, why_page
from backstory.cli.pages.labels import moment, show_local_times
from backstory.cli.pages.page import Column, PlainPage, RichPage, clean, one_line
from backstory.ledger.core.commit import Cause
from backstory.ledger.core.events import Fact
from backstory.projections.history.audit import Birth, Evidence, Why
from backstory.projections.history.refusals import WhyNot

EVIL = "\x1b]0;owned\x07\x1b[2J[red]no[/red] [/] :smile: \x9b31m\x7f\u202eabc\rover\tend"


@pytest.fixture
def evil(cli: Cli) -> Cli:
    """Control sequences and markup wherever content can stand."""
    thread = f"th{EVIL}"
    rows = [
        said(thread, f"1{EVIL}", "user", f"said {EVIL}\nsecond line", name=f"n{EVIL}"),
        said(thread, "2", "ai", "ok then"),
    ]
    cli.run("record", cli.file("c", *rows))
    facts = [fact(f"fact {EVIL}", evidence=[f"1{EVIL}"], sourceError=EVIL), fact(f"weak {EVIL}", 0.1)]
    sections = {"workContext": {"summary": f"works {EVIL}", "shouldUpdate": True}}
    cli.run("extract", "--replies", cli.file("r", reply(thread, *facts, user=sections)))
    return cli


VERBS = [
    ["show"],
    ["log"],
    ["threads"],
    ["turns", f"th{EVIL}"],
    ["why", "fact_2_0"],
    ["why-not", f"weak {EVIL}"],
    ["diff", "0", "2"],
    ["revert", "2", "--dry-run"],
    ["rollback", "--to", "1", "--dry-run"],
    ["what-if", "--threshold", "0.05"],
    ["fact", "list"],
    ["fact", "get", "fact_2_0"],
    ["status"],
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_what_was_said_never_steers_the_terminal(evil: Cli, words: list[str]) -> None:
    out = evil.run(*words).stdout
    assert all(char == "\n" or char.isprintable() or char == "\N{NO-BREAK SPACE}" for char in out), ascii(out)
    if words[0] not in ("log", "status"):
        assert "[red]no[/red] [/] :smile:" in out


def test_an_error_does_not_steer_the_terminal_either(evil: Cli) -> None:
    message = evil.error("turns", f"none{EVIL}", code=1)
    assert message.rstrip("\n").isprintable()


def test_what_is_said_beside_the_answer_does_not_either(evil: Cli) -> None:
    beside = evil.run("extract", "--replies", evil.file("r2", reply(f"other{EVIL}", fact("x")))).stderr
    assert "thread other" in beside
    assert beside.rstrip("\n").isprintable()


def test_json_says_it_all_but_nothing_raw(evil: Cli) -> None:
    out = evil.run("--json", "turns", f"th{EVIL}").stdout
    assert json.loads(out)[0]["content"] == f"said {EVIL}\nsecond line"
    assert not {"\x1b", "\x9b", "\x7f", "\x07"} & set(out)
    assert not {"\x1b", "\x9b", "\x7f", "\x07"} & set(evil.run("export").stdout)


def test_a_pipe_gets_whole_lines_without_colour(cli: Cli) -> None:
    long = "User likes " + "very " * 100 + "long facts"
    cli.run("fact", "add", long)
    for words in (["show"], ["fact", "list"], ["why", "fact_2"], ["diff", "0", "2"]):
        out = cli.run(*words).stdout
        assert any(long in line for line in out.split("\n"))
        assert "\x1b" not in out


def test_a_fact_of_several_lines_stays_one_line_in_a_table(cli: Cli) -> None:
    cli.run("fact", "add", "first\nsecond")
    assert "first second" in cli.run("fact", "list").stdout


def test_columns_line_up_also_for_wide_characters(cli: Cli) -> None:
    for text in ("short", "用户喜欢茶"):
        said = '[{"role":"user","content":"I like tea."},{"role":"assistant","content":"Me too."}]'
        cli.run("record", "-", "--thread", text, piped=said)
    lines = [line for line in cli.run("status").stdout.split("\n") if line.endswith(" a model")]
    assert lines[0].replace("short     ", "用户喜欢茶") == lines[1]


def test_the_log_says_when_why_and_by_whom(story: Cli) -> None:
    story.run("fact", "add", "User has a dog")
    story.run("revert", "3")
    lines = story.run("log").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["SEQ", "5", "4", "3", "2", "1"]
    assert "revert of 3" in lines[1]
    assert "by hand: add" in lines[2]
    assert "t2" in lines[3]
    assert "a recorded reply" in lines[3]
    assert "+1 fact, -1 fact" in lines[3]
    assert "refused 1 threshold" in lines[4]


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (Cause(kind="import"), "import"),
        (Cause(kind="import", action="save"), "saved document"),
        (Cause(kind="import", action="home", origin="/deer/users/ada"), "imported from /deer/users/ada"),
        (Cause(kind="import", action="home"), "imported"),
        (Cause(kind="manual", action="save"), "by hand: save"),
        (Cause(kind="manual", action="add", by_model=True), "by a tool: add"),
    ],
)
def test_what_a_host_hands_over_is_called_by_what_it_is(cause: Cause, words: str) -> None:
    assert str(cause) == words


def test_why_is_a_story(story: Cli) -> None:
    live = story.run("why", "fact_2_0").stdout
    for part in ("User writes Rust", "commit 2", "extraction of thread t1", "| I write Rust in Oslo.", "in memory now"):
        assert part in live
    assert "| Noted." not in live
    gone = story.run("why", "fact_2_1").stdout
    for part in (
        "The model cited no evidence",
        "| Noted.",
        "removed",
        "model (moved)",
        "Removed with commit 3",
        "backstory revert 3",
    ):
        assert part in gone
    story.run("revert", "3")
    back = story.run("why", "fact_2_1").stdout
    assert "restored" in back
    assert "in memory now" in back


tea = partial(
    Fact, id="fact_2", content="User likes tea", category="goal", confidence=1, created_at="", source="t", seq=2
)


@pytest.fixture
def upkeep(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commit 3 reviews and confirms, commit 4 merges two of what commit 2 learned."""
    monkeypatch.setenv("BACKSTORY_CONSOLIDATION_ENABLED", "true")
    monkeypatch.setenv("BACKSTORY_CONSOLIDATION_MIN_FACTS", "3")
    review = {
        "staleFactsToRemove": [{"id": "fact_2_0", "reason": "moved away"}],
        "staleFactsToExtend": [{"id": "fact_2_1", "extendByDays": 400, "reason": "still so"}],
        "factsToReinforce": ["fact_2_2"],
    }
    two = {"sourceIds": ["fact_2_1", "fact_2_2"], "consolidated": {"content": "User likes tea and rain"}}
    facts = [fact(f"User likes {word}") for word in ("Oslo", "tea", "rain", "snow")]
    replies = [reply("t1", *facts), reply("t2", **review), reply("t3", factsToConsolidate=[two])]
    for month, answer in zip((1, 6, 7), replies, strict=True):
        thread, at = str(answer["thread_id"]), f"2025-{month:02}-20T00:00:00Z"
        rows = [said(thread, role, role, f"words of {thread}", at=at) for role in ("user", "assistant")]
        cli.run("record", cli.file("c", *rows))
        cli.run("extract", "--clock", "turns", "--replies", cli.file("r", answer))
    return cli


def test_the_pages_say_what_a_review_did(upkeep: Cli) -> None:
    lines = [line.split("recorded reply")[-1].strip() for line in upkeep.run("log").stdout.splitlines()]
    assert lines[1:4] == ["2 merged into 1", "1 out of date, 1 confirmed, 1 extended", "+4 facts"]
    told = upkeep.run("diff", "2", "3").stdout
    for part in (
        "~ User likes tea: lifetime none -> 551 days",
        "~ User likes rain: confirmed once",
    ):
        assert part in told
    assert "~ User likes tea: lifetime 551 days -> none" in upkeep.run("diff", "3", "2").stdout
    page = upkeep.run("why", "fact_2_0").stdout
    assert "removed after review  extraction: moved away" in page
    assert "Removed with commit 3" in page


def test_why_of_a_merged_fact_names_its_sources_and_their_words_and_theirs_name_it(upkeep: Cli) -> None:
    merged = upkeep.run("why", "fact_4_10000").stdout
    for part in ("Merged from fact_2_1, fact_2_2.", "Evidence of those; all turns", "words of t1"):
        assert part in merged
    assert "that update read these" not in merged
    assert "words of t3" not in merged
    source = upkeep.run("why", "fact_2_2").stdout
    assert "confirmed once" in source
    assert "merged into fact_4_10000  extraction\n" in source
    assert "Merged into fact_4_10000 with commit 4; `backstory revert 4` undoes that." in source
    assert "consolidated" not in source


def test_the_words_that_the_sources_of_a_merged_fact_cited_are_said_to_be_theirs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = (Evidence("1", "t1", "user", "I like tea.", ""),)
    born = Birth(4, "", Cause(kind="extraction"))
    for sources, heading in (("f", "Evidence of those:"), ("", "Evidence:")):
        why_page(PlainPage(), Why("f4", tea(consolidated_from=tuple(sources)), True, born, words, True, (), None))
        assert heading in capsys.readouterr().out.splitlines()


def test_a_merged_fact_without_words_names_its_sources_all_the_same(cli: Cli) -> None:
    drawn_from = fact("User likes tea", consolidatedFrom=["a", "b"])
    cli.run("import", cli.file("doc", {"facts": [drawn_from]}))
    assert "Merged from a, b.\nIt is in memory now." in cli.run("why", "fact_2_0").stdout


def test_the_policy_is_spelled_as_configuration_spells_it(story: Cli) -> None:
    told = story.run("policy", "--set", "max_facts=50").stdout
    values = {line.split()[0]: line.split()[1:] for line in told.splitlines()[2:]}
    assert values["staleness_protected_categories"] == ["correction"]
    assert values["gate_enabled"] == ["true"]
    assert values["eviction_confirmation_half_life_days"] == ["90"]
    assert story.json("log", "--limit", "1")[0]["summary"] == "max_facts 100 -> 50"
    assert "~ policy: max_facts 50 -> 100" in story.run("revert", "4").stdout


def test_what_is_remembered_is_named_where_it_is_asked_why_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    refusal_table(PlainPage(), WhyNot((), [tea()]), "user likes tea")
    assert capsys.readouterr().out == "This is in memory: User likes tea  fact_2\n"


def test_a_difference_has_its_signs(story: Cli) -> None:
    story.run("fact", "edit", "fact_3_0", "User lives in Tromsø")
    out = story.run("diff", "2", "4").stdout
    assert "- User lives in Oslo" in out
    assert "+ User lives in Tromsø" in out
    assert "~ User lives in Bergen -> User lives in Tromsø" in story.run("diff", "3", "4").stdout
    assert "+ user.workContext" in story.run("diff", "1", "2").stdout
    assert "No difference" in story.run("diff", "2", "2").stdout
    story.run("fact", "edit", "fact_3_0", "--confidence", "0.5")
    assert "knowledge, 0.90 -> knowledge, 0.50" in story.run("diff", "4", "5").stdout


def test_an_undo_says_what_it_did_and_what_was_in_its_way(story: Cli) -> None:
    assert "dry run" in story.run("revert", "3", "--dry-run").stdout
    assert "commit 4" in story.run("revert", "3").stdout
    story.run("fact", "edit", "fact_2_0", "User writes C")
    blocked = story.run("revert", "2", code=1).stdout
    assert "conflict: fact_2_0" in blocked
    assert "--force" in blocked
    assert "commit 6" in story.run("rollback", "--to", "3").stdout


def test_status_tells_what_waits_and_what_is_parked(cli: Cli) -> None:
    rows = [said(t, f"{t}{n}", role, "I like tea.") for t in "ab" for n, role in enumerate(["user", "assistant"])]
    cli.run("--user", "ada", "record", cli.file("c", *rows))
    cli.run("--user", "ada", "extract", "--replies", cli.file("r", {"thread_id": "a", "reply": "{"}), code=1)
    out = cli.run("--user", "ada", "status").stdout
    for part in (
        "user ada",
        "in 30 s; needs a model",
        "1 attempt",
        "reply: ",
        "4 turns in 2 threads",
        "none; set OPENAI_API_KEY",
    ):
        assert part in out
    assert (
        "parked"
        in cli.run(
            "--user", "ada", "extract", "--replies", cli.file("r", {"thread_id": "b", "reply": "{"}), code=1
        ).stdout
    )


def test_extract_and_retry_name_the_turns_that_are_parked_and_why(cli: Cli) -> None:
    rows = [said(t, f"{t}{n}", role, "I like tea.") for t in "ab" for n, role in enumerate(["user", "assistant"])]
    cli.run("record", cli.file("c", *rows))
    broken = cli.file("r", {"thread_id": "a", "reply": "{"})
    failed = cli.run("extract", "--replies", broken, code=1).stdout
    assert "\nPARKED THREAD  TURNS    TRIED      WHY\na              2 turns  1 attempt  reply: the reply" in failed
    later = cli.run("extract", "--replies", cli.file("g", reply("b", fact("Likes tea")))).stdout
    assert later.startswith("1 update: commit 3\nPARKED THREAD")
    assert cli.run("extract", "--replies", os.devnull).stdout.startswith("nothing was pending\nPARKED THREAD")
    assert "2 turns  2 attempts  reply: the reply" in cli.run("retry", "--replies", broken, code=1).stdout


def test_the_other_pages(story: Cli) -> None:
    head = story.json("head")
    assert story.run("head").stdout == f"3 {head['hash']}\n"
    assert story.run("verify").stdout.startswith("ok: 3 commits and 4 turns")
    assert "configuration asks for 100" in story.run("policy", "--set", "max_facts=50").stdout
    assert str(story.home) in story.run("config").stdout
    assert story.run("fact", "add", "User has a cat").stdout.startswith("commit 5")
    assert "removed fact_5_0" in story.run("fact", "remove", "fact_5_0").stdout
    assert "`backstory revert 7`" in story.run("clear").stdout
    file = story.file("doc", {"facts": [{"content": "User likes tea", "confidence": 0.9}]})
    assert "1 fact in memory now" in story.run("import", file).stdout
    assert story.run("scopes").stdout.splitlines()[1].split() == ["-", "-", "8", "1"]
    assert story.run("retry", "--replies", os.devnull).stdout == "nothing was retried\n"
    assert story.run("extract", "--replies", os.devnull).stdout == "nothing was pending\n"
    assert "There would be" in story.run("what-if", "--threshold", "0.1").stdout
    assert "No fact like it" in story.run("why-not", "zzz", code=1).stdout
    for words in (["--user", "new", "log"], ["--user", "new", "threads"], ["--user", "new", "show"]):
        assert story.run(*words).stdout.strip()


# A terminal.


def on_terminal(cli: Cli, *words: object) -> str:
    """Run it with a terminal for standard output; returns what that was sent."""
    master, slave = pty.openpty()
    env = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(cli.command(*words), stdout=slave, stderr=slave, stdin=slave, env=env) as process:
        os.close(slave)
        sent = b""
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:
                break
            if not part:
                break
            sent += part
        assert process.wait(20) == 0
    os.close(master)
    return sent.decode()


def test_a_terminal_gets_colours_and_nothing_from_the_content(evil: Cli) -> None:
    out = on_terminal(evil, "why", "fact_2_0")
    assert "\x1b[1m" in out
    for raw in ("\x1b]0;", "\x1b[2J", "\x9b", "\x07", "\x1b[31m"):
        assert raw not in out
    assert "[red]no[/red]" in out


def test_json_on_a_terminal_is_indented(story: Cli) -> None:
    out = on_terminal(story, "--json", "head")
    assert json.loads(out)["seq"] == 3
    assert '\n  "seq"' in out.replace("\r\n", "\n")


@pytest.mark.slow
def test_a_long_log_on_a_terminal_shows_the_newest_and_says_so(cli: Cli) -> None:
    for n in range(22):
        cli.run("fact", "add", f"fact number {n}")
    out = on_terminal(cli, "log")
    assert out.count("by hand: add") == 20
    assert "--limit 23" in out
    assert cli.run("log").stdout.count("by hand: add") == 22


@pytest.mark.slow
def test_a_terminal_shows_times_of_its_zone_that_at_takes_unless_utc_is_asked_for(
    story: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    shown = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\s\x1b]+", on_terminal(story, "log"))
    assert {time[-6:] for time in shown} == {"+05:45"}
    assert story.json("show", "--at", shown[0])["facts"] == story.json("show")["facts"]
    assert "+05:45" not in on_terminal(story, "log", "--utc") + story.run("log").stdout


def test_a_time_is_spelled_in_the_chosen_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Oslo")
    time.tzset()
    try:
        show_local_times(local=True)
        assert moment("2026-03-02T18:03:52.123Z") == "2026-03-02 19:03:52+01:00"
        assert moment("2026-07-02T18:03:52Z") == "2026-07-02 20:03:52+02:00"
        show_local_times(local=False)
        assert moment("2026-07-02T18:03:52Z") == "2026-07-02 18:03:52Z"
    finally:
        show_local_times(local=False)
        monkeypatch.undo()
        time.tzset()


def completed(cli: Cli, words: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("_BACKSTORY_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"backstory --home {cli.home} {words}")
    return CliRunner().invoke(app, [], prog_name="backstory").stdout


def test_the_shell_completes_users_agents_and_facts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.run("--user", "ada", "fact", "add", "Likes tea")
    cli.run("--user", "ada", "--agent", "chef", "fact", "add", "Likes basil")
    assert '"ada"' in completed(cli, "--user a", monkeypatch)
    assert '"ada"' in completed(cli, "why --user a", monkeypatch)
    assert '"chef"' in completed(cli, "--user ada --agent c", monkeypatch)
    assert "chef" not in completed(cli, "--user bob --agent c", monkeypatch)
    assert '"fact_2_0":"Likes basil"' in completed(cli, "--user ada --agent chef why fact_", monkeypatch)
    assert '"fact_2_0":"Likes tea"' in completed(cli, "fact edit --user ada fact_", monkeypatch)
    assert "fact_2_0" not in completed(cli, "--user ada fact edit fact_3", monkeypatch)


def test_the_shell_completes_nothing_where_there_is_no_home_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Cli(tmp_path / "nowhere")
    assert "fact" not in completed(nowhere, "why f", monkeypatch)
    assert not nowhere.home.exists()


def drawn(width: int) -> tuple[RichPage, io.StringIO]:
    out = io.StringIO()
    return RichPage(Console(file=out, width=width, force_terminal=True, color_system=None, markup=False)), out


def test_a_narrow_terminal_folds_the_last_column_and_drops_what_it_can_spare() -> None:
    columns = [Column("id"), Column("by", spare=60), Column("fact", folds=True)]
    rows = [("fact_1_0", "somebody", "word " * 20)]
    page, out = drawn(40)
    page.table(columns, rows)
    assert "somebody" not in out.getvalue()
    assert "A wider terminal shows more: by." in out.getvalue()
    assert all(len(line) <= 40 for line in out.getvalue().split("\n"))
    assert out.getvalue().count("word") == 20
    page, out = drawn(80)
    page.table(columns, rows, indent=2)
    assert "somebody" in out.getvalue()
    assert "wider" not in out.getvalue()


def test_a_page_for_a_terminal_takes_markup_as_it_is() -> None:
    page, out = drawn(80)
    page.line(("[bold]x[/bold]", "bold"), " [/] y\nz", indent=2)
    page.quote("[red]a\x1b[0m\nb[/red]")
    page.table([Column("[t]")], [])
    assert "  [bold]x[/bold] [/] y z" in out.getvalue()
    assert "[red]a\N{REPLACEMENT CHARACTER}[0m" in out.getvalue()
    assert "[t]" not in out.getvalue()


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\N{REPLACEMENT CHARACTER}b"),
        ("a\tb", "a    b"),
        ("\x1b[31m", "\N{REPLACEMENT CHARACTER}[31m"),
        ("\x00\x7f\x9b", "\N{REPLACEMENT CHARACTER}" * 3),
        ("a\u202eb\u2066c", "abc"),
        ("a\u2028b", "a\nb"),
        ("naïve 日本語 😀", "naïve 日本語 😀"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert one_line(f" {text}") == cleaned.replace("\n", " ")


@pytest.mark.slow
def test_a_locale_without_our_characters_is_no_error(evil: Cli, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    assert evil.process("show", env=env).returncode == 0
    ended = subprocess.run(evil.command("--json", "show"), check=True, capture_output=True, env=env, timeout=60)
    assert EVIL in json.loads(ended.stdout)["facts"][0]["content"]
