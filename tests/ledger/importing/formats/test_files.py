"""Files to import: values of any size, whatever stands in them, and zip files."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from exports import chatgpt, said, write
from hypothesis import given
from hypothesis import strategies as st

from backstory.ledger.core.errors import InputError
from backstory.ledger.importing.formats import files
from backstory.ledger.importing.formats.files import Broken, File, files_at, json_values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def _small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK", 3)
        yield


def values(path: Path) -> list[object]:
    return list(json_values(File(path, None, path.stat().st_size), lambda _: None))


@pytest.mark.usefixtures("_small_chunks")
@given(items=st.lists(JSON), indent=st.sampled_from([None, 1]))
def test_the_elements_of_an_array_are_those_of_the_parser(
    folder: Path, items: list[object], indent: int | None
) -> None:
    assert values(write(folder, json.dumps(items, indent=indent))) == items
    assert values(write(folder, json.dumps({"count": 1, "results": items, "next": None}, indent=indent))) == items
    objects = [{"a": item} for item in [*items, None]]
    assert values(write(folder, "".join(json.dumps(one) + "\r\n" for one in objects))) == objects


def test_an_array_that_was_cut_short_is_refused_wherever_it_ends(folder: Path) -> None:
    whole = json.dumps([{"a": 'x"\\', "b": [1, {}]}, "t]", 12, None]).encode()
    for end in range(1, len(whole)):
        with pytest.raises(InputError, match="was cut short"):
            values(write(folder, whole[:end]))
    assert len(values(write(folder, whole))) == 4


def test_what_is_broken_within_an_array_is_one_value(folder: Path) -> None:
    first, broken, last = values(write(folder, b'[1, {"a": nope}, {"b": "\xff"}]'))
    assert first == 1
    assert isinstance(broken, Broken)
    assert "element 2: it is no JSON" in broken.why
    assert isinstance(last, Broken)


@pytest.mark.parametrize("shape", ['{"a":' * 50_000 + "1" + "}" * 50_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_refused_in_little_memory(folder: Path, shape: str) -> None:
    (found,) = values(write(folder, f"[{shape}]"))
    assert isinstance(found, Broken)
    assert "nested too deep" in found.why


def test_a_value_that_is_too_long_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LONGEST", 100)
    monkeypatch.setattr(files, "_CHUNK", 10)
    for content in ('["' + "x" * 200 + '"]', '{"a": "' + "x" * 200 + '"}\n{}'):
        with pytest.raises(InputError, match="has more than 100 bytes"):
            values(write(folder, content))
    with pytest.raises(InputError, match="is one object of"):
        values(write(folder, '{"a":\n' + "1\n" * 100 + "}"))


def packed(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_the_conversations_of_a_zip_file_are_read(tmp_path: Path) -> None:
    parts = {f"x/conversations-00{n}.json": json.dumps([chatgpt(f"c{n}")]).encode() for n in (1, 0)}
    path = packed(tmp_path, {**parts, "user.json": b"{}", "chat.html": b"", "__MACOSX/conversations.json": b""})
    assert [turn[0] for turn in said(path)] == ["c0"] * 4 + ["c1"] * 4
    alone = packed(tmp_path, {"conversations.json": b"\xef\xbb\xbf" + json.dumps([chatgpt()]).encode()})
    assert len(said(alone)) == 4


def test_a_zip_file_without_one_export_names_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no conversations.json but a.json, b.json: unpack it"):
        files_at(packed(tmp_path, {"a.json": b"[]", "b.json": b"[]"}))
    with pytest.raises(InputError, match=r"but photo.png"):
        files_at(packed(tmp_path, {"photo.png": b""}))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would unpack to 20,000,000 bytes"):
        files_at(packed(tmp_path, {"conversations.json": b" " * 20_000_000}))


def test_a_damaged_zip_file_is_refused(tmp_path: Path) -> None:
    whole = packed(tmp_path, {"conversations.json": json.dumps([chatgpt()] * 50).encode()}).read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:80] + b"\0\0\0\0\0\0\0\0" + whole[88:]):
        with pytest.raises(InputError, match="zip file is damaged"):
            said(write(tmp_path, damaged, "export.zip"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is no file"):
        files_at(tmp_path / "pipe")
