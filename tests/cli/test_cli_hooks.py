"""Hooks of coding agents: calls as their documentation describes them, and the settings that make an agent call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import Cli, answered
from exports import claude_code, codex, lines

from backstory import Backstory, MemoryHandle
from backstory.hooks import running
from backstory.hooks.hosts import GIVES, HOSTS, RECORDS, agent_of, project_of
from backstory.ledger.core.errors import LockTimeoutError

HOOKS = {
    "claude-code": (".claude", claude_code(), "s1", "It is pnpm now."),
    "codex": (".codex", codex(), "x1", "It is ruff now."),
}


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit of time on a busy machine, and no child."""
    monkeypatch.setattr(running, "_LIMIT_SECONDS", 60)
    monkeypatch.setattr(running, "_is_child", lambda: True)
    for name in ("CLAUDE_PROJECT_DIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(cli: Cli) -> Path:
    folder = cli.folder / "My_App"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def call(name: str, event: str, cwd: Path, **more: object) -> str:
    """What a host sends."""
    host = {"session_id": "s1", "transcript_path": None, "permission_mode": "default", "model": "m"}
    return json.dumps({**host, "cwd": str(cwd), "hook_event_name": event, **more})


def given(cli: Cli, name: str, event: str, cwd: Path, **more: object) -> str:
    """What a hook puts before the model."""
    said = cli.run("hook", name, piped=call(name, event, cwd, **more)).stdout
    if not said:
        return ""
    inner = json.loads(said)["hookSpecificOutput"]
    assert inner.keys() == {"hookEventName", "additionalContext"}
    assert inner["hookEventName"] == event
    return inner["additionalContext"]


def session(cli: Cli, name: str, rows: list[dict[str, object]] | None = None) -> Path:
    folder, sample, _, _ = HOOKS[name]
    path = cli.folder / folder / "sessions" / "s.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines(*(sample if rows is None else rows)), encoding="utf-8")
    return path


def log(cli: Cli) -> list[str]:
    path = cli.home / "hooks.log"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def turns(cli: Cli, thread: str, agent: str = "my-app") -> list[str]:
    return [turn["content"] for turn in cli.json("--agent", agent, "turns", thread)]


@pytest.mark.parametrize("name", HOOKS)
def test_a_session_gets_what_stands_and_each_prompt_what_it_brings_besides(cli: Cli, project: Path, name: str) -> None:
    with Backstory.open(cli.home, background=False) as bs:
        memory = bs.memory(scope="global", agent_name="my-app")
        for number in range(40):
            memory.add_fact(f"Rule {number}: {'the build is reproducible ' * 12}")
        memory.add_fact(f"Deploys go to Oslo on Fridays {'and on no other day ' * 15}", confidence=0.5)
    standing = given(cli, name, "SessionStart", project / "src", source="startup")
    found = given(cli, name, "UserPromptSubmit", project / "src", prompt="When do deploys go to Oslo?")
    assert "Rule" in standing
    assert "Oslo" not in standing
    assert "Deploys go to Oslo on Fridays" in found
    assert not {*standing.splitlines()[1:-1]} & {*found.splitlines()[1:-1]}
    assert log(cli) == []


@pytest.mark.parametrize("name", HOOKS)
def test_nothing_is_printed_where_memory_has_nothing(cli: Cli, project: Path, name: str) -> None:
    assert given(cli, name, "SessionStart", project, source="startup") == ""
    assert given(cli, name, "UserPromptSubmit", project, prompt="Hello") == ""
    assert log(cli) == []


@pytest.mark.parametrize("name", HOOKS)
def test_the_end_records_what_was_said_and_the_answers_once(cli: Cli, project: Path, name: str) -> None:
    _, sample, thread, answer = HOOKS[name]
    for event in RECORDS:
        path = session(cli, name)
        assert given(cli, name, event, project, transcript_path=str(path)) == ""
    assert len(turns(cli, thread)) == 2
    assert turns(cli, thread)[1] == answer
    later = [json.loads(json.dumps(row).replace(answer, "And later.").replace('"l6"', '"l10"')) for row in sample]
    rows = later[2:] if name == "claude-code" else [row for row in later if row["type"] != "session_meta"]
    session(cli, name, [*sample, *rows[-4:]])
    given(cli, name, "Stop", project, transcript_path=str(path))
    assert turns(cli, thread)[-1] == "And later."
    assert len(turns(cli, thread)) == 3
    assert log(cli) == []


def test_a_prompt_brings_facts_and_no_quotes_since_to_index_what_was_said_takes_time(cli: Cli, project: Path) -> None:
    given(cli, "codex", "Stop", project, transcript_path=str(session(cli, "codex")))
    assert given(cli, "codex", "UserPromptSubmit", project, prompt="Is it ruff?", session_id="other") == ""


def test_a_worktree_shares_the_memory_of_the_project_and_a_submodule_does_not(tmp_path: Path) -> None:
    def pointing(name: str, to: str) -> Path:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".git").write_text(f"gitdir: {to}\n")
        return tmp_path / name

    (tmp_path / "app/.git").mkdir(parents=True)
    assert project_of(pointing("wt/one", f"{tmp_path}/app/.git/worktrees/one")) == tmp_path / "app"
    assert project_of(pointing("wt/two", "../../app/.git/worktrees/two")) == tmp_path / "app"
    assert project_of(pointing("wt/three", f"{tmp_path}/bare.git/worktrees/three")) == tmp_path / "bare"
    assert project_of(pointing("wt/four", f"{tmp_path}/app/.bare/worktrees/four")) == tmp_path / "app"
    assert project_of(pointing("app/sub", "../.git/modules/sub")) == tmp_path / "app/sub"
    assert project_of(pointing("odd", "")) == tmp_path / "odd"
    assert project_of(tmp_path / "none/at/all") == tmp_path / "none/at/all"


