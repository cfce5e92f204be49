"""The verbs that prove what a log says: a key is made, a head is signed, a forged log is found; secrets stay unseen."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from commandline import Cli

from backstory.witness.signing import open_note

NAME = "example.com/ada"


def made(cli: Cli) -> tuple[Path, Path, Path]:
    """A key pair and a note in files, as a user makes them."""
    private, public, note = (cli.folder / name for name in ("ada.key", "ada.pub", "head.note"))
    public.write_text(cli.run("keygen", NAME, private).stdout)
    note.write_bytes(cli.run("head", "--sign", private).stdout_bytes)
    return private, public, note


def test_a_head_is_signed_and_verified_from_files(story: Cli) -> None:
    _, public, note = made(story)
    assert "both hash chains are intact" in story.run("verify", "--note", note, "--key", public).stdout
    assert story.json("verify", "--note", note, "--key", public.read_text().strip())["ok"]
    assert story.json("verify", "--note", "-", "--key", public, piped=note.read_bytes())["ok"]
    text = open_note(note.read_text(encoding="utf-8"), public.read_text())
    assert text is not None
    assert text.startswith("backstory/global\n3\n")


def test_a_signed_head_has_the_keys_of_a_head_and_the_note(story: Cli) -> None:
    private, _, note = made(story)
    signed = story.json("head", "--sign", private)
    assert signed == {**story.json("head"), "note": note.read_text(encoding="utf-8")}
    assert set(story.json("head")) == {"seq", "hash"}


def test_a_note_is_utf_8_whatever_the_locale(story: Cli) -> None:
    private, _, note = made(story)
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    signed = story.process("head", "--sign", private, env=env, encoding="utf-8")
    assert (signed.returncode, signed.stdout) == (0, note.read_text(encoding="utf-8"))


def test_a_key_is_private_new_and_not_printed(cli: Cli) -> None:
    file = cli.folder / "ada.key"
    told = cli.json("keygen", NAME, file)
    assert told == {"key": told["key"], "file": str(file)}
    assert told["key"].startswith(f"{NAME}+")
    assert file.read_text().startswith(f"PRIVATE+KEY+{NAME}+")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_text()
    assert "never overwritten" in cli.error("keygen", NAME, file, code=2)
    assert file.read_text() == before
    assert "cannot write the key" in cli.error("keygen", NAME, cli.folder / "no" / "such", code=3)
    assert "example.com/ada" in cli.error("keygen", "a b", cli.folder / "other.key", code=2)
    assert not (cli.folder / "other.key").exists()


def test_a_changed_note_and_a_cut_log_end_with_exit_code_1(story: Cli) -> None:
    _, public, note = made(story)
    good = note.read_text(encoding="utf-8")
    note.write_text(good.replace("\n3\n", "\n2\n"), encoding="utf-8")
    found = story.json("verify", "--note", note, "--key", public, code=1)
    assert [problem["kind"] for problem in found["problems"]] == ["bad_signature"]
    note.write_text(good, encoding="utf-8")
    log = story.home / "ledger.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    for name in ("index.sqlite", "memory.json"):
        (story.home / name).unlink(missing_ok=True)
    assert story.json("verify")["ok"]
    found = story.json("verify", "--note", note, "--key", public, code=1)
    assert [problem["kind"] for problem in found["problems"]] == ["head_not_found"]


def test_wrong_use_is_told_in_a_line(story: Cli) -> None:
    private, public, note = made(story)
    assert "belong together" in story.error("verify", "--note", note, code=2)
    assert "belong together" in story.error("verify", "--key", public, code=2)
    assert "leave out --all" in story.error("verify", "--all", "--note", note, "--key", public, code=2)
    assert "cannot read" in story.error("verify", "--note", story.folder / "no", "--key", public, code=2)
    assert "cannot read" in story.error("head", "--sign", story.folder / "no", code=2)
    assert "keygen" in story.error("head", "--sign", public, code=2)
    other = story.run("--user", "bob", "verify", "--note", note, "--key", public, code=2)
    assert "backstory/global" in other.stderr
    # Whoever mixes the two up must not find the secret in a log.
    secret = private.read_text().strip()[-20:]
    for key in (private, private.read_text()):
        told = story.error("verify", "--note", note, "--key", key, code=2)
        assert "private key" in told
        assert secret[:10] not in told
    (story.folder / "bad").write_bytes(b"\xff")
    assert "UTF-8" in story.error("verify", "--note", story.folder / "bad", "--key", public, code=2)


def test_verify_says_what_it_could_not_check(cli: Cli) -> None:
    config = cli.file("c.yaml")
    config.write_text("memory:\n  witness: 'command:true SECRET'\n")
    cli.run("--config", config, "fact", "add", "runs")
    assert "note: heads are sent to command:true" in cli.run("--config", config, "verify").stdout
    assert len(cli.json("--config", config, "verify")["notes"]) == 1
    assert "notes" not in cli.json("verify")
    lines = cli.run("--config", config, "verify", "--all").stdout.splitlines()
    assert len([line for line in lines if line.startswith("note: ")]) == 1
    assert json.loads(cli.run("--json", "--config", config, "config").stdout)["witness"]["value"] == "command:true …"
    assert cli.json("config")["witness"] == {"value": None, "from": "default"}


def test_an_outage_is_shown_by_status(cli: Cli) -> None:
    config = cli.file("c.yaml")
    config.write_text("memory:\n  witness: command:false\n")
    added = cli.run("--config", config, "fact", "add", "runs")
    assert "command:false ended with exit code 1" in added.stderr
    fault = cli.json("status")["faults"][0]
    assert (fault["doing"], fault["kind"]) == ("witness", "ExitCode")
