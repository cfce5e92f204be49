"""Doctor says of everything whether it is in order and how to mend it, and no state of a home is too bad for it."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from doubles.misbehaving import MisbehavingServer, Response, completion, json_response
from fakes import FakeClock, ScriptedModel, exchange, open_home
from small_home import LEDGER, SCOPE, TRANSCRIPT, USER, Home, redacted

from backstory.ledger.core.commit import FORMAT, head_of
from backstory.ledger.core.scope import Scope
from backstory.ledger.engines.jsonl.store import JsonlStore
from backstory.lifecycle.maintenance import doctor
from backstory.projections.index.index import ScopeIndex
from backstory.projections.integrity.remedies import REMEDIES, Check
from backstory.testing.lines import as_file, by_hand, erase

MODEL = {"OPENAI_API_KEY": "none"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("doctor") / "home")


@pytest.fixture
def home(template: Home, tmp_path: Path) -> Iterator[Home]:
    """A copy of the memory."""
    kept, template.path = template.path, Path(shutil.copytree(template.path, tmp_path / "home"))
    yield template
    template.path = kept


def examine(
    home: Path, *, clock: FakeClock | None = None, environ: dict[str, str] = MODEL, **more: object
) -> list[Check]:
    checks = doctor(home, clock=clock or FakeClock(), environ=environ, **more)  # type: ignore[arg-type]
    assert all(check.check and check.hint and "\n" not in check.hint for check in checks)
    return list(checks)


def wrong(checks: Sequence[Check]) -> list[str]:
    return [check.check for check in checks if not check.ok]


def hint(checks: Sequence[Check], name: str) -> str:
    return next(check.hint for check in checks if check.check == name)


def test_what_is_in_order_is_listed_too(home: Home) -> None:
    before = sorted(home.path.rglob("*"))
    for scope in (None, SCOPE):
        checks = examine(home.path, scope=scope)
        assert wrong(checks) == []
        assert [check.check for check in checks] == [
            "python",
            "configuration",
            "model",
            "extras",
            "home",
            "private",
            "free space",
            "writing",
            "syncing",
            "locking",
            "readable",
            "torn tails",
            "moved aside",
            "torn pieces",
            "left over",
            "links",
            "locks",
            "clock",
            "alike",
            "logs",
            "parked updates",
        ]
    assert sorted(home.path.rglob("*")) == before


# The set-up.


def test_a_home_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    checks = examine(tmp_path / "a" / "b")
    assert wrong(checks) == []
    assert "first write creates it" in hint(checks, "home")
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert wrong(examine(tmp_path / "home")) == ["home"]
    assert wrong(examine(tmp_path / "home" / "below")) == ["home"]


def test_a_home_that_cannot_be_written_to(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def read_only(path: object, flags: int, *more: object, **others: object) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", read_only)
    checks = examine(home.path)
    assert wrong(checks) == ["writing"]
    assert "Read-only file system" in hint(checks, "writing")


def test_a_folder_that_cannot_be_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = open

    def refusing(path: str | Path, *more: object, **others: object) -> object:
        if str(path).endswith("ledger.jsonl"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *more, **others)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", refusing)
    checks = examine(home.path)
    assert wrong(checks) == ["logs", "logs"]
    assert any("cannot read" in check.hint and "mode" in check.hint for check in checks)


def test_a_disk_that_cannot_sync(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fdatasync", refuse)
    assert wrong(examine(home.path)) == ["syncing"]


@pytest.mark.parametrize("how", ["refused", "given to two"])
def test_a_file_system_without_locks(home: Home, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def flock(descriptor: int, operation: int) -> None:
        if how == "refused" and operation & fcntl.LOCK_EX:
            raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    checks = examine(home.path)
    assert "locking" in wrong(checks)
    assert "local disk" in hint(checks, "locking")


def test_too_little_space(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, 5 << 20))
    checks = examine(home.path)
    assert wrong(checks) == ["free space"]
    assert "5 MiB" in hint(checks, "free space")


@pytest.mark.parametrize("which", [".", "users/ada", "users/ada/ledger.jsonl"])
def test_what_others_can_read(home: Home, which: str) -> None:
    path = home.path / which
    path.chmod(path.stat().st_mode | 0o040)
    checks = examine(home.path)
    assert wrong(checks) == ["private"]
    assert f"{path} can be read by others" in hint(checks, "private")
    assert "chmod" in hint(checks, "private")


def test_what_belongs_to_another(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert wrong(examine(home.path)) == ["private"]


def test_to_have_no_model_is_wrong_only_where_it_is_to_be_asked(home: Home) -> None:
    checks = examine(home.path, environ={})
    assert wrong(checks) == []
    assert "OPENAI_API_KEY" in hint(checks, "model")
    assert wrong(examine(home.path, environ={}, ask=True)) == ["model"]


def test_a_base_url_without_a_scheme_is_named_before_anything_is_asked(home: Home) -> None:
    checks = examine(home.path, environ={"OPENAI_BASE_URL": "localhost:11434/v1"})
    assert wrong(checks) == ["model"]
    assert "has to begin with http:// or https://" in hint(checks, "model")


@pytest.mark.parametrize(
    ("response", "right", "said"),
    [
        (completion('{"newFacts": []}'), True, "answers"),
        (completion("Certainly! Here you are."), False, "without the JSON"),
        (json_response({"error": {"message": "model 'm-1' not found"}}, status=404), False, "not found"),
    ],
    ids=["json", "prose", "missing"],
)
def test_a_model_is_asked_when_that_is_wanted(home: Home, response: Response, right: bool, said: str) -> None:
    with MisbehavingServer(response, repeat=True) as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "BACKSTORY_MODEL": "m-1"}
        assert wrong(examine(home.path, environ=environ)) == []
        assert server.requests == []
        checks = examine(home.path, environ=environ, ask=True)
    assert wrong(checks) == ([] if right else ["model"])
    assert said in hint(checks, "model")


def test_which_model_would_be_asked_is_said_without_its_password(home: Home) -> None:
    environ = {"OPENAI_BASE_URL": "http://me:secret@here/v1", "BACKSTORY_MODEL": "m-1", "OPENAI_API_KEY": "key"}
    told = hint(examine(home.path, environ=environ), "model")
    assert "m-1 at http://…@here/v1 would be asked" in told
    assert "secret" not in told
    assert "key" not in told


def test_the_models_package_is_missing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert wrong(examine(home.path)) == ["model"]


@pytest.mark.parametrize(
    "config", ["nowhere.yaml", {"max_fact": 3}, {"max_facts": 3}, {"event_store": "abacus:"}], ids=str
)
def test_a_configuration_that_does_not_load_keeps_it_from_nothing_else(home: Home, config: object) -> None:
    home.put(LEDGER, home.ledger[1:])
    checks = examine(home.path, config=config)
    assert wrong(checks) == ["configuration", "logs", "missing"]


def test_which_extras_are_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ['pytest>=8; extra == "dev"', 'typer>=1; extra == "web"', "abacus; extra == 'sums'", "orjson>=3"]
    needs += ["lyre; extra == 'songs'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs)
    told = hint(examine(home.path), "extras")
    assert told == "there: web; not there: songs, sums (pip install 'backstory[songs]' adds one)"
    monkeypatch.setattr("importlib.metadata.requires", lambda name: needs[:1])
    assert hint(examine(home.path), "extras") == "this version has none"


# What lies around.


@pytest.mark.parametrize(("now", "fault"), [(NOON, False), (NOON - timedelta(days=365), True)])
def test_a_commit_from_the_future(home: Home, now: datetime, fault: bool) -> None:
    checks = examine(home.path, clock=FakeClock(now))
    assert wrong(checks) == (["clock"] if fault else [])
    assert not fault or "2026-03-01" in hint(checks, "clock")


def test_a_torn_tail(home: Home) -> None:
    home.file(TRANSCRIPT).write_bytes(as_file(home.transcript) + b"x")
    checks = examine(home.path)
    assert wrong(checks) == ["torn tails", "logs", "torn_tail"]
    assert f"{TRANSCRIPT}.jsonl" in hint(checks, "torn tails")


@pytest.mark.parametrize("name", ["ledger.damaged-1", "transcript.damaged-12", "memory.json.edited-3"])
def test_what_was_moved_aside_waits_for_a_person(home: Home, name: str) -> None:
    home.document.with_name(name).touch(0o600)
    checks = examine(home.path)
    assert wrong(checks) == ["moved aside"]
    assert f"users/ada/{name}" in hint(checks, "moved aside")


def test_a_torn_piece_is_said_and_is_no_fault(home: Home) -> None:
    home.document.with_name("ledger.torn-1").touch(0o600)
    checks = examine(home.path)
    assert wrong(checks) == []
    assert "ledger.torn-1" in hint(checks, "torn pieces")


@pytest.mark.parametrize("name", [".memory.json.new", ".ledger.erasing", ".transcript.mending", ".ledger.copying"])
def test_what_a_killed_process_left(home: Home, name: str) -> None:
    path = home.document.with_name(name)
    path.touch(0o600)
    for age, faults in ((0, []), (3_600, ["left over"])):
        os.utime(path, (NOON.timestamp() - age,) * 2)
        assert wrong(examine(home.path)) == faults


def test_a_lock_that_is_held_for_long(home: Home) -> None:
    clock = FakeClock()
    with JsonlStore(home.path).locked(LEDGER):
        checks = examine(home.path, clock=clock, config={"file_lock_timeout_seconds": 1})
    assert wrong(checks) == ["locks"]
    assert f"{LEDGER}.lock" in hint(checks, "locks")
    assert 0 < sum(clock.slept) < 1
    assert wrong(examine(home.path)) == []


def test_a_lock_that_is_held_for_a_moment_is_no_fault(home: Home) -> None:
    held = JsonlStore(home.path).locked(LEDGER)
    held.__enter__()

    class Passing(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) == 3:
                held.__exit__(None, None, None)

    assert wrong(examine(home.path, clock=Passing())) == []


# What the logs say.


def damaged(home: Home, kind: str) -> None:
    """Bring about each kind of problem."""
    one, *rest = home.ledger
    match kind:
        case "torn_tail":
            home.file(LEDGER).write_bytes(as_file(home.ledger) + b"x")
        case "altered":
            home.put(LEDGER, [one, b"", *rest])
        case "missing":
            home.put(LEDGER, rest)
        case "reordered":
            home.put(LEDGER, [*rest, one])
        case "duplicate_seq":
            home.put(LEDGER, [one, one, *rest])
        case "broken_prev":
            alone = by_hand([b'{"kind":"policy"}'], after=head_of(home.ledger[-2]))
            home.put(LEDGER, [*home.ledger[:-1], alone, by_hand([b'{"kind":"policy"}'], seq=7, after=head_of(one))])
        case "unexplained_redaction":
            home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
        case "impossible":
            home.put(LEDGER, [*home.ledger, by_hand([b'{"kind":"genesis"}'], after=head_of(home.ledger[-1]))])
        case "document_differs":
            home.document.write_bytes(b"{}")


NOT_OF_A_LOG = {"head_not_found", "index_differs", "bad_signature", "witness_unreadable"}


@pytest.mark.parametrize("scope", [None, SCOPE])
@pytest.mark.parametrize("kind", sorted(set(REMEDIES) - NOT_OF_A_LOG))
def test_each_problem_of_a_log_comes_with_its_remedy(home: Home, kind: str, scope: Scope | None) -> None:
    damaged(home, kind)
    checks = examine(home.path, scope=scope)
    assert kind in wrong(checks)
    assert "logs" in wrong(checks)
    assert REMEDIES[kind] in hint(checks, kind)
    assert "users/ada/" in hint(checks, kind)


def test_the_scope_that_is_named_is_verified_once_however_large_it_is(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.put(LEDGER, home.ledger[1:])
    monkeypatch.setattr("backstory.projections.integrity.log_check._VERIFIED_BYTES", 10)
    assert wrong(examine(home.path)) == []
    assert wrong(examine(home.path, scope=SCOPE)) == ["logs", "missing"]


def test_an_index_that_differs(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {SCOPE: ["places of facts differ from the log"]}
    (home.path / "users" / "ada" / "index.sqlite").touch(0o600)
    monkeypatch.setattr(ScopeIndex, "differs", lambda index: told[index.scope])
    checks = examine(home.path)
    assert wrong(checks) == ["logs", "index_differs"]
    assert "users/ada/index.sqlite" in hint(checks, "index_differs")


def test_every_kind_of_problem_has_a_remedy() -> None:
    assert set(REMEDIES) == {
        "torn_tail",
        "altered",
        "missing",
        "reordered",
        "duplicate_seq",
        "broken_prev",
        "unexplained_redaction",
        "impossible",
        "document_differs",
        "index_differs",
        "head_not_found",
        "bad_signature",
        "witness_unreadable",
    }


def test_a_newer_format_is_told_and_stops_nothing(home: Home) -> None:
    newer = by_hand([b'{"kind":"policy"}', b'{"type":"FactDreamt"}'], v=FORMAT + 1, after=head_of(home.ledger[-1]))
    home.put(LEDGER, [*home.ledger, newer])
    checks = examine(home.path)
    assert wrong(checks) == ["logs", "logs"]
    assert "newer backstory" in checks[-2].hint


def test_a_log_in_the_wrong_place(home: Home) -> None:
    shutil.copytree(home.path / "users/ada", home.path / "users/Bob")
    checks = examine(home.path)
    assert wrong(checks) == ["logs", "owner"]
    assert "users/Bob" in hint(checks, "owner")


def test_updates_that_were_parked(home: Home) -> None:
    with open_home(home.path, ScriptedModel("no reply at all")) as bs:
        memory = bs.memory(USER)
        memory.record("t7", exchange("tea"))
        assert memory.extract().failed == 1
    checks = examine(home.path)
    assert wrong(checks) == ["parked updates"]
    assert "2 turns of thread t7" in hint(checks, "parked updates")
    assert "discard" in hint(checks, "parked updates")


def test_of_a_large_home_a_part_is_verified_and_it_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bob", "eve"):
        with open_home(home.path) as bs:
            bs.memory(name).add_fact("a" * 3_000)
        home.put(f"users/{name}/ledger", home.file(f"users/{name}/ledger").read_bytes().splitlines()[:1])
    home.put("users/eve/ledger", [b"x"])
    monkeypatch.setattr(
        "backstory.projections.integrity.log_check._VERIFIED_BYTES",
        sum(p.stat().st_size for p in home.path.rglob("*.jsonl")) - 5,
    )
    checks = examine(home.path)
    assert "2 scopes were verified" in hint(checks, "logs")
    assert "1 larger ones were not: run `verify --all`" in hint(checks, "logs")
    assert "altered" in wrong(examine(home.path, scope=Scope("eve")))


def test_of_many_memories_a_thousand_are_looked_at_and_it_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.lifecycle.maintenance._FOLDERS", 1)
    with open_home(home.path) as bs:
        for name in ("bob", "eve", "zoe"):
            bs.memory(name).add_fact("sings")
    checks = examine(home.path)
    assert "name others with --user" in hint(checks, "more")
    home.put("users/zoe/ledger", [b"x"])
    assert wrong(examine(home.path)) == []
    assert wrong(examine(home.path, scope=Scope("zoe"))) == ["logs", "altered"]


def test_every_place_where_a_memory_can_lie_is_looked_at(tmp_path: Path) -> None:
    owners = [(None, None), (None, "bot"), (USER, None), (USER, "bot"), ("u" * 300, None)]
    for user, agent in owners:
        with open_home(tmp_path / "home") as bs:
            bs.memory_of(Scope(user, agent)).add_fact("sings")
    for user, agent in owners:
        folder = tmp_path / "home" / Scope(user, agent).folder
        ledger = folder / "ledger.jsonl"
        data = ledger.read_bytes()
        ledger.write_bytes(data.replace(b"sings", b"rings"))
        assert "altered" in wrong(examine(tmp_path / "home"))
        ledger.write_bytes(data)
    assert wrong(examine(tmp_path / "home")) == []


@pytest.mark.parametrize("name", ["ledger.jsonl", "transcript.jsonl", "memory.json", "ledger.lock"])
@pytest.mark.parametrize("how", ["a folder", "gone", "garbage", "a loop"])
def test_no_state_of_a_file_is_too_bad(home: Home, name: str, how: str) -> None:
    path = home.document.with_name(name)
    path.unlink(missing_ok=True)
    match how:
        case "a folder":
            path.mkdir(0o700)
        case "garbage":
            path.write_bytes(os.urandom(3_000))
            path.chmod(0o600)
        case "a loop":
            path.symlink_to(path)
    for scope in (None, SCOPE):
        examine(home.path, scope=scope)


def test_an_erasure_that_is_done_is_in_order(home: Home) -> None:
    home.put(LEDGER, redacted(home, TRANSCRIPT, 1, 1))
    home.put(TRANSCRIPT, [erase(home.transcript[0], 1), home.transcript[1]])
    home.document.unlink()
    assert wrong(examine(home.path)) == []


def test_an_engine_that_does_not_load_is_told_of(tmp_path: Path) -> None:
    checks = doctor(tmp_path, config={"storage_class": "nowhere.at_all:Store"}, environ={})
    told = next(check for check in checks if check.check == "configuration")
    assert not told.ok
    assert "nowhere.at_all" in told.hint


@pytest.mark.parametrize("key", ["patterns_dir", "prompts_dir"])
def test_a_folder_of_overrides_that_cannot_be_used_is_told(home: Home, tmp_path: Path, key: str) -> None:
    checks = examine(home.path, config={key: str(tmp_path / "nowhere")})
    assert wrong(checks) == ["configuration"]
    assert key in hint(checks, "configuration")
    assert "model" in [check.check for check in checks]


def test_what_is_wrong_in_a_folder_of_overrides_is_told(home: Home, tmp_path: Path) -> None:
    (tmp_path / "update.md").write_text("{{converstion}}", "utf-8")
    checks = examine(home.path, config={"prompts_dir": str(tmp_path)})
    assert wrong(checks) == ["configuration"]
    assert "{{conversation}}" in hint(checks, "configuration")


def test_users_and_agents_that_look_alike_are_named(tmp_path: Path) -> None:
    with open_home(tmp_path / "home", dedup_key="exact") as bs:
        for user, agent in (("zo\u00eb", None), ("zoe\u0308", None), ("zoe", None), ("ada", "Coder"), ("ada", "coder")):
            bs.memory(user, agent).add_fact("Likes tea")
    checks = examine(tmp_path / "home")
    assert wrong(checks) == ["alike"]
    told = hint(checks, "alike")
    assert Scope("zo\u00eb").folder in told
    assert Scope("zoe\u0308").folder in told
    assert "users/ada/agents/Coder and users/ada/agents/coder" in told
    assert "users/zoe," not in told
