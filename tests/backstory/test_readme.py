"""The README's example does what it says."""

from __future__ import annotations

import re
from pathlib import Path

from extraction.misbehaving import MisbehavingServer, completion
from fakes import reply

README = Path(__file__).parents[2] / "README.md"


def test_the_example_learns_from_the_conversation_and_shows_the_words(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    with MisbehavingServer(completion(reply("Ada moved to Bergen"))) as server:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        exec(compile(example, "README.md", "exec"), {})  # noqa: S102 it is our own page
    assert capsys.readouterr().out.startswith("Ada moved to Bergen ['I moved to Bergen last week.'")
    assert (tmp_path / ".backstory" / "users" / "ada" / "memory.json").exists()
