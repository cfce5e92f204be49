"""docs/reference/log-format.md says what the code does: its verifier runs, its tables are compared with the types."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec
import pytest
from doubles.event_strategies import drafts, names_of
from fakes import CountingSalts, open_home, reply
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as types

from backstory.ledger.core.commit import EMPTY, FORMAT, Cause, Draft, Head, head_of, inspect, seal, unseal
from backstory.ledger.core.errors import CorruptLogError
from backstory.ledger.core.events import Access, Candidate, Event, Fact, LedgerEvent, Section, Spoken, Turn, TurnRange
from backstory.ledger.core.kinds import (
    CauseAction,
    DedupKey,
    ErasedKind,
    EvictionRanking,
    FailureReason,
    LedgerCauseKind,
    PolicySource,
    RemovalReason,
    RevisionKind,
    TranscriptCauseKind,
    words_of,
)
from backstory.ledger.core.policy import CATEGORIES, Category, Policy
from backstory.ledger.extraction.models.recorded import RecordedReply
from backstory.ledger.rules.decide import RULES
from backstory.projections.integrity.stream_check import stubs_of
from backstory.testing.lines import as_file, by_hand, chain, digest, erase, offsets

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "log-format.md"
TEXT = PAGE.read_text(encoding="utf-8")
GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.jsonl"))


@pytest.fixture(scope="session")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    file = tmp_path_factory.mktemp("page") / "verify.py"
    file.write_text(blocks[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("page_verifier", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Both streams of a small memory, made by the API."""
    path = tmp_path_factory.mktemp("logs")
    memory = open_home(path).memory("ada")
    for n, text in enumerate(("I live in Oslo.", "我住在 “柏林” \\ \n\t👍🏽", "ok?")):
        said = {"role": "user", "content": text, "id": f"u{n}"}
        memory.record("t", [said, {"role": "assistant", "content": "Noted.", "id": f"a{n}"}])
        memory.extract([RecordedReply("t", reply(f"says {text}"))])
    memory.remove_fact(memory.facts()[0].id)
    memory.revert()
    memory.clear()
    assert memory.verify().ok
    return {name: (path / f"users/ada/{name}.jsonl").read_bytes() for name in ("ledger", "transcript")}


