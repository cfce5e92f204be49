"""docs/reference/log-format.md says what the code does about heads that are kept elsewhere."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from backstory.ledger.core.commit import Head
from backstory.projections.integrity.remedies import REMEDIES
from backstory.projections.integrity.witnessed import WitnessLine
from backstory.witness.signing import HeadNote, open_note, read_head_text

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "log-format.md").read_text(encoding="utf-8")


def test_the_note_on_the_page_is_signed_by_the_key_on_the_page() -> None:
    found = re.search(r"^(    backstory/.*?^    \u2014 .*?\n)", PAGE, re.DOTALL | re.MULTILINE)
    key = re.search(r"signed by the key `([^`]+)`", PAGE)
    assert found is not None
    assert key is not None
    text = open_note(re.sub("^    ", "", found[1], flags=re.MULTILINE), key[1])
    assert text is not None
    ledger, transcript = (hashlib.sha256(word).hexdigest() for word in (b"ledger", b"transcript"))
    assert read_head_text(text) == HeadNote("backstory/users/ada", Head(7, ledger), Head(12, transcript))


def test_the_line_on_the_page_has_the_fields_of_a_line() -> None:
    start = PAGE.index("### The witness")
    section = PAGE[start : PAGE.index("### The signed note")]
    named = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    fields = [name for cell in named for name in re.findall(r"`(\w+)`", cell)]
    assert fields == [field.name for field in msgspec.structs.fields(WitnessLine)]
    example = re.search(r'^    (\{"v":1,"user".*\})$', section, re.MULTILINE)
    assert example is not None
    assert msgspec.json.encode(msgspec.json.decode(example[1], type=WitnessLine)).decode() == example[1]


def test_the_page_names_every_kind_of_problem_of_a_witness_and_a_note() -> None:
    for kind in ("head_not_found", "witness_unreadable", "bad_signature"):
        assert kind in REMEDIES
        assert f"`{kind}`" in PAGE
