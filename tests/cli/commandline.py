"""A command line to test on, and what is told to it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from backstory.cli.app import app


class Cli:
    """The command line on one home, in this process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home.parent

    def run(self, *words: object, code: int = 0, piped: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, ["--home", str(self.home), *map(str, words)], input=piped)
        assert result.exit_code == code, (words, result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.output
        return result

    def json(self, *words: object, code: int = 0, piped: str | bytes | None = None):
        out = self.run("--json", *words, code=code, piped=piped).stdout
        assert out.endswith("\n")
        assert out.count("\n") == 1, out
        return json.loads(out)

    def error(self, *words: object, code: int) -> str:
        """Run what must fail; returns the one line it says."""
        result = self.run(*words, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("backstory: ")
        assert result.stderr.endswith("\n")
        assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr

    def file(self, name: str, *rows: object) -> Path:
        path = self.folder / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return path

    def process(self, *words: object, **more: object) -> subprocess.CompletedProcess[str]:
        """Run it as a process of its own."""
        return subprocess.run(self.command(*words), check=False, capture_output=True, text=True, timeout=60, **more)

    @contextmanager
    def running(self, *words: object) -> Iterator[subprocess.Popen[str]]:
        """Start it as a process of its own, which ends with the block, or after a minute."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self.command(*words), stdout=pipe, stderr=pipe, text=True) as process:
            deadline = threading.Timer(60, process.kill)
            deadline.start()
            try:
                yield process
            finally:
                process.kill()
                deadline.cancel()
                deadline.join()

    def command(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "backstory.cli", "--home", str(self.home), *map(str, words)]


def said(thread: str, message_id: str, role: str, content: str, **more: object) -> dict[str, object]:
    return {"thread_id": thread, "id": message_id, "role": role, "content": content, **more}


def fact(content: str, confidence: float = 0.9, **more: object) -> dict[str, object]:
    return {"content": content, "category": "knowledge", "confidence": confidence, **more}


def reply(thread: str, *facts: dict[str, object], **more: object) -> dict[str, object]:
    return {"thread_id": thread, "reply": {"newFacts": list(facts), **more}}


def answered(cli: Cli, answer: bytes, *words: object) -> tuple[int, str]:
    """Run it on a terminal and answer its question."""
    master, slave = pty.openpty()
    with subprocess.Popen(cli.command(*words), stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(slave)
        os.write(master, answer)
        out, err = process.communicate(timeout=60)
    os.close(master)
    return process.returncode, (out + err).decode()