@pytest.mark.parametrize(
    ("folder", "agent"),
    [("App", "app"), ("my_app.v2", "my-app-v2"), ("", None), ("ärger", "rger-"), ("项目", "project-"), ("x" * 65, "x")],
)
def test_the_name_of_a_project_is_the_name_of_an_agent(folder: str, agent: str | None) -> None:
    named = agent_of(Path("/srv", folder) if folder else Path("/"))
    if named is not None:
        assert agent is not None
        assert len(named) <= 64
        assert named == agent or (named.startswith(agent) and named != agent_of(Path("/srv", f"{folder}y")))
    else:
        assert agent is None


def test_a_session_that_moves_on_stays_with_the_project_that_it_began_in(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(project))
    given(cli, "claude-code", "Stop", cli.folder, transcript_path=str(session(cli, "claude-code")))
    assert len(turns(cli, "s1")) == 2


@pytest.mark.parametrize("where", ["other", "link", "linked folder", "dots", "suffix", "missing", "folder", "none"])
def test_a_session_file_is_read_only_below_the_folder_of_the_host_and_by_no_link(
    cli: Cli, project: Path, where: str
) -> None:
    good = session(cli, "claude-code")
    other = cli.folder / "elsewhere" / "s.jsonl"
    other.parent.mkdir()
    other.write_bytes(good.read_bytes())
    (good.parent / "link.jsonl").symlink_to(other)
    (good.parent / "linked").symlink_to(other.parent)
    (good.parent / "folder.jsonl").mkdir()
    (good.parent / "s.json").write_bytes(good.read_bytes())
    paths = {
        "other": other,
        "link": good.parent / "link.jsonl",
        "linked folder": good.parent / "linked" / "s.jsonl",
        "dots": f"{good.parent}/../../elsewhere/s.jsonl",
        "suffix": good.parent / "s.json",
        "missing": good.parent / "none.jsonl",
        "folder": good.parent / "folder.jsonl",
        "none": "",
    }
    given(cli, "claude-code", "Stop", project, transcript_path=str(paths[where]))
    (line,) = log(cli)
    assert " claude-code Stop: " in line
    assert not (cli.home / "agents").exists()


def test_the_folder_of_a_host_may_itself_be_a_link(cli: Cli, project: Path) -> None:
    (cli.folder / "dotfiles").mkdir()
    (cli.folder / ".claude").symlink_to(cli.folder / "dotfiles")
    path = session(cli, "claude-code")
    for stated in (path, path.resolve()):
        given(cli, "claude-code", "Stop", project, transcript_path=str(stated))
    assert len(turns(cli, "s1")) == 2
    assert log(cli) == []