def run(verifier: ModuleType, file: Path) -> subprocess.CompletedProcess[str]:
    """As a stranger would: no package but Python's own is in reach."""
    command = [sys.executable, "-I", "-S", str(verifier.__file__), str(file)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


# The verifier.


@pytest.mark.parametrize("name", ["ledger", "transcript"])
def test_the_pages_verifier_accepts_what_was_written(
    verifier: ModuleType, logs: dict[str, bytes], name: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(logs[name])
    head = head_of(logs[name].splitlines()[-1])
    done = run(verifier, tmp_path / "log")
    assert (done.stdout, done.stderr, done.returncode) == (f"{head.seq} {head.hash}\n", "", 0)


@pytest.mark.parametrize("name", ["ledger", "transcript"])
def test_the_pages_verifier_names_the_line_that_was_altered(
    verifier: ModuleType, logs: dict[str, bytes], name: str, tmp_path: Path
) -> None:
    lines = logs[name].splitlines()
    lines[1] = lines[1].replace(b"Oslo", b"Rome").replace(b"\\n", b"\\t")
    (tmp_path / "log").write_bytes(as_file(lines))
    done = run(verifier, tmp_path / "log")
    told = f"line 2 at byte {offsets(lines)[1]}: its hash does not match its content\n"
    assert (done.stdout, done.stderr, done.returncode) == ("", told, 1)


def test_the_pages_verifier_tells_a_torn_tail(verifier: ModuleType, logs: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(logs["ledger"] + b"{half")
    done = run(verifier, tmp_path / "log")
    assert done.returncode == 0
    assert f"5 bytes at byte {len(logs['ledger'])} " in done.stderr


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_the_pages_verifier_accepts_the_golden_files(verifier: ModuleType, golden: Path) -> None:
    head = head_of(golden.read_bytes().splitlines()[-1])
    assert verifier.verify(golden.read_bytes()) == (head.seq, head.hash)


def test_there_are_golden_files_of_this_format() -> None:
    assert f"v{FORMAT}.jsonl" in [path.name for path in GOLDEN]


@given(drafts)
def test_the_pages_verifier_accepts_any_line(verifier: ModuleType, draft: Draft) -> None:
    line = seal(msgspec.structs.replace(draft, at="2026-03-12T10:30:00.123456Z"), EMPTY, CountingSalts())
    assert verifier.check(line, 1, EMPTY.hash) == head_of(line).hash
    for index in range(-1, len(draft.events)):
        assert verifier.check(erase(line, index), 1, EMPTY.hash) == head_of(line).hash


def believed(line: bytes, after: Head) -> bool:
    """Whether the code takes a line for right: the reader its chain, `verify` its stubs."""
    try:
        commit = unseal(line, after, stream="s", byte=0)
    except CorruptLogError:
        return False
    return stubs_of(commit) <= set(inspect(line).erased)


def believed_by_the_page(verifier: ModuleType, line: bytes, after: Head) -> bool:
    try:
        verifier.check(line, after.seq + 1, after.hash)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("which", ["whole", "erased"])
def test_page_and_code_agree_on_every_damage(verifier: ModuleType, logs: dict[str, bytes], which: str) -> None:
    chance = random.Random(11)  # noqa: S311 damage is no secret
    first, second = logs["ledger"].splitlines()[:2]
    line = second if which == "whole" else erase(second, 0)
    after = head_of(first)
    assert believed(line, after)
    assert believed_by_the_page(verifier, line, after)
    for _ in range(1500):
        place, byte = chance.randrange(len(line)), bytes([chance.randrange(256)])
        for damaged in (
            line[:place] + byte + line[place + 1 :],
            line[:place] + byte + line[place:],
            line[:place] + b" " + line[place:],
            line[:place] + line[place + 1 :],
        ):
            if damaged != line:
                assert not believed(damaged, after)
                assert not believed_by_the_page(verifier, damaged, after)


SALTS = st.sampled_from([None, "0" * 32, "0" * 31])
CAUSES = st.sampled_from([b'{"kind":"record"}', b'{"kind":"erased","digest":"%s"}' % (b"b" * 64)])
EVENTS = st.sampled_from([b'{"type":"TurnSuperseded","n":1}', b'{"type":"Erased","digest":"%s"}' % (b"a" * 64)])


@given(st.data())
def test_page_and_code_agree_on_lines_made_by_hand(verifier: ModuleType, data: st.DataObject) -> None:
    """Lines that are almost right: seq, prev, salts and stubs as a forger might choose them."""
    after = head_of(chain(1)[0])
    contents, salts = [data.draw(CAUSES), data.draw(EVENTS)], [data.draw(SALTS), data.draw(SALTS)]
    told = ["b" * 64, "a" * 64]
    digests = [digest(s, c) if s else d for s, c, d in zip(salts, contents, told, strict=True)]
    seq, prev = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([after, EMPTY]))
    line = by_hand(contents, seq=seq, after=prev, salts=salts, digests=digests)
    right = (seq, prev) == (2, after) and all(
        salt == (None if b"igest" in content else "0" * 32) for salt, content in zip(salts, contents, strict=True)
    )
    assert believed(line, after) == believed_by_the_page(verifier, line, after) == right


# The tables.


def tables() -> dict[str, dict[str, tuple[str, str]]]:
    """For each heading with a table of fields: field, type and default."""
    found = {}
    for section in re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        _, header, rest = body.partition("| field | type | default | meaning |\n|---|---|---|---|\n")
        if header:
            rows = [[cell.strip() for cell in row[1:-1].split("|")] for row in rest.partition("\n\n")[0].splitlines()]
            assert all(len(row) == 4 and row[3] for row in rows)
            found[heading] = {name.strip("`"): (kind, default.strip("`")) for name, kind, default, _ in rows}
    return found


def structs() -> dict[str, type[msgspec.Struct]]:
    kinds = (Access, Category, Cause, Head, TurnRange, Spoken, Fact, Section, Policy, Turn)
    named = {kind.__name__: kind for kind in kinds}
    named |= {str(kind.__struct_config__.tag): kind for kind in names_of(types.type_info(Event))}
    named |= {str(kind.__struct_config__.tag): kind for kind in names_of(types.type_info(Candidate))}
    return named


def test_the_page_has_a_table_for_everything_and_for_nothing_else() -> None:
    assert set(tables()) == set(structs())


@pytest.mark.parametrize("name", sorted(structs()))
def test_the_page_names_every_field_and_no_other(name: str) -> None:
    assert list(tables()[name]) == list(structs()[name].__struct_encode_fields__)


@pytest.mark.parametrize("name", sorted(structs()))
def test_the_page_states_the_defaults(name: str) -> None:
    stated = {field: default for field, (_, default) in tables()[name].items()}
    kind = structs()[name]
    omitted = kind.__struct_config__.omit_defaults
    real = {field.encode_name: default_of(field) if omitted else "" for field in msgspec.structs.fields(kind)}
    assert stated == real


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default).decode()
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default_factory()).decode()
    return ""


