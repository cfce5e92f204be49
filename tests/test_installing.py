"""The wheel in new environments: alone and with each extra, on every Python that it says it runs on.

It asks the package index, so only `make torture` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

pytestmark = [pytest.mark.torture, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[1]
IMPORTS = {
    "": "import backstory",
    "langchain": "from backstory.langchain import *",
    "llm": "import llm; llm.get_model('memory/gpt-4o-mini'); llm.get_async_model('memory/gpt-4o-mini')",
    "mcp": "import backstory.mcp.server",
    "nats": "import backstory.ledger.engines.nats",
    "openai-agents": "from backstory.openai_agents import *",
    "otel": "import backstory.otel",
    "postgres": "import backstory.ledger.engines.postgres, psycopg_pool",
    "pydantic-ai": "from backstory.pydantic_ai import *",
    "redis": "import backstory, redis",
    "server": "import backstory.http.app",
    "signing": "import backstory, cryptography",
    "testing": "import backstory.testing",
    "tokens": "import backstory, bpe_openai",
    "vectors": "import backstory, faiss",
}
"""What an extra is for, by what then can be imported; the empty one is the wheel alone."""


def pythons() -> list[str]:
    """The interpreters of this machine among those that the project names."""
    found = []
    for minor in range(11, 14):
        path = sys.executable if sys.version_info[1] == minor else shutil.which(f"python3.{minor}")
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(path)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*project["optional-dependencies"]} - {"dev"} == {*IMPORTS} - {""}


@pytest.mark.parametrize("extra", IMPORTS)
@pytest.mark.parametrize("python", pythons())
def test_the_wheel_installs_and_does_what_its_extra_is_for(
    python: str, extra: str, wheel: Path, tmp_path: Path
) -> None:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSTORY_"))}
    run = {"cwd": tmp_path, "env": {**bare, "HOME": str(tmp_path)}, "capture_output": True, "text": True}
    subprocess.run([python, "-m", "venv", "new"], check=True, **run)
    wanted = f"backstory[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    installed = subprocess.run(["new/bin/python", "-m", "pip", "install", "-q", wanted], check=False, **run)
    assert installed.returncode == 0, installed.stderr
    imported = subprocess.run(["new/bin/python", "-c", IMPORTS[extra]], check=False, **run)
    assert imported.returncode == 0, imported.stderr
    if not extra:
        played = subprocess.run(["new/bin/backstory", "demo"], check=False, **run)
        assert played.returncode == 0, played.stderr
