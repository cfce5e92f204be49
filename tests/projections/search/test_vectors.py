from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from doubles.bag import BagOfWords, passage, passages
from fakes import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import examples

from backstory.ledger.core.errors import ModelUnavailableError, StoreError
from backstory.projections.derived_files import UnusableError
from backstory.projections.search.vectors.embedder import Passage, query_by
from backstory.projections.search.vectors.scope_vectors import VECTORS, Vectors
from backstory.projections.search.vectors.vector_file import VectorFile

pytest.importorskip("faiss", reason="the extra [vectors] is not installed")
import numpy as np
from numpy.testing import assert_allclose

TEA = passages(tea="she drinks green tea", dog="the dog runs in the park", code="python and rust programs")


@pytest.fixture(autouse=True, scope="module")
def _few_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backstory.projections.search.vectors.vector_file._PORTION", 2)
        yield


def vectors_in(folder: Path, embedder: BagOfWords | None = None, **options) -> Vectors:
    return Vectors(folder / VECTORS, embedder or BagOfWords(), **options)


def keys(vectors: Vectors, query: str, k: int = 10, **more) -> list[str]:
    return [scored.key for scored in vectors.nearest("turns", query, k, **more)]


def bytes_of(folder: Path, but: str = "vectors.lock") -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.name != but)


def spelled(embedder: BagOfWords, text: str) -> bytes:
    """How a text's vector stands in a file."""
    return embedder._vector(text).astype(np.float16).tobytes()


# Finding


