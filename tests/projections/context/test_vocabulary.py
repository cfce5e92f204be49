"""Which vocabulary counts, that it comes without a network, and that nobody waits for it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from vocabularies import unpack

from backstory.projections.context.counting import ESTIMATE, Counter, load_vocabulary, tokens_for

PATIENCE = 20.0


def named(counter: Counter | None) -> str | None:
    return None if counter is None else counter.name


def test_tiktoken_counts_where_its_cache_has_the_file(bare: Path) -> None:
    unpack("o200k_base", bare)
    counter = load_vocabulary("gpt-5-mini")
    assert named(counter) == "tiktoken:o200k_base"
    assert counter.count("hello world\n") == 3
    # Only one of the two is there.
    assert named(load_vocabulary("gpt-4")) == "bpe-openai:cl100k_base"


def test_a_vocabulary_that_the_host_has_loaded_already_is_taken(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = unpack("o200k_base", bare)
    assert named(load_vocabulary(None)) == "tiktoken:o200k_base"
    file.unlink()
    assert named(load_vocabulary(None)) == "tiktoken:o200k_base"
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    assert named(load_vocabulary(None)) == "bpe-openai:o200k_base"


@pytest.mark.parametrize("damage", ["cut", "empty", "folder", "nothing"])
def test_a_file_that_is_not_whole_is_left_alone(bare: Path, damage: str) -> None:
    file = unpack("o200k_base", bare)
    data = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "nothing":
        file.write_bytes(data[:-1] if damage == "cut" else b"")
    assert named(load_vocabulary(None)) == "bpe-openai:o200k_base"
    assert file.exists() == (damage != "nothing")


@pytest.mark.slow
def test_the_folder_is_the_one_that_tiktoken_reads(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unpack("o200k_base", bare)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.chdir(bare)
    assert named(load_vocabulary(None)) == "bpe-openai:o200k_base"
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(bare))
    assert named(load_vocabulary(None)) == "tiktoken:o200k_base"
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert named(load_vocabulary(None)) == "bpe-openai:o200k_base"
    bare.rename(tmp_path / "data-gym-cache")
    assert named(load_vocabulary(None)) == "tiktoken:o200k_base"


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4", "cl100k_base"),
        ("gpt-oss-20b", "o200k_base"),
        ("gpt2", "o200k_base"),
        ("llama-3", "o200k_base"),
        ("", "o200k_base"),
        (None, "o200k_base"),
    ],
)
def test_the_vocabulary_is_the_models(bare: Path, model: str | None, vocabulary: str) -> None:
    assert named(load_vocabulary(model)) == f"bpe-openai:{vocabulary}"


def test_without_any_at_hand_there_is_none(bare: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    caplog.set_level(logging.INFO)
    assert load_vocabulary(None) is None
    assert "backstory[tokens]" in caplog.text


def test_without_tiktoken_the_packaged_one_counts(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack("o200k_base", bare)
    for module in [name for name in sys.modules if name.split(".")[0] == "tiktoken"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert named(load_vocabulary("gpt-4")) == "bpe-openai:o200k_base"


def test_a_process_has_one_for_each_model() -> None:
    assert tokens_for("gpt-5") is tokens_for("gpt-5")
    assert tokens_for("gpt-5") is not tokens_for("gpt-4")
    assert tokens_for("gpt-5", exact=False) is not tokens_for("gpt-5")


def test_counting_by_characters_never_loads_anything(bare: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr("backstory.projections.context.counting.load_vocabulary", lambda model: 1 / 0)
    assert tokens_for("some-model").wait(PATIENCE) is ESTIMATE
    assert "cannot be loaded" in caplog.text
    caplog.clear()
    assert tokens_for("some-model", exact=False).wait(PATIENCE) is ESTIMATE
    assert caplog.text == ""


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.05, 0.1, 0.2])
def test_a_process_may_end_in_the_middle_of_a_load(delay: float) -> None:
    code = (
        "import time; from backstory.projections.context import tokens_for;"
        f"tokens_for(None).begin(); time.sleep({delay})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