KINDS: dict[str, Callable[[types.Type], bool]] = {
    "text": lambda kind: isinstance(kind, types.StrType),
    "integer": lambda kind: isinstance(kind, types.IntType),
    "number": lambda kind: isinstance(kind, types.FloatType),
    "true or false": lambda kind: isinstance(kind, types.BoolType),
    "object": lambda kind: isinstance(kind, types.DictType),
    "list of Category": lambda kind: (
        isinstance(kind, types.VarTupleType)
        and isinstance(kind.item_type, types.StructType)
        and kind.item_type.cls is Category
    ),
    "list of texts": lambda kind: isinstance(kind, types.VarTupleType) and isinstance(kind.item_type, types.StrType),
    "candidate": lambda kind: names_of(kind) == names_of(types.type_info(Candidate)),
}


@pytest.mark.parametrize("name", sorted(structs()))
def test_the_page_states_the_types(name: str) -> None:
    info = types.type_info(structs()[name])
    assert isinstance(info, types.StructType)
    for field in info.fields:
        stated, default = tables()[name][field.encode_name]
        kind = field.type
        if isinstance(kind, types.UnionType) and (stated.endswith(" or `null`") or default == "null"):
            rest = [member for member in kind.types if not isinstance(member, types.NoneType)]
            assert len(rest) == len(kind.types) - 1
            stated, kind = stated.removesuffix(" or `null`"), rest[0]
        if stated in KINDS:
            assert KINDS[stated](kind), (field.name, stated)
        else:
            assert isinstance(kind, types.StructType), (field.name, stated)
            assert kind.cls.__name__ == stated


def test_the_page_tells_the_events_of_each_stream_apart() -> None:
    ledger, _, transcript = TEXT.partition("## Events of the transcript")
    here = {kind.__name__ for kind in get_args(LedgerEvent)}
    assert {name for name in here if f"### {name}\n" in ledger} == here
    rest = {kind.__name__ for kind in names_of(types.type_info(Event))} - here
    assert (
        {name for name in rest if f"### {name}\n" in transcript}
        == rest
        == {"TurnRecorded", "TurnRestored", "TurnSuperseded"}
    )


def test_the_page_names_the_envelope_in_its_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", TEXT.partition("## A line")[2].partition("###")[0], re.MULTILINE)
    line = chain(1)[0]
    assert rows == list(json.loads(line))
    shown = TEXT.partition("## A line")[2].strip().splitlines()[0]
    assert re.findall(r'"(\w+)":', shown) == rows
    assert f'"v":{FORMAT},' in shown
    assert TEXT.partition("\n\n")[2].startswith(f"Version {FORMAT}.")


def test_the_page_names_every_category_and_kind() -> None:
    assert all(f"`{category}`" in TEXT for category in CATEGORIES)
    row = next(line for line in TEXT.splitlines() if line.startswith("| `kind` | text | | in a ledger"))
    assert re.findall(r"`(\w+)`", row)[1:] == [*words_of(LedgerCauseKind), *words_of(TranscriptCauseKind)]


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("action", CauseAction),
        ("reason", RemovalReason),
        ("reason", FailureReason),
        ("change", RevisionKind),
        ("what", ErasedKind),
        ("source", PolicySource),
        ("fact_eviction_policy", EvictionRanking),
        ("dedup_key", DedupKey),
    ],
)
def test_the_page_names_every_word_of(field: str, kind: object) -> None:
    rows = [set(re.findall(r"`(\w+)`", line)) for line in TEXT.splitlines() if line.startswith(f"| `{field}` |")]
    assert any(set(words_of(kind)) <= row for row in rows), [set(words_of(kind)) - row for row in rows]


def test_the_page_names_every_rule() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| `rule` | text"))
    assert re.findall(r"`(\w+)`", row)[1:] == list(RULES)


def test_the_page_names_every_file(tmp_path: Path) -> None:
    memory = open_home(tmp_path).memory("ada")
    memory.record("t", [{"role": "user", "content": "I run."}])
    (tmp_path / "users/ada/ledger.jsonl").write_bytes(b"torn")
    (tmp_path / "users/ada/memory.json").write_bytes(b"edited")
    memory.add_fact("runs")
    memory.flush()
    made = {path.name for path in (tmp_path / "users/ada").iterdir()}
    assert made >= {"ledger.torn-1", "memory.json.edited-1", "transcript.jsonl"}
    assert {name for name in made if f"`{name}`" not in TEXT} == set()


def test_lines_in_the_page_are_not_too_long() -> None:
    long = [line for line in TEXT.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))]
    assert long == []