def test_what_is_alike_is_found_the_nearest_first_with_its_cosine(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    assert vectors.bring("turns", TEA) == 3
    found = vectors.nearest("turns", "green tea", 2)
    assert found[0].key == "tea"
    assert len(found) == 2
    exact = float(embedder._vector("green tea") @ embedder._vector("she drinks green tea"))
    assert found[0].score == pytest.approx(exact, abs=2e-3)
    assert found[0].score > found[1].score


def test_spaces_are_apart(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    vectors.bring("facts", passages(cat="green tea for the cat"))
    assert [one.key for one in vectors.nearest("facts", "tea", 9)] == ["cat"]
    assert set(keys(vectors, "tea")) == {"tea", "dog", "code"}
    assert (vectors.count("facts"), vectors.count("turns"), vectors.count("else")) == (1, 3, 0)


def test_what_is_not_allowed_is_left_out_before_the_cut(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    assert keys(vectors, "green tea", 1, keep={"dog", "code", "no such key"}) in (["dog"], ["code"])
    assert set(keys(vectors, "green tea", 9, keep={"dog", "code"})) == {"dog", "code"}
    assert keys(vectors, "green tea", 9, keep=set()) == []
    assert keys(vectors, "green tea", 9, keep={"else"}) == []


def test_an_empty_query_is_near_nothing_and_asks_nobody(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    assert keys(vectors, " \n") == []
    assert embedder.queries == []


def test_nothing_is_found_for_none_and_where_nothing_is(tmp_path):
    vectors = vectors_in(tmp_path)
    assert keys(vectors, "tea") == []
    vectors.bring("turns", TEA)
    assert keys(vectors, "tea", 0) == []


def test_a_query_is_embedded_once(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    for _ in range(3):
        keys(vectors, "tea")
    assert embedder.queries == ["tea"]
    for number in range(100):
        keys(vectors, f"q{number}")
    keys(vectors, "tea")
    assert embedder.queries.count("tea") == 2


def test_of_equals_the_lesser_key_comes_first_wherever_the_cut_is(tmp_path):
    vectors = vectors_in(tmp_path)
    same = [passage(f"k{number:02}", "the same words") for number in range(40)]
    np.random.default_rng(5).shuffle(same)
    vectors.bring("turns", [*same, passage("a", "quite other things")])
    # However the rows came to lie.
    for k in (1, 3, 17, 40):
        assert keys(vectors, "same words", k) == [f"k{number:02}" for number in range(k)]


def similarities(vectors, query):
    """Return the cosine of every key, each computed alone."""
    asked, known = query_by(vectors.embedder, query), vectors._spaces["turns"]
    scores = {}
    for ident in known.idents():
        score = float(np.frombuffer(known.data(ident), np.float16).astype(np.float32) @ asked)
        scores[ident[0]] = max(score, scores.get(ident[0], -1.0))
    return scores


def test_the_nearest_of_all_have_the_cosines_of_all(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    alike = similarities(vectors, "green tea")
    assert alike == {one.key: pytest.approx(one.score, abs=1e-5) for one in vectors.nearest("turns", "green tea", 9)}


def test_a_key_with_several_passages_counts_with_its_nearest(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", [*TEA, passage("dog", "green tea for dogs"), passage("code", "other words")])
    found = vectors.nearest("turns", "green tea for dogs", 2)
    assert found[0].key == "dog"
    assert len(found) == 2
    assert found[0].score == pytest.approx(1, abs=2e-3)
    assert similarities(vectors, "green tea for dogs")["dog"] == pytest.approx(1, abs=2e-3)
    assert vectors.count("turns") == 3


# Bringing


def test_only_what_is_missing_or_changed_is_embedded(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    embedder.read.clear()
    changed = [*TEA[:2], passage("code", "go and zig programs"), passage("new", "a new thing")]
    assert vectors.embedded("turns", changed) == 2
    assert vectors.bring("turns", changed) == 2
    assert sorted(embedder.read) == ["a new thing", "go and zig programs"]
    assert vectors.embedded("turns", changed) == 4
    assert keys(vectors, "python rust", 9, keep={"code"}) == ["code"]
    assert similarities(vectors, "go and zig programs")["code"] == pytest.approx(1, abs=2e-3)


def test_what_is_gone_is_let_go_of(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    assert vectors.bring("turns", TEA[1:]) == 0
    assert not vectors.has("turns", "tea")
    assert vectors.has("turns", "dog")
    assert set(keys(vectors, "green tea")) == {"dog", "code"}
    assert set(keys(vectors_in(tmp_path), "green tea")) == {"dog", "code"}


def test_a_text_is_embedded_once_whatever_it_is_called(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", [passage("a", "same"), passage("b", "same"), passage("a", "same")])
    assert embedder.read == ["same"]
    vectors.bring("turns", [passage("c", "same")])
    assert embedder.read == ["same"]
    assert keys(vectors, "same") == ["c"]
    assert keys(vectors_in(tmp_path, embedder), "same") == ["c"]


def test_another_process_finds_what_this_one_embedded(tmp_path):
    vectors_in(tmp_path).bring("turns", TEA)
    embedder = BagOfWords()
    other = vectors_in(tmp_path, embedder)
    assert keys(other, "green tea", 1) == ["tea"]
    assert other.bring("turns", TEA) == 0
    assert embedder.read == []


def test_two_see_what_the_other_adds_and_takes_away(tmp_path):
    one, two = vectors_in(tmp_path), vectors_in(tmp_path)
    one.bring("turns", TEA)
    assert two.count("turns") == 3
    two.bring("turns", [*TEA, passage("new", "a new thing")])
    assert keys(one, "a new thing", 1) == ["new"]
    two.bring("turns", TEA[:1])
    assert keys(one, "a new thing") == ["tea"]
    one.bring("turns", TEA)
    assert two.count("turns") == 3


def test_it_stops_between_batches_and_goes_on_where_it_was(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    many = [passage(str(number), f"text {number}") for number in range(100)]
    done = vectors.bring("turns", many, stop=lambda: len(embedder.read) > 30)
    assert 30 < done < 50
    assert vectors.embedded("turns", many) == done
    assert vectors.bring("turns", many) == 100 - done
    assert len(embedder.read) == 100


def test_progress_is_told_with_what_was_there_before(tmp_path):
    vectors = vectors_in(tmp_path)
    many = [passage(str(number), f"text {number}") for number in range(40)]
    vectors.bring("turns", many[:10])
    told: list[tuple[int, int]] = []
    vectors.bring("turns", many, progress=lambda done, total: told.append((done, total)))
    assert told == [(10, 40), (26, 40), (40, 40)]


def test_what_was_embedded_before_an_error_is_kept(tmp_path):
    embedder = BagOfWords()
    many = [passage(str(number), f"text {number}") for number in range(40)]

    def fail(texts: Sequence[str]) -> None:
        if embedder.read:
            raise ModelUnavailableError("down")

    embedder.before = fail
    with pytest.raises(ModelUnavailableError, match="down"):
        vectors_in(tmp_path, embedder).bring("turns", many)
    assert 0 < vectors_in(tmp_path).count("turns") < 40


def test_what_another_takes_away_while_passages_are_listed_harms_nobody(tmp_path):
    vectors, other = vectors_in(tmp_path), vectors_in(tmp_path)
    vectors.bring("turns", TEA)

    def listed() -> Iterator[Passage]:
        yield from TEA
        other.bring("turns", TEA[:1])
        keys(vectors, "tea")

    vectors.bring("turns", listed())
    vectors.bring("turns", TEA)
    assert vectors.embedded("turns", TEA) == 3


def test_two_who_bring_the_same_share_the_work(tmp_path):
    many = [passage(str(number), f"text {number}") for number in range(200)]
    embedder = BagOfWords()
    barrier = threading.Barrier(2)
    met = threading.local()
    begun: list[set[str]] = []

    def meet(texts: Sequence[str]) -> None:
        if not getattr(met, "done", False):
            met.done = True
            begun.append(set(texts))
            barrier.wait(PATIENCE)

    embedder.before = meet
    done: list[int] = []
    threads = [
        threading.Thread(target=lambda: done.append(vectors_in(tmp_path, embedder).bring("turns", many)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    # From both ends; they may meet in one batch.
    assert not begun[0] & begun[1]
    assert 200 <= len(embedder.read) <= 200 + 16
    last = vectors_in(tmp_path)
    assert last.embedded("turns", many) == 200
    assert last.count("turns") == 200


# The file


def test_the_file_is_for_its_owner_only(tmp_path):
    vectors_in(tmp_path).bring("turns", TEA)
    assert {path.name for path in tmp_path.iterdir()} == {VECTORS, "vectors.lock"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_another_model_means_a_new_file_never_a_mix(tmp_path, caplog):
    vectors_in(tmp_path).bring("turns", TEA)
    other = BagOfWords("another", 32)
    vectors = vectors_in(tmp_path, other)
    with caplog.at_level(logging.WARNING):
        assert keys(vectors, "tea") == []
        assert vectors.count("turns") == 0
    (told,) = [record.getMessage() for record in caplog.records]
    assert "vectors.sqlite was made by bag, not by another: search goes by words until" in told
    assert "run `backstory embed`, or set embedding_model as it was" in told
    assert vectors.bring("turns", TEA) == 3
    assert keys(vectors, "green tea", 1) == ["tea"]
    assert len(other.read) == 3
    assert keys(vectors_in(tmp_path, other), "green tea", 1) == ["tea"]
    assert spelled(BagOfWords(), TEA[0].text) not in bytes_of(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {VECTORS, "vectors.lock"}


def test_a_model_that_has_read_nothing_yet_leaves_what_another_has_made(tmp_path, caplog):
    vectors_in(tmp_path).bring("turns", TEA)
    before = bytes_of(tmp_path)
    other = BagOfWords("another")
    vectors = vectors_in(tmp_path, other)

    def fail(_: Sequence[str]) -> None:
        raise ModelUnavailableError("nobody is at home")

    other.before = fail
    assert keys(vectors, "tea") == []
    assert vectors.bring("turns", TEA, stop=lambda: True) == 0
    for _ in range(2):
        with pytest.raises(ModelUnavailableError):
            vectors.bring("turns", TEA)
    assert bytes_of(tmp_path) == before
    assert caplog.text.count("was made by bag") == 1
    assert keys(vectors_in(tmp_path), "green tea", 1) == ["tea"]
    # What the former one adds meanwhile is let stand, too, and told of no second time.
    vectors_in(tmp_path).bring("turns", [*TEA, passage("new", "a new thing")])
    assert vectors.count("turns") == 0
    assert caplog.text.count("was made by bag") == 1
    assert vectors_in(tmp_path).count("turns") == 4


def test_where_nothing_can_be_written_another_models_file_costs_this_ones_vectors_nothing(tmp_path, monkeypatch):
    vectors_in(tmp_path).bring("turns", TEA)
    before = bytes_of(tmp_path)
    vectors = vectors_in(tmp_path, BagOfWords("another"))
    monkeypatch.setattr(vectors._file, "open_to_erasures", lambda: False)
    vectors.bring("turns", TEA)
    kept = vectors._spaces["turns"]
    assert keys(vectors, "green tea", 1) == ["tea"]
    assert vectors._spaces["turns"] is kept
    assert bytes_of(tmp_path) == before


def test_who_loses_the_file_to_another_model_goes_on_without(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    vectors_in(tmp_path, BagOfWords("another", 32)).bring("turns", TEA)
    assert keys(vectors, "tea") == []
    assert vectors.count("turns") == 0


def test_an_erasure_takes_what_another_model_has_made(tmp_path):
    vectors_in(tmp_path).bring("turns", TEA)
    vectors_in(tmp_path, BagOfWords("another")).purge({"turns": TEA[:1]})
    assert not (tmp_path / VECTORS).exists()


def test_a_batch_that_is_not_read_in_the_time_left_is_left_for_another_time(tmp_path, caplog):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    spare = [9.0]
    many = [passage(f"k{number:02}", f"text {number}") for number in range(40)]

    def hang(_: Sequence[str]) -> None:
        if len(embedder.read) == 16:
            spare[0] = 0.0
            raise ModelUnavailableError("it kept silent")

    embedder.before = hang
    with caplog.at_level(logging.WARNING):
        done = vectors.bring("turns", many, stop=lambda: spare[0] == 0, left=lambda: spare[0])
    assert (done, vectors.count("turns")) == (16, 16)
    assert embedder.given == [9.0]
    assert "the time was up before a batch was read: it kept silent" in caplog.text
    # One that fails with time to spare is an error, and so is one that nobody has set a time.
    embedder.before = lambda _: (_ for _ in ()).throw(ModelUnavailableError("down"))
    for left in (None, 1.0):
        stops = iter([False, left is None, left is None])
        with pytest.raises(ModelUnavailableError, match="down"):
            vectors.bring("turns", many, stop=lambda stops=stops: next(stops), left=lambda left=left: left)


@pytest.mark.parametrize("by", ["a query", "a passage"])
def test_a_server_that_has_another_model_under_the_same_name_is_found_out(tmp_path, caplog, by):
    vectors_in(tmp_path).bring("turns", TEA)
    changed = BagOfWords(dimensions=32)
    vectors = vectors_in(tmp_path, changed)
    with caplog.at_level(logging.WARNING):
        if by == "a query":
            assert keys(vectors, "tea") == []
        else:
            with pytest.raises(ModelUnavailableError, match="vectors of 32 numbers, and made some of 64: try again"):
                vectors.bring("turns", [*TEA, passage("new", "a new thing")])
    assert "begun anew: bag makes vectors of 32 numbers, and made some of 64" in caplog.text
    assert not (tmp_path / VECTORS).exists()
    assert vectors.bring("turns", TEA) == 3
    assert keys(vectors, "green tea", 1) == ["tea"]
    assert keys(vectors_in(tmp_path, changed), "green tea", 1) == ["tea"]


def test_a_file_that_is_taken_away_is_made_again(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    (tmp_path / VECTORS).unlink()
    assert keys(vectors, "tea") == []
    assert vectors.bring("turns", TEA) == 3
    assert vectors_in(tmp_path).count("turns") == 3


@pytest.mark.parametrize("at", [0, 50, 4096 + 30, -200, -1])
def test_a_damaged_file_is_begun_anew_or_was_not_damaged(tmp_path, at, caplog):
    vectors_in(tmp_path).bring("turns", [passage(str(number), f"text {number}") for number in range(40)])
    file = tmp_path / VECTORS
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)
    vectors = vectors_in(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = vectors.nearest("turns", "text 7", 1)
    if found:
        assert found[0].key == "7"
    else:
        assert "is begun anew" in caplog.text
        assert not file.exists()
    vectors.bring("turns", [passage(str(number), f"text {number}") for number in range(40)])
    assert keys(vectors_in(tmp_path), "text 7", 1) == ["7"]


@pytest.mark.parametrize("damage", [b"", b"no database at all", b"SQLite format 3\0" + bytes(100)])
def test_what_is_no_such_file_is_begun_anew(tmp_path, damage):
    (tmp_path / VECTORS).write_bytes(damage)
    vectors = vectors_in(tmp_path)
    assert keys(vectors, "tea") == []
    assert vectors.bring("turns", TEA) == 3
    assert vectors_in(tmp_path).count("turns") == 3


def test_a_changed_vector_is_noticed(tmp_path, caplog):
    embedder = BagOfWords()
    vectors_in(tmp_path, embedder).bring("turns", TEA)
    file = tmp_path / VECTORS
    data = file.read_bytes()
    place = data.index(spelled(embedder, "she drinks green tea"))
    file.write_bytes(data[: place + 3] + bytes([data[place + 3] ^ 1]) + data[place + 4 :])
    with caplog.at_level(logging.WARNING):
        assert keys(vectors_in(tmp_path), "tea") == []
    assert "a checksum does not match" in caplog.text


def test_without_a_folder_vectors_are_kept_in_this_process(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path / "none", embedder)
    assert vectors.bring("turns", TEA) == 3
    assert keys(vectors, "green tea", 1) == ["tea"]
    assert not (tmp_path / "none").exists()
    (tmp_path / "none").mkdir()
    assert vectors.bring("turns", TEA) == 0
    assert len(embedder.read) == 3
    assert vectors_in(tmp_path / "none").count("turns") == 3


def test_a_folder_that_cannot_be_written_is_read_and_the_rest_kept_in_this_process(tmp_path, monkeypatch):
    embedder = BagOfWords()
    vectors_in(tmp_path, embedder).bring("turns", TEA[:2])
    # No mode of the folder would keep root from writing.
    monkeypatch.setattr(os, "access", lambda *_: False)
    vectors = vectors_in(tmp_path, embedder)
    assert vectors.count("turns") == 2
    assert vectors.bring("turns", TEA) == 1
    assert vectors.count("turns") == 3
    monkeypatch.undo()
    assert vectors_in(tmp_path).count("turns") == 2


def test_who_cannot_write_reads_what_others_write_and_lets_go_of_what_they_erase(tmp_path, monkeypatch):
    embedder = BagOfWords()
    vectors, other = vectors_in(tmp_path, embedder), vectors_in(tmp_path)
    monkeypatch.setattr(vectors._file, "open_to_erasures", lambda: False)
    other.bring("turns", TEA[1:2])
    assert vectors.bring("turns", TEA[1:]) == 1
    assert embedder.read == ["python and rust programs"]
    other.bring("turns", TEA[:2])
    assert vectors.has("turns", "tea") or keys(vectors, "green tea", 1) == ["tea"]

    def erase(_: Sequence[str]) -> None:
        other.purge({"turns": TEA[1:2]})

    embedder.before = erase
    assert vectors.bring("turns", [*TEA, passage("new", "a new thing")]) == 0
    assert keys(vectors, "green tea") == ["dog"]


def test_a_file_that_cannot_be_read_is_told_of_once_and_not_written(tmp_path, caplog, monkeypatch):
    vectors_in(tmp_path).bring("turns", TEA[:1])
    before = (tmp_path / VECTORS).read_bytes()
    vectors = vectors_in(tmp_path)

    refused: list[object] = []

    def refuse(*_: object) -> None:
        refused.append(_)
        raise UnusableError("unable to open database file")

    monkeypatch.setattr(vectors._file, "_read", refuse)
    with caplog.at_level(logging.WARNING):
        assert vectors.bring("turns", TEA) == 3
        assert keys(vectors, "green tea", 1) == ["tea"]
    assert caplog.text.count("unable to open") == 1
    assert len(refused) == 1
    assert (tmp_path / VECTORS).read_bytes() == before


def test_a_file_that_cannot_be_read_any_more_is_not_written_any_more(tmp_path, monkeypatch):
    embedder = BagOfWords()
    vectors, other = vectors_in(tmp_path, embedder), vectors_in(tmp_path)
    vectors.bring("turns", TEA[:1])

    def refuse(*_: object) -> None:
        raise UnusableError("unable to open database file")

    def change(_: Sequence[str]) -> None:
        other.bring("facts", TEA[:1])
        monkeypatch.setattr(vectors._file, "_read", refuse)

    embedder.before = change
    assert vectors.bring("turns", TEA) == 2
    assert keys(vectors, "dog park", 1) == ["dog"]
    assert (other.count("turns"), other.count("facts")) == (1, 1)


def test_a_folder_that_refuses_writing_is_told_of_once(tmp_path, caplog):
    (tmp_path / "vectors.lock").mkdir()
    vectors = vectors_in(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert vectors.bring("turns", TEA) == 3
        assert vectors.bring("turns", [*TEA, passage("new", "a new thing")]) == 1
    assert caplog.text.count("kept in this process only") == 1
    assert keys(vectors, "green tea", 1) == ["tea"]
    assert not (tmp_path / VECTORS).exists()


def test_a_full_disk_leaves_the_vectors_in_this_process(tmp_path, caplog, monkeypatch):
    import sqlite3

    vectors = vectors_in(tmp_path)

    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(vectors._file, "_write", full)
    with caplog.at_level(logging.WARNING):
        assert vectors.bring("turns", TEA) == 3
    assert "disk is full" in caplog.text
    assert keys(vectors, "green tea", 1) == ["tea"]


# Erasing


def test_an_erasure_leaves_no_byte_of_what_does_not_stand(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    gone = spelled(embedder, "she drinks green tea")
    stays = spelled(embedder, "the dog runs in the park")
    assert gone in bytes_of(tmp_path)
    vectors.purge({"turns": TEA[1:]})
    assert gone not in bytes_of(tmp_path)
    assert stays in bytes_of(tmp_path)
    assert set(keys(vectors, "green tea")) == {"dog", "code"}
    embedder.read.clear()
    assert vectors.bring("turns", TEA[1:]) == 0
    assert embedder.read == []


def test_an_erasure_that_knows_of_nothing_takes_everything(tmp_path):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    keys(vectors, "tea")
    vectors.purge(None)
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.lock"}
    assert keys(vectors, "tea") == []
    assert vectors.bring("turns", TEA) == 3


def test_what_stands_only_with_another_text_is_erased(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    vectors.purge({"turns": [passage("tea", "[erased]"), *TEA[1:]]})
    assert spelled(embedder, "she drinks green tea") not in bytes_of(tmp_path)
    assert not vectors.has("turns", "tea")


def test_another_process_lets_go_of_what_was_erased(tmp_path):
    one, two = vectors_in(tmp_path), vectors_in(tmp_path)
    one.bring("turns", TEA)
    assert two.count("turns") == 3
    one.purge(None)
    assert keys(two, "green tea") == []
    assert len(two._spaces) == 0
    one.bring("turns", TEA)
    assert two.count("turns") == 3
    two.purge({"turns": TEA[1:]})
    assert set(keys(one, "green tea")) == {"dog", "code"}


@pytest.mark.parametrize("who", ["the same", "another", "one that embeds nothing"])
@pytest.mark.parametrize("has_file", [True, False])
def test_what_is_erased_while_it_is_embedded_is_not_kept(tmp_path, who, has_file):
    embedder = BagOfWords()
    vectors, other = vectors_in(tmp_path, embedder), vectors_in(tmp_path)
    if has_file:
        vectors.bring("turns", TEA[1:])

    def erase(texts: Sequence[str]) -> None:
        embedder.before = lambda texts: None
        match who:
            case "the same":
                vectors.purge({"turns": TEA[1:]})
            case "another":
                other.purge({"turns": TEA[1:]})
            case _:
                VectorFile(tmp_path / VECTORS, "").erase()

    embedder.before = erase
    assert vectors.bring("turns", TEA) == 0
    assert not vectors.has("turns", "tea")
    assert keys(vectors_in(tmp_path), "green tea", keep={"tea"}) == []
    assert spelled(embedder, "she drinks green tea") not in bytes_of(tmp_path)
    assert vectors.bring("turns", TEA[1:]) in (0, 2)
    assert set(keys(vectors, "green tea")) == {"dog", "code"}


@pytest.mark.parametrize("who", ["the same", "another"])
def test_what_is_erased_after_it_was_listed_is_not_kept(tmp_path, who):
    vectors, other = vectors_in(tmp_path), vectors_in(tmp_path)

    def listed() -> Iterator[Passage]:
        yield from TEA
        (vectors if who == "the same" else other).purge(None)

    assert vectors.bring("turns", listed()) == 0
    assert keys(vectors_in(tmp_path), "green tea") == []


def test_without_a_folder_an_erasure_reaches_what_this_process_holds(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path / "none", embedder)
    vectors.bring("turns", TEA)
    vectors.purge({"turns": TEA[1:]})
    assert set(keys(vectors, "green tea")) == {"dog", "code"}

    def erase(texts: Sequence[str]) -> None:
        vectors.purge(None)

    embedder.before = erase
    assert vectors.bring("turns", TEA) == 0
    assert keys(vectors, "green tea") == []


def test_an_erasure_where_nothing_was_kept_leaves_nothing_behind(tmp_path):
    VectorFile(tmp_path / VECTORS, "").erase()
    vectors_in(tmp_path).purge(None)
    VectorFile(tmp_path / "none" / VECTORS, "").erase()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_erased_too(tmp_path):
    vectors_in(tmp_path).bring("turns", TEA)
    for left in (f"{VECTORS}-journal", f"{VECTORS}-wal", f"{VECTORS}.new"):
        (tmp_path / left).write_bytes(b"left")
    VectorFile(tmp_path / VECTORS, "").erase()
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.lock"}


def test_a_file_from_before_an_erasure_that_was_cut_short_is_not_looked_at(tmp_path, caplog):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    with vectors._file.locked():
        vectors._file._mark()
    with caplog.at_level(logging.WARNING):
        assert keys(vectors_in(tmp_path), "green tea") == []
    assert "before an erasure" in caplog.text
    assert not (tmp_path / VECTORS).exists()


def test_an_erasure_that_cannot_be_done_is_an_error(tmp_path, monkeypatch):
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(type(tmp_path), "unlink", refuse)
    with pytest.raises(StoreError, match=r"cannot erase .*vectors\.sqlite: Read-only"):
        vectors.purge(None)


def test_an_erasure_lets_go_of_the_queries(tmp_path):
    embedder = BagOfWords()
    vectors = vectors_in(tmp_path, embedder)
    vectors.bring("turns", TEA)
    keys(vectors, "green tea")
    vectors.purge(None)
    assert not vectors._queries


def test_a_query_that_is_asked_while_something_is_erased_is_not_kept(tmp_path):
    class Slow(BagOfWords):
        def query(self, text: str) -> np.ndarray:
            vectors.purge(None)
            return super().query(text)

    vectors = vectors_in(tmp_path, Slow())
    vectors.bring("turns", TEA)
    assert keys(vectors, "green tea") == []
    assert not vectors._queries


# Processes


def _child_brings(folder: Path, first: int, ready: multiprocessing.synchronize.Barrier) -> None:
    vectors = vectors_in(folder)
    ready.wait(PATIENCE)
    vectors.bring("turns", [passage(str(number), f"text {number}") for number in range(first, 300)])
    os._exit(0)


def test_processes_write_at_once_and_nothing_is_lost_or_twice(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(3)
    children = [context.Process(target=_child_brings, args=(tmp_path, 0, ready)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
        assert child.exitcode == 0
    vectors = vectors_in(tmp_path)
    assert vectors.count("turns") == 300
    assert len(set(vectors._numbers["turns"].values())) == 300


def test_a_forked_process_asks_for_itself(tmp_path):
    # A home's state makes others in the child; see the test of a child in tests/projections/index/test_following.py.
    vectors = vectors_in(tmp_path)
    vectors.bring("turns", TEA)
    keys(vectors, "green tea")
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with vectors._mutex:
            held.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        vectors = vectors_in(tmp_path)
        right = keys(vectors, "green tea", 1) == ["tea"] and vectors.bring("turns", TEA[:2]) == 0
        os._exit(0 if right else 1)
    leave.set()
    thread.join(PATIENCE)
    assert os.waitpid(child, 0)[1] == 0
    assert vectors.count("turns") == 2


# As a whole


_texts = st.sampled_from([f"{one} {two}" for one in ("tea", "dog", "code") for two in ("green", "runs", "rust", "")])
_corpora = st.dictionaries(st.sampled_from("abcdefgh"), _texts, max_size=8)


@settings(max_examples=examples(1 / 3))
@given(steps=st.lists(st.tuples(_corpora, st.sampled_from(["bring", "stop", "purge", "other", "reopen"])), max_size=6))
def test_whatever_happened_it_is_as_one_that_was_built_at_once(steps, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    vectors, other = vectors_in(folder), vectors_in(folder)
    ever: set[str] = set()
    for corpus, how in steps:
        stand = passages(**corpus)
        match how:
            case "bring":
                vectors.bring("turns", stand)
            case "stop":
                vectors.bring("turns", stand, stop=lambda: True)
            case "other":
                other.bring("turns", stand)
            case "purge":
                vectors.purge({"turns": stand})
                standing = {spelled(BagOfWords(), text) for text in corpus.values()}
                for gone in {spelled(BagOfWords(), text) for text in ever if text.strip()} - standing:
                    assert gone not in bytes_of(folder)
            case _:
                vectors = vectors_in(folder)
        ever |= set(corpus.values())
    last = passages(**(steps[-1][0] if steps else {}))
    vectors.bring("turns", last)
    fresh = vectors_in(tmp_path_factory.mktemp("fresh"))
    fresh.bring("turns", last)
    for query in ("green tea", "dog runs", "nothing of that"):
        assert vectors.nearest("turns", query, 5) == fresh.nearest("turns", query, 5)
        assert other.nearest("turns", query, 5) == fresh.nearest("turns", query, 5)
        assert_allclose(
            [similarities(vectors, query)[one.key] for one in last],
            [similarities(fresh, query)[one.key] for one in last],
            atol=1e-6,
        )


@given(
    numbers=st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=30),
    keep=st.none() | st.sets(st.integers(0, 30)),
    k=st.integers(1, 12),
)
@settings(max_examples=examples(1 / 3))
def test_the_nearest_are_those_of_going_through_all(numbers, keep, k, tmp_path_factory):
    embedder = BagOfWords(dimensions=8)
    vectors = vectors_in(tmp_path_factory.mktemp("v"), embedder)
    vectors.bring("turns", [passage(str(number), f"w{number} w{number % 3}") for number in numbers])
    allowed = None if keep is None else {str(number) for number in keep}
    alike = similarities(vectors, "w1 w2")
    ranked = sorted((-round(score, 5), key) for key, score in alike.items() if allowed is None or key in allowed)
    found = vectors.nearest("turns", "w1 w2", k, allowed)
    assert len(found) == min(k, len(ranked))
    assert_allclose([one.score for one in found], [-score for score, _ in ranked[:k]], atol=2e-5)
    assert [(-one.score, one.key) for one in found] == sorted((-one.score, one.key) for one in found)
