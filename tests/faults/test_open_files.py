"""A process that has run out of open files: each verb says so in an error of our tree, and nothing is lost by it.

Most modules are not loaded yet in the child, so that to load them fails as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import exchange, open_home, reply

from backstory.ledger.extraction.models.recorded import RecordedReply

pytest.importorskip("resource", reason="this system has no limits of that kind")

CHILD = """
import json, os, resource, sys
from backstory import Backstory
from backstory.ledger.core.errors import BackstoryError, UnavailableError

home = Backstory.open(sys.argv[1], background=False)
memory = home.memory("ada")
SAID = [{"role": "user", "content": "I like milk"}, {"role": "assistant", "content": "Noted"}]
VERBS = {
    "open": lambda: Backstory.open(sys.argv[1], background=False).close(),
    "scopes": lambda: home.scopes(),
    "facts": lambda: memory.facts(),
    "document": lambda: memory.document(),
    "document at": lambda: memory.document(at=2),
    "context": lambda: memory.context("tea"),
    "search": lambda: memory.search("tea"),
    "search turns": lambda: memory.search("tea", within="turns"),
    "log": lambda: memory.log(),
    "why": lambda: memory.why("fact_2_0"),
    "why not": lambda: memory.why_not("tea"),
    "diff": lambda: memory.diff(1, 2),
    "status": lambda: memory.status(),
    "verify": lambda: memory.verify(),
    "head": lambda: memory.head(),
    "turns": lambda: memory.turns.count(),
    "what if": lambda: memory.what_if(max_facts=10),
    "revert": lambda: memory.revert("HEAD", dry_run=True),
    "graph": lambda: memory.graph(),
    "policy": lambda: memory.policy(),
    "record": lambda: memory.record("t2", SAID),
    "add fact": lambda: memory.add_fact("rows a boat"),
    "extract": lambda: memory.extract([]),
    "import": lambda: memory.import_document({"facts": [{"content": "owns a cat", "confidence": 0.9}]}),
}
if sys.argv[2] == "read":
    memory.facts()
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def use_up(left):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(left):
        os.close(held.pop())
    return held


raw, refused = {}, []
for left in (0, 1):
    for name, verb in VERBS.items():
        held = use_up(left)
        try:
            verb()
        except UnavailableError:
            refused.append(name)
        except BackstoryError as error:
            # What was added before is a duplicate.
            if name not in ("add fact", "import"):
                raw[name] = repr(error)
        except BaseException as error:
            raw[name] = repr(error)
        finally:
            for descriptor in held:
                os.close(descriptor)
after = {}
for name, verb in VERBS.items():
    try:
        verb()
    except BackstoryError as error:
        if name not in ("add fact", "import"):
            after[name] = repr(error)
    except BaseException as error:
        after[name] = repr(error)
report = {"raw": raw, "refused": len(refused), "after": after, "ok": memory.verify().ok}
report["contents"] = sorted(fact.content for fact in memory.facts())
home.close()
print(json.dumps(report))
"""


@pytest.mark.slow
@pytest.mark.parametrize("state", ["fresh", "read"])
def test_each_verb_without_open_files_is_an_error_of_ours_and_loses_nothing(tmp_path: Path, state: str) -> None:
    home = tmp_path / "home"
    with open_home(home) as made:
        memory = made.memory("ada")
        memory.record("t1", exchange("tea"))
        memory.extract([RecordedReply("t1", reply("Likes tea"))])
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(home), state], check=False, capture_output=True, text=True, timeout=120
    )
    assert child.returncode == 0, child.stderr
    report = json.loads(child.stdout)
    assert report["raw"] == {}
    assert report["refused"] > 10
    assert report["after"] == {}
    assert report["ok"]
    assert report["contents"] == ["Likes tea", "owns a cat", "rows a boat"]
    with open_home(home) as again:
        assert again.memory("ada").verify().ok


FEW = """
import os, resource, sys
from backstory import Backstory
from backstory.ledger.core.errors import StoreError

with Backstory.open(sys.argv[1], background=False) as home:
    memory = home.memory("ada")
    memory.facts()
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(8):
        os.close(held.pop())
    try:
        memory.search("tea")
    except StoreError:
        assert "numpy" not in sys.modules
        print("refused")
    for descriptor in held:
        os.close(descriptor)
    print([hit.content for hit in memory.search("tea")])
"""


def test_what_works_no_more_once_it_was_loaded_by_half_is_not_begun(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_home(home) as made:
        made.memory("ada").add_fact("Likes tea")
    child = subprocess.run(
        [sys.executable, "-c", FEW, str(home)], check=False, capture_output=True, text=True, timeout=120
    )
    assert (child.stdout, child.stderr) == ("refused\n['Likes tea']\n", "")
