"""Pictures of the page for README and docs: the real page on the demo's story, in both themes.

python tests/page/screenshots.py            # take them, and note from which files
python tests/page/screenshots.py --check    # compare what they were taken of with the files of today
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec

for folder in ("..", "../http"):
    sys.path.insert(0, str((Path(__file__).parent / folder).resolve()))

from browsing import ARGUMENTS, ROOT, WEB, Window, open_window  # noqa: E402
from fakes import FakeClock  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402
from serving import thread_server  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from backstory.cli.app import app  # noqa: E402

IMAGES = ROOT / "docs/images"
MANIFEST = IMAGES / "manifest.json"
NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)
SIZE = (1120, 720)
SHOTS = {
    "memory": "#/memory?user=ada",
    "timeline": "#/timeline?user=ada",
    "why": "#/why?user=ada&fact=fact_3_0",
    "undo": "#/why?user=ada&fact=fact_3_0",
    "compare": "#/compare?user=ada&a=2&b=3",
    "graph": "#/graph?user=ada",
}
"""What is on each picture. `undo` is the dialog that the button of its view opens."""


class Manifest(msgspec.Struct):
    """What the pictures were taken of: the digest of the page's files, of this script, and of the story."""

    sources: str
    images: tuple[str, ...]


def sources(web: Path = WEB) -> str:
    """Return a digest of all that is to be seen on the pictures."""
    found = hashlib.sha256()
    story = ROOT / "backstory/cli/demo_data"
    files = sorted(path for path in (*web.rglob("*"), *story.rglob("*")) if path.is_file())
    for path in (*files, Path(__file__)):
        found.update(f"{path.name}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def differences(images: Path = IMAGES, web: Path = WEB) -> list[str]:
    """Return what is not current; nothing if all is."""
    again = "run `make screenshots`"
    file = images / MANIFEST.name
    if not file.exists():
        return [f"there are no pictures yet: {again}"]
    manifest = msgspec.json.decode(file.read_bytes(), type=Manifest)
    found = [f"{name} is missing: {again}" for name in manifest.images if not (images / name).is_file()]
    if set(manifest.images) != set(names()):
        found.append(f"the pictures are {', '.join(manifest.images)}, not {', '.join(names())}: {again}")
    if manifest.sources != sources(web):
        found.append(f"the page was changed after its pictures were taken: {again}")
    return found


def names() -> tuple[str, ...]:
    """Return the names of the pictures."""
    return tuple(f"{shot}-{theme}.png" for shot in SHOTS for theme in ("light", "dark"))


def take(window: Window, shot: str, to: Path) -> None:
    """Take one picture."""
    page = window.go(SHOTS[shot])
    if shot == "undo":
        page.get_by_role("button", name=window.say("views/why", "undo"), exact=True).first.click()
        page.get_by_role("dialog").locator(".is-added").first.wait_for()
        window.settle()
    # What is under the pointer or has the focus looks different.
    page.evaluate("() => document.activeElement?.blur()")
    page.screenshot(path=to, animations="disabled", caret="hide")


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = differences()
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("Chromium is not installed")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        told = CliRunner().invoke(app, ["demo", "--keep", folder, "--before-undo"])
        if told.exit_code:
            raise SystemExit(told.output)
        with thread_server(Path(folder) / "home", clock=FakeClock(NOW)) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
            for theme in ("light", "dark"):
                for shot in SHOTS:
                    window = open_window(browser, server.url, size=SIZE, dark=theme == "dark")
                    window.page.clock.set_fixed_time(NOW)
                    take(window, shot, IMAGES / f"{shot}-{theme}.png")
                    window.page.context.close()
                    if window.problems:
                        raise SystemExit("\n".join(window.problems))
            browser.close()
    manifest = Manifest(sources(), names())
    MANIFEST.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
