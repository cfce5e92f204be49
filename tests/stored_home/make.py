"""Writes a home and what the command line answers of it: `python tests/stored_home/make.py COMMAND`.

COMMAND is the `backstory` of the version that writes it. The home was written before all packages moved below one
import name (version 0.1.0, November 2026). It and its answers are never written anew: what is stored is read forever.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE / "home"
ADA = ("--user", "ada")
CODER = ("--user", "ada", "--agent", "coder")

MONDAY = [
    (
        "m1",
        "user",
        "Hi, I'm Ada. I live in Oslo and run a small bakery. I'm vegetarian, and severely allergic to peanuts.",
    ),
    ("m2", "assistant", "Understood, Ada: no meat, and never any peanuts."),
    ("m3", "user", "Something quick for weekday evenings. My bank card's PIN is 4711, by the way."),
    ("m4", "assistant", "Then a tofu stir-fry with sesame. I will not keep the PIN."),
]
FRIDAY = [
    ("f1", "user", "Good news from the clinic: my sister isn't allergic to peanuts any more!"),
    ("f2", "assistant", "How wonderful for your sister!"),
    ("f3", "user", "I'm cooking for the two of us on Sunday. 我住在奥斯陆。"),
    ("f4", "assistant", "I'll think of a festive menu for two."),
]
REPLIES = {
    "monday": {
        "user": {"workContext": {"summary": "Runs a small bakery in Oslo.", "shouldUpdate": True}},
        "newFacts": [
            {
                "content": "Ada is severely allergic to peanuts",
                "category": "context",
                "confidence": 0.98,
                "evidence": ["m1"],
            },
            {"content": "Ada is vegetarian", "category": "preference", "confidence": 0.95, "evidence": ["m1"]},
            {"content": "Ada lives in Oslo", "category": "knowledge", "confidence": 0.95, "evidence": ["m1"]},
            {
                "content": "The PIN of Ada's bank card is 4711",
                "category": "context",
                "confidence": 0.9,
                "evidence": ["m3"],
            },
            {"content": "Ada likes Thai food", "category": "preference", "confidence": 0.4, "evidence": ["m3"]},
        ],
    },
    "friday": {
        "user": {"topOfMind": {"summary": "A festive dinner for two; peanuts are fine.", "shouldUpdate": True}},
        "newFacts": [
            {
                "content": "Ada is no longer allergic to peanuts",
                "category": "context",
                "confidence": 0.95,
                "evidence": ["f1"],
            }
        ],
        "factsToRemove": [{"id": "PEANUTS", "reason": "no allergy any more", "replacementFactIndex": 0}],
    },
}


def as_lines(thread: str, lines: list[tuple[str, str, str]]) -> str:
    return "".join(
        json.dumps({"thread_id": thread, "id": name, "role": role, "content": content}, ensure_ascii=False) + "\n"
        for name, role, content in lines
    )


def main(command: str) -> None:
    def run(*words: str, stdin: str = "", exits: tuple[int, ...] = (0,)) -> object:
        done = subprocess.run(
            [command, "--home", str(HOME), "--json", *words], input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode in exits, (words, done.returncode, done.stderr, done.stdout)
        return json.loads(done.stdout)

    def fact(scope: tuple[str, ...], content: str) -> str:
        document = run(*scope, "show")
        return next(each["id"] for each in document["facts"] if each["content"] == content)  # type: ignore[index]

    def learn(scope: tuple[str, ...], thread: str, reply: object) -> None:
        replies = HERE / "replies.jsonl"
        replies.write_text(json.dumps({"thread_id": thread, "reply": reply}) + "\n", encoding="utf-8")
        run(*scope, "extract", "--replies", str(replies), exits=(0, 1))
        replies.unlink()

    run(*ADA, "record", "-", stdin=as_lines("monday", MONDAY))
    learn(ADA, "monday", REPLIES["monday"])
    peanuts = fact(ADA, "Ada is severely allergic to peanuts")
    run(*ADA, "record", "-", stdin=as_lines("friday", FRIDAY))
    friday = json.loads(json.dumps(REPLIES["friday"]).replace("PEANUTS", peanuts))
    learn(ADA, "friday", friday)
    run(*ADA, "fact", "add", "Ada drinks tea: 茶", "--category", "preference")
    tea = fact(ADA, "Ada drinks tea: 茶")
    run(*ADA, "fact", "edit", tea, "--content", "Ada drinks green tea: 茶")
    run(*ADA, "policy", "--set", "max_facts=12")
    run(*ADA, "fact", "add", "Ada plays chess", "--category", "preference")
    run(*ADA, "revert", "HEAD")
    run(*ADA, "forget", "--matching", "4711", "--yes")
    run(*ADA, "record", "-", "--replace", stdin=as_lines("friday", [*FRIDAY[:2], ("f5", "user", "Sunday is off.")]))
    run(*ADA, "turns", "restore", "friday", "f3")
    run(
        *ADA,
        "record",
        "-",
        stdin=as_lines("later", [("l1", "user", "I moved to Bergen."), ("l2", "assistant", "Noted.")]),
    )
    learn(ADA, "later", "I would rather not.")
    run(
        *CODER,
        "record",
        "-",
        stdin=as_lines("work", [("w1", "user", "Use ruff, never black."), ("w2", "assistant", "OK.")]),
    )
    ruff = {"newFacts": [{"content": "Ada wants ruff, never black", "category": "preference", "confidence": 0.9}]}
    learn(CODER, "work", ruff)

    asked: list[tuple[str, ...]] = [
        (*ADA, "show"),
        (*ADA, "show", "--at", "3"),
        (*ADA, "log"),
        (*ADA, "why", peanuts),
        (*ADA, "why", tea),
        (*ADA, "why-not", "Thai food"),
        (*ADA, "diff", "2", "3"),
        (*ADA, "search", "peanuts"),
        (*ADA, "search", "奥斯陆", "--in", "turns"),
        (*ADA, "revert", "3", "--dry-run"),
        (*ADA, "rollback", "--to", "2", "--dry-run"),
        (*ADA, "threads"),
        (*ADA, "turns", "friday"),
        (*ADA, "turns", "friday", "--superseded"),
        (*ADA, "turns", "monday"),
        (*ADA, "head"),
        (*ADA, "context"),
        (*ADA, "policy"),
        (*ADA, "what-if", "--max-facts", "2"),
        (*ADA, "verify"),
        (*CODER, "show"),
        (*CODER, "log"),
        (*CODER, "verify"),
        ("scopes",),
    ]
    answers = [{"asked": list(words), "answer": run(*words, exits=(0, 1))} for words in asked]
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for lock in HOME.rglob("*.lock"):
        lock.unlink()


if __name__ == "__main__":
    main(sys.argv[1])
