"""Whatever of ours a host loads first loads by itself; or an older DeerFlow would take its own files without a word."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
DOORS = (
    "backstory",
    "backstory.home",
    "backstory.cli",
    "backstory.deerflow",
    "backstory.deerflow.manager",
    "backstory.deerflow.storage",
    "backstory.outbox",
    "backstory.outbox.faults",
    "backstory.langchain",
    "backstory.operations.document_access",
    "backstory.ledger.messages",
    "backstory.projections.document.document",
)
FOREIGN = ("langchain.agents", "msgspec", "numpy", "openai", "pydantic_settings", "rich.table", "typer")
"""Loaded once before: they know nothing of us, and take the most time."""
SCRIPT = """
import importlib, os, sys, traceback

foreign, standin, older, *names = sys.argv[1:]
for name in foreign.split():
    importlib.import_module(name)
assert not {"backstory", "ledger", "projections", "deerflow"} & set(sys.modules)
failed = []
for name in names:
    child = os.fork()
    if child == 0:
        sys.path.insert(0, older if name == "backstory.deerflow.storage" else standin)
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
print(" ".join(failed))
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork: each import would need a process of its own")


def failing(tmp_path: Path, *names: str) -> tuple[str, str]:
    """Load each module in an interpreter that has loaded none of ours; which fail, and what is said."""
    contract = tmp_path / "deerflow" / "agents" / "memory"
    contract.mkdir(parents=True)
    for folder in (contract, *contract.parents[:2]):
        (folder / "__init__.py").touch()
    (contract / "storage.py").write_text("class MemoryStorage:\n    pass\n", encoding="utf-8")
    foreign = " ".join(name for name in FOREIGN if find_spec(name.partition(".")[0]) is not None)
    command = [sys.executable, "-c", SCRIPT, foreign, str(TESTS / "standin"), str(tmp_path), *names]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=110, check=True)
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_each_door_opens_first_in_a_fresh_interpreter_and_one_that_cannot_is_noticed(tmp_path):
    failed, told = failing(tmp_path, *DOORS, "backstory.no_such_door")
    assert failed == "backstory.no_such_door", told
    assert "No module named 'backstory.no_such_door'" in told
    assert told.count("Traceback") == 1, told


@pytest.mark.torture
def test_so_does_every_module(tmp_path):
    names = [
        module.name
        for module in pkgutil.walk_packages([str(TESTS.parent / "backstory")], "backstory.")
        if not module.name.endswith("__main__")
    ]
    assert {
        "backstory.ledger.log.writer",
        "backstory.projections.search.query",
        "backstory.operations.document_access",
    } <= set(names)
    assert failing(tmp_path, *names) == ("", "")
