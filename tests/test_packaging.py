"""The distribution: one import name, every file once, and no quarrel with a stranger's `ledger.py`."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ledger", "projections")


def sources() -> set[str]:
    """Every file of the package, as it is named inside `backstory`."""
    files = {
        path.relative_to(ROOT).as_posix(): "backstory/" + path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    own = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "backstory").rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        # Python 3.13 follows links here, earlier ones do not.
        and path.relative_to(ROOT / "backstory").parts[0] not in FOLDERS
    }
    return {*files.values(), *own}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


def test_the_wheel_claims_one_name_and_holds_every_file_once(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert set(Counter(names).values()) == {1}
    assert set(names) == sources()


def test_the_wheel_holds_the_page_with_its_libraries_and_their_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    web = "backstory/page/web"
    assert {f"{web}/index.html", f"{web}/app.js", f"{web}/vendor/preact.js", f"{web}/vendor/manifest.json"} <= names
    assert len([name for name in names if name.startswith(f"{web}/vendor/licenses/")]) >= 7
    assert len([name for name in names if ".dist-info/licenses/backstory/page/web/vendor/licenses/" in name]) >= 7


def test_the_sdist_holds_every_file_once_and_no_link(tmp_path: Path) -> None:
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        members = archive.getmembers()
    names = [member.name.partition("/")[2] for member in members]
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert not [name for name in names if name.startswith(FOLDERS)]
    assert Counter(name for name in names if name.startswith("backstory/")) == Counter(sources())


def test_the_wheel_works_beside_modules_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")  # noqa: S202 we built it
    (tmp_path / "app").mkdir()
    for name in FOLDERS:
        (tmp_path / "app" / f"{name}.py").write_text("accounts = 'a stranger'\n")
    (tmp_path / "app" / "main.py").write_text(
        "import sys\n"
        f"sys.path.insert(1, {str(tmp_path / 'site')!r})\n"
        "import ledger, projections\n"
        "from backstory import Backstory\n"
        "import backstory\n"
        f"assert backstory.__file__.startswith({str(tmp_path / 'site')!r}), backstory.__file__\n"
        f"with Backstory.open({str(tmp_path / 'home')!r}, background=False) as bs:\n"
        "    bs.memory(user_id='ada').add_fact('likes tea')\n"
        "    print(bs.memory(user_id='ada').facts()[0].content, ledger.accounts, projections.accounts)\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "app" / "main.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("likes tea a stranger a stranger\n", "")


@pytest.mark.parametrize("name", [*FOLDERS, "ledger.core.events", "projections.history.moment"])
def test_no_module_can_be_imported_under_a_second_name(name: str) -> None:
    """From the checkout itself, where the folders lie at the top."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    top = name.partition(".")[0]
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {top} is a folder of backstory: import backstory.{top} instead"
    )


def test_windows_is_told_in_one_sentence_what_to_do() -> None:
    program = "import os; os.name = 'nt'; import backstory"
    failed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert failed.stderr.splitlines()[-1] == (
        "ImportError: Backstory runs on Linux and macOS; on Windows install it in WSL, see `wsl --install`"
    )
