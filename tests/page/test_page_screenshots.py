"""Pictures of the page in README and docs: of the page as it is, and all shown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import screenshots
from browsing import ROOT, WEB


def test_the_pictures_are_current() -> None:
    assert screenshots.differences() == []


def test_each_picture_is_shown_in_both_themes_and_none_is_missing() -> None:
    shown = set()
    for page in (ROOT / "README.md", ROOT / "docs/explanation/page.md"):
        text = page.read_text(encoding="utf-8")
        shown |= {Path(name).name for name in re.findall(r'(?:src|srcset)="([^"]*images/[^"]+)"', text)}
    assert shown == set(screenshots.names())


def test_a_change_of_the_page_makes_its_pictures_old(tmp_path: Path) -> None:
    web, images = tmp_path / "web", tmp_path / "images"
    shutil.copytree(WEB, web)
    images.mkdir()
    (absent,) = screenshots.differences(images, web)
    assert "no pictures yet" in absent
    for name in screenshots.names():
        (images / name).write_bytes(b"")
    manifest = screenshots.Manifest(screenshots.sources(web), screenshots.names())
    (images / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    assert screenshots.differences(images, web) == []
    (images / "memory-dark.png").unlink()
    with (web / "app.js").open("a") as file:
        file.write("\n")
    missing, old = screenshots.differences(images, web)
    assert missing.startswith("memory-dark.png is missing")
    assert "was changed after" in old