@pytest.mark.parametrize("name", HOOKS)
def test_the_folder_of_a_host_may_be_moved(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = session(cli, name)
    (cli.folder / HOOKS[name][0]).rename(cli.folder / "moved")
    monkeypatch.setenv(HOSTS[name].variable, str(cli.folder / "moved"))
    given(cli, name, "Stop", project, transcript_path=str(cli.folder / "moved" / path.parent.name / path.name))
    assert len(turns(cli, HOOKS[name][2])) == 2


def test_the_process_that_the_host_waits_for_records_nothing(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_is_child", lambda: False)
    given(cli, "codex", "Stop", project, transcript_path=str(session(cli, "codex")))
    assert not cli.home.exists()


def test_a_session_is_left_out_where_it_began_where_it_is_now_and_with_its_project(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, secret = cli.folder / "tree", cli.folder / "secret"
    for folder in (tree, secret):
        folder.mkdir()
    (tree / ".git").write_text(f"gitdir: {project}/.git/worktrees/tree\n")
    cli.run("--agent", "my-app", "fact", "add", "Deploys on Fridays")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(tree))
    assert given(cli, "claude-code", "SessionStart", secret)
    for left_out in (tree, secret, project):
        monkeypatch.setenv("BACKSTORY_HOOKS_LEAVE_OUT", str(left_out))
        assert given(cli, "claude-code", "SessionStart", secret) == ""


def test_folders_are_left_out_with_all_below_them_also_by_a_link(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("--agent", "my-app", "fact", "add", "Deploys on Fridays")
    assert given(cli, "codex", "SessionStart", project)
    (cli.folder / "way").symlink_to(project)
    for left_out, cwd in ((project, project / "src"), ("~/My_App", project / "src"), (project, cli.folder / "way")):
        monkeypatch.setenv("BACKSTORY_HOOKS_LEAVE_OUT", f"/none,{left_out}")
        assert given(cli, "codex", "SessionStart", cwd) == ""
        given(cli, "codex", "Stop", cwd, transcript_path=str(session(cli, "codex")))
    monkeypatch.setenv("BACKSTORY_HOOKS_LEAVE_OUT", str(project / "sr"))
    assert given(cli, "codex", "SessionStart", project / "src")
    assert cli.json("--agent", "my-app", "status")["turns"] == 0
    assert log(cli) == []


def test_a_pause_holds_until_it_is_ended(cli: Cli, project: Path) -> None:
    cli.run("--agent", "my-app", "fact", "add", "Deploys on Fridays")
    cli.run("hook", "pause")
    assert given(cli, "codex", "SessionStart", project) == ""
    given(cli, "codex", "Stop", project, transcript_path=str(session(cli, "codex")))
    cli.run("hook", "resume")
    cli.run("hook", "resume")
    assert given(cli, "codex", "SessionStart", project)
    assert cli.json("--agent", "my-app", "status")["turns"] == 0


@pytest.mark.parametrize(
    "piped",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"hook_event_name":',
        b'{"hook_event_name": 3, "cwd": "/"}',
        b'{"hook_event_name": "SessionStart", "cwd": "here"}',
        b'{"hook_event_name": "Stop", "cwd": "/a\\u0000b"}',
        b'{"hook_event_name": "Stop", "cwd": "/' + b"x" * 10_000 + b'"}',
        b'{"hook_event_name": "Notification\\nx", "cwd": "/"}',
        b"[" * 100_000,
        b'{"hook_event_name": "Stop", "cwd": "/", "transcript_path": "/' + b"x" * 10_000 + b'.jsonl"}',
    ],
    ids=range(11),
)
def test_rubbish_is_one_line_in_the_log(cli: Cli, piped: bytes) -> None:
    result = cli.run("hook", "claude-code", piped=piped)
    assert (result.stdout, result.stderr) == ("", "")
    (line,) = log(cli)
    assert len(line) <= 400
    assert not (cli.home / "agents").exists()


def test_of_a_session_file_that_was_cut_off_what_is_whole_is_recorded(cli: Cli, project: Path) -> None:
    path = session(cli, "claude-code")
    path.write_bytes(path.read_bytes()[:-40] + b'\n{"type": "us')
    given(cli, "claude-code", "Stop", project, transcript_path=str(path))
    assert len(turns(cli, "s1")) == 2
    path.write_bytes(b'{"type": "us')
    given(cli, "claude-code", "Stop", project, transcript_path=str(path))
    assert len(log(cli)) == 1


def test_ids_of_any_length_are_recorded_once(cli: Cli, project: Path) -> None:
    rows = [{**row, "sessionId": "s" * 10_000, "uuid": f"{row.get('uuid')}{'u' * 10_000}"} for row in claude_code()]
    path = session(cli, "claude-code", rows)
    for _ in range(2):
        given(cli, "claude-code", "Stop", project, transcript_path=str(path), session_id="s" * 10_000)
    assert cli.json("--agent", "my-app", "status")["turns"] == 2
    assert log(cli) == []


def test_a_locked_home_and_one_that_cannot_be_written_stop_no_host(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object, **__: object) -> None:
        raise LockTimeoutError("another process writes")

    path = session(cli, "codex")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryHandle, "import_file", locked)
        given(cli, "codex", "Stop", project, transcript_path=str(path))
        assert log(cli)[0].endswith("codex Stop: another process writes")
    (cli.home / "hooks.log").unlink()
    cli.home.rmdir()
    cli.home.write_text("a file stands here")
    for event in ("SessionStart", "Stop"):
        assert given(cli, "codex", event, project, transcript_path=str(path)) == ""


def test_an_error_of_its_own_quotes_nothing_that_was_said(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken(_: object, said: str) -> None:
        raise ValueError(said)

    monkeypatch.setattr(MemoryHandle, "context", broken)
    assert given(cli, "codex", "UserPromptSubmit", project, prompt="my secret") == ""
    assert log(cli)[0].endswith("unexpected ValueError")


def test_the_log_is_bounded_and_follows_no_link(cli: Cli) -> None:
    cli.home.mkdir()
    (cli.home / "hooks.log").write_bytes(b"x" * (1 << 20) + b"\n")
    cli.run("hook", "codex", piped="")
    assert len(log(cli)) == 1
    (cli.home / "hooks.log").unlink()
    (cli.folder / "other").write_text("")
    (cli.home / "hooks.log").symlink_to(cli.folder / "other")
    cli.run("hook", "codex", piped="")
    assert (cli.folder / "other").read_text() == ""


def test_what_takes_too_long_is_given_up(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    running._Hook("codex", {"--home": str(cli.home)}).give_up()
    assert left == [0]
    assert "longer than 300 ms" in log(cli)[0]


@pytest.mark.process
def test_a_process_answers_in_time_or_says_nothing_and_records_behind_the_hosts_back(cli: Cli, project: Path) -> None:
    cli.run("--agent", "my-app", "fact", "add", "Deploys on Fridays")
    result = cli.process("hook", "codex", input=call("codex", "SessionStart", project))
    assert (result.returncode, result.stderr) == (0, "")
    late = [line for line in log(cli) if "longer than 300 ms" in line]
    assert "Deploys on Fridays" in result.stdout or (result.stdout == "" and len(late) == 1)
    # The child that records holds the pipe until it ends.
    told, held = os.pipe()
    command = [sys.executable, "-m", "backstory.cli", "--home", str(cli.home), "hook", "codex"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[held], text=True
    ) as process:
        os.close(held)
        path = session(cli, "codex")
        said, _ = process.communicate(call("codex", "Stop", project, transcript_path=str(path)), timeout=60)
    assert (process.returncode, said) == (0, "")
    assert os.read(told, 1) == b""
    os.close(told)
    assert len(turns(cli, "x1")) == 2


# The settings of a host.


def settings(cli: Cli, name: str) -> Path:
    return cli.folder / HOOKS[name][0] / HOSTS[name].settings


@pytest.mark.parametrize("name", HOOKS)
def test_what_is_installed_is_a_call_of_each_event_and_goes_without_a_trace(cli: Cli, name: str) -> None:
    cli.run("--user", "ada", "hook", "install", name, "--yes")
    once = settings(cli, name).read_text()
    hooks = json.loads(once)["hooks"]
    assert tuple(hooks) == GIVES + RECORDS
    for event, groups in hooks.items():
        ((entry,),) = [group["hooks"] for group in groups]
        assert (entry["type"], entry["timeout"]) == ("command", 3 if event == "SessionEnd" else 5)
        assert entry["command"].endswith(f"--home {cli.home} --user ada hook {name}")
        words = entry["command"].split(" ")
        at = words.index("--home")
        assert running.called(words[at:]) == (name, {"--home": str(cli.home), "--user": "ada"})
    assert "needs no change" in cli.run("--user", "ada", "hook", "install", name, "--yes").stdout
    assert settings(cli, name).read_text() == once
    cli.run("hook", "install", name, "--uninstall", "--yes")
    assert json.loads(settings(cli, name).read_text()) == {}


def test_the_page_shows_how_many_lines_are_added(cli: Cli) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "hooks.md").read_text("utf-8")
    (shown,) = [line.strip() for line in page.splitlines() if line.strip().startswith("@@")]
    assert shown in cli.run("hook", "install", "claude-code", "--yes").output.splitlines()


def test_the_settings_of_others_stay(cli: Cli) -> None:
    path = settings(cli, "claude-code")
    path.parent.mkdir()
    theirs = {"hooks": [{"type": "command", "command": "backstory-lint hook"}]}
    before = {"model": "ü", "hooks": {"Stop": [theirs, {}, 3], "PreToolUse": []}, "env": {"A": "1"}}
    path.write_text(json.dumps(before))
    path.chmod(0o640)
    cli.run("hook", "install", "claude-code", "--yes")
    after = json.loads(path.read_text())
    assert after["hooks"]["Stop"][0] == theirs
    assert len(after["hooks"]["Stop"]) == 4
    assert path.stat().st_mode & 0o777 == 0o640
    cli.run("hook", "install", "claude-code", "--uninstall", "--yes")
    assert json.loads(path.read_text()) == before
    assert "ü" in path.read_text()
    path.write_text(json.dumps(before))
    assert "needs no change" in cli.run("hook", "install", "claude-code", "--uninstall").stdout
    assert path.read_text() == json.dumps(before)


def test_a_settings_file_that_is_a_link_stays_one(cli: Cli) -> None:
    path = settings(cli, "claude-code")
    path.parent.mkdir()
    (cli.folder / "dotfiles.json").write_text("{}")
    path.symlink_to(cli.folder / "dotfiles.json")
    cli.run("hook", "install", "claude-code", "--yes")
    assert path.is_symlink()
    assert "SessionStart" in (cli.folder / "dotfiles.json").read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": 3}}'])
def test_settings_that_cannot_be_read_are_left_as_they_are(cli: Cli, text: str) -> None:
    path = settings(cli, "codex")
    path.parent.mkdir()
    path.write_text(text)
    assert str(path) in cli.error("hook", "install", "codex", "--yes", code=2)
    assert path.read_text() == text


def test_an_unknown_agent_is_refused(cli: Cli) -> None:
    assert "name one of claude-code, codex" in cli.error("hook", "install", "vim", "--yes", code=2)


@pytest.mark.parametrize("named", [("--agent", "other", "hook", "codex"), ("hook", "codex", "--agent", "other")])
def test_an_agent_that_is_named_stands_for_that_of_the_project(cli: Cli, project: Path, named: tuple[str, ...]) -> None:
    path = session(cli, "codex")
    cli.run(*named, piped=call("codex", "Stop", project, transcript_path=str(path)))
    assert len(turns(cli, HOOKS["codex"][2], "other")) == 2


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_the_difference_is_shown_before_it_is_asked_for(cli: Cli, answer: bytes, code: int) -> None:
    exit_code, said = answered(cli, answer, "hook", "install", "codex")
    assert exit_code == code
    assert "hook codex" in said
    assert settings(cli, "codex").exists() is (code == 0)


def test_only_the_plain_call_of_a_hook_is_answered_before_all_verbs_are_loaded() -> None:
    assert running.called(["hook", "codex"]) == ("codex", {})
    assert running.called(["--home", "hook", "hook", "codex"]) == ("codex", {"--home": "hook"})
    for words in ([], ["hook"], ["hook", "vim"], ["hook", "install", "codex"], ["--json", "hook", "codex"]):
        assert running.called(words) is None
    for words in (["--home", "/a", "--home", "/b", "hook", "codex"], ["--debug", "x", "hook", "codex"]):
        assert running.called(words) is None
