"""Files of the page: what is vendored, how large they are, what they may load, and that they are clean."""

from __future__ import annotations

import graphlib
import gzip
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import vendoring
from browsing import ROOT, WEB
from npm import JS, installed, run_node
from serving import ThreadServer

FILES = sorted(path for path in WEB.rglob("*") if path.is_file())
OWN = [path for path in FILES if "vendor" not in path.parts]
ALL = 236_000
"""Bytes of all scripts as the server sends them, libraries included: those of a person who opens every view.

What one view loads is held to 150,000 in `test_page_views`.
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NAMESPACE = "http://www.w3.org/2000/svg"


def test_vendored_files_are_as_the_manifest_says() -> None:
    assert vendoring.differences(vendoring.read_manifest()) == []
    assert vendoring.main(["--check"]) == 0


def test_the_check_of_vendored_files_finds_each_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "vendor"
    shutil.copytree(vendoring.VENDOR, folder)
    monkeypatch.setattr(
        vendoring, "differences", lambda manifest, differences=vendoring.differences: differences(manifest, folder)
    )
    changed = folder / "preact.js"
    content = changed.read_bytes()
    changed.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    (folder / "more.js").write_text("")
    (folder / "htm.js").unlink()
    assert vendoring.main(["--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "htm.js is missing",
        "more.js is not in the manifest",
        "preact.js was changed",
    ]


def test_no_script_imports_itself_by_way_of_others() -> None:
    arrows = {
        path: [
            (path.parent / name).resolve()
            for name in re.findall(r'import\b[^"\n]*"(\.[^"\n]+)"', path.read_text("utf-8"))
        ]
        for path in WEB.rglob("*.js")
    }
    assert sum(map(len, arrows.values())) > len(arrows)
    graphlib.TopologicalSorter(arrows).prepare()


def test_an_edit_that_no_longer_fits_is_refused() -> None:
    edit = vendoring.Edit(find="a", replace="b")
    assert vendoring.edited(b"cat", (edit,), "x.js") == b"cbt"
    for text in (b"dog", b"banana"):
        with pytest.raises(SystemExit, match="change the edit"):
            vendoring.edited(text, (edit,), "x.js")


def test_each_library_has_its_licence() -> None:
    for package in vendoring.read_manifest().packages:
        assert any(file.target.startswith("licenses/") for file in package.files), package.name
        assert package.license in {"MIT", "Apache-2.0", "ISC", "BSD-3-Clause"}


def test_all_scripts_together_do_not_grow_unnoticed(told_story: ThreadServer) -> None:
    sizes = {}
    with told_story.client({"Accept-Encoding": "gzip"}) as client:
        for path in FILES:
            if path.suffix == ".js":
                with client.stream("GET", f"/page/{path.relative_to(WEB).as_posix()}") as answer:
                    content = b"".join(answer.iter_raw())
                    packed = answer.headers.get("Content-Encoding") == "gzip"
                    assert (gzip.decompress(content) if packed else content) == path.read_bytes()
                    sizes[path.relative_to(WEB).as_posix()] = len(content)
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
    assert sum(sizes.values()) <= ALL, (sum(sizes.values()), largest)


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/styles/base.css"])
def test_what_the_page_may_load_is_stated_with_each_answer(told_story: ThreadServer, path: str) -> None:
    headers = told_story.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


class _Index(HTMLParser):
    """What an HTML file has in it that a strict policy refuses, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.loaded: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        stated = dict(attrs)
        self.inline += [f"{tag} {name}" for name in stated if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in stated):
            self.inline.append(tag)
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_index_has_no_inline_script_style_or_handler_and_loads_what_is_there() -> None:
    index = _Index()
    index.feed((WEB / "index.html").read_text(encoding="utf-8"))
    assert index.inline == []
    assert [name for name in index.loaded if not (WEB / name.removeprefix("page/")).is_file()] == []
    styles = {f"page/styles/{path.name}" for path in (WEB / "styles").iterdir()}
    assert {name for name in index.loaded if name.startswith("page/styles/")} == styles


def test_inline_code_in_an_index_is_found() -> None:
    index = _Index()
    index.feed("<p style='color: red' onclick='x()'><script>x()</script><script src='a.js'></script><style></style>")
    assert index.inline == ["p style", "p onclick", "script", "style"]


def test_no_file_names_another_host() -> None:
    for path in OWN:
        named = set(re.findall(r"(?:[a-z]+:)?//[\w-]+(?:\.[\w-]+)+[\w/.-]*", path.read_text(encoding="utf-8")))
        assert named <= {NAMESPACE}, path
    for path in FILES:
        if "vendor" in path.parts and path.suffix in {".js", ".css"}:
            # Names of XML, and where a comment says the library is from.
            hosts = set(re.findall(r"[a-z]+://([\w.-]+)", path.read_text(encoding="utf-8")))
            assert hosts <= {"www.w3.org", "github.com"}, path


def test_modules_import_only_files_that_are_there() -> None:
    for path in FILES:
        if path.suffix != ".js":
            continue
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["']([^"'\s]+)["']""", text)
        assert [name for name in names if not (name.startswith(".") and (path.parent / name).is_file())] == [], path


def lint(folder: Path) -> str:
    """Return what ESLint says about the modules in a folder of the repository."""
    eslint = installed("eslint") / "bin/eslint.js"
    config = JS / "eslint.config.js"
    done = run_node(eslint, "--config", config, "--ignore-pattern", "**/vendor/**", "--max-warnings", 0, folder)
    assert done.stderr == ""
    return done.stdout


def test_the_modules_are_clean() -> None:
    assert lint(WEB.relative_to(ROOT)) == ""
