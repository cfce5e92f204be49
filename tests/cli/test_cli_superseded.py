"""`turns --superseded`, `turns --skipped`, `turns restore` and `record --replace`."""

from __future__ import annotations

from commandline import Cli

TALK = [
    {"role": "user", "content": "I live in Oslo with Bo"},
    {"role": "assistant", "content": "Oslo is a fine place to live"},
    {"role": "user", "content": "What is the capital of Norway?"},
    {"role": "assistant", "content": "It is Bergen, as you know"},
]


def test_turns_on_the_command_line(cli: Cli) -> None:
    file = cli.file("talk", *TALK)
    assert cli.json("record", file, "--thread", "t")["turns"] == 4
    less = cli.file("less", *TALK[:2])
    told = cli.run("record", less, "--thread", "t", "--replace").stdout
    assert "2 turns superseded" in told
    assert [turn["id"] for turn in cli.json("turns", "t")] == ["t1", "t2"]
    gone = cli.json("turns", "t", "--superseded")
    assert [(turn["id"], turn["n"], turn["reason"], turn["proven"]) for turn in gone] == [
        ("t3", 3, "replaced", True),
        ("t4", 4, "replaced", True),
    ]
    assert "replaced" in cli.run("turns", "t", "--superseded").stdout
    assert cli.json("turns", "restore", "t", code=1) == {"thread": "t", "restored": []}
    assert [turn["n"] for turn in cli.json("turns", "restore", "t", "t4")["restored"]] == [4]
    assert "1 turn of t restored: t3" in cli.run("turns", "restore", "t", "t3").stdout
    assert [turn["id"] for turn in cli.json("turns", "t")] == ["t1", "t2", "t3", "t4"]
    assert cli.run("turns", "restore", "t", "t3", code=1).stderr.startswith("backstory: t3: not among")
    assert "one thread" in cli.run("turns", "t", "t1", code=2).stderr
    assert "exclude each other" in cli.run("record", file, "--append", "--replace", code=2).stderr


def test_a_thread_may_be_called_restore(cli: Cli) -> None:
    cli.json("record", cli.file("talk", *TALK), "--thread", "restore")
    assert len(cli.json("turns", "restore")) == 4


def test_what_a_harness_had_put_before_the_words_on_the_command_line(cli: Cli) -> None:
    """As the proxy notes it with a turn."""
    noted = {"role": "user", "content": "Where am I?", "metadata": {"skipped": {"agents-md": 1200}}}
    cli.json("record", cli.file("talk", noted, TALK[1]), "--thread", "t")
    [skipped] = cli.json("turns", "t", "--skipped")
    assert (skipped["turn"], skipped["wrapper"], skipped["characters"]) == ("t1", "agents-md", 1200)
    assert "agents-md  1,200 characters, before turn t1" in cli.run("turns", "t", "--skipped").stdout
    cli.json("record", cli.file("plain", *TALK), "--thread", "plain")
    assert cli.json("turns", "plain", "--skipped") == []
