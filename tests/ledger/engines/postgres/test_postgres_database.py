"""What the PostgreSQL engine keeps in the database, who may do what there, and what is said when something is wrong."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest
from doubles import run
from doubles.postgres_engine import PostgresEngine
from fakes import PATIENCE
from psycopg.conninfo import conninfo_to_dict

from backstory import Backstory
from backstory.ledger.core.errors import ConfigError, LockTimeoutError, StoreError
from backstory.ledger.engines.postgres.address import PostgresAddress
from backstory.ledger.engines.postgres.changes import _CHANGED, _Position
from backstory.ledger.engines.postgres.holds import lock_of
from backstory.ledger.engines.postgres.migrating import migrate
from backstory.ledger.engines.postgres.store import PostgresStore
from backstory.testing.conformance import STREAM, lines_of
from backstory.testing.lines import chain, erase, fill, sealed, turn

DOCS = Path(__file__).resolve().parents[4] / "docs/how-to/postgres.md"
SECRET = "s3cr3t-w0rd"  # noqa: S105
MARK = "the quick brown secret of ada"


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    engine = PostgresEngine()
    yield engine
    engine.close()


@pytest.fixture
def empty(engine: PostgresEngine) -> Iterator[str]:
    """The address of a new database."""
    with engine.another_database() as name:
        yield engine.server.url(name)


def of_this_database(change: str) -> bytes:
    """The statement that changes the database in which it runs."""
    return f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {change}', current_database()); END $$".encode()


# Migrations and addresses.


def test_a_database_without_tables_is_told_how_to_get_them(engine: PostgresEngine, empty: str) -> None:
    with pytest.raises(StoreError, match=r"cannot open the store in postgresql://127.* run `backstory migrate`"):
        engine.open(url=empty)
    done = migrate(empty)
    assert done == ["0001_streams.sql", "0002_changes.sql", "0003_statistics.sql"]
    assert re.findall(r"^    run: (.*)$", DOCS.read_text("utf-8"), re.MULTILINE) == done
    assert migrate(empty) == []
    engine.open(url=empty).append(STREAM, [chain(1)[0]], 0)


def test_the_encoding_of_a_database_does_not_matter(engine: PostgresEngine, tmp_path: Path) -> None:
    with ExitStack() as stack:
        latin = stack.enter_context(engine.another_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
        migrate(url := engine.server.url(latin))
        bs = stack.enter_context(Backstory.open(tmp_path, background=False, event_store=url))
        memory = bs.memory("Zoë 茶")
        memory.add_fact("likes 茶 and 💡")
        assert [scope.user for scope in bs.scopes()] == ["Zoë 茶"]
        assert [found.content for found in memory.facts()] == ["likes 茶 and 💡"]
        memory.forget(matching="茶")
        assert memory.facts() == ()
        assert memory.verify().ok


def test_a_database_of_another_version_is_refused(engine: PostgresEngine, empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as connection:
        connection.execute("INSERT INTO backstory.migrations (version, name) VALUES (99, '0099_later.sql')")
    with pytest.raises(StoreError, match=r"has migration 99, .* use the newer backstory"):
        engine.open(url=empty)
    with psycopg.connect(empty) as connection:
        connection.execute("DELETE FROM backstory.migrations")
    with pytest.raises(StoreError, match="has migration 0, and this version needs 3: run `backstory migrate`"):
        engine.open(url=empty)


def test_a_migration_that_fails_leaves_nothing(engine: PostgresEngine, empty: str) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA backstory; CREATE TABLE backstory.removed ()")
    with pytest.raises(StoreError, match=r'cannot migrate in .*: relation "removed" already exists'):
        migrate(empty)
    with psycopg.connect(empty) as connection:
        assert connection.execute("SELECT to_regclass('backstory.commits')").fetchone() == (None,)
        connection.execute("DROP TABLE backstory.removed")
    assert migrate(empty)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"postgresql://ada:{SECRET}@127.0.0.1:1/db", StoreError),
        (f"postgresql://127.0.0.1:1/db?user=ada&password={SECRET}", StoreError),
        (f"postgresql://ada:{SECRET}@127.0.0.1:notaport/db", StoreError),
        (f"postgresql://ada:{SECRET}%zz@127.0.0.1/db", ConfigError),
        (f"postgresql://ada:x@127.0.0.1/db?nosuch={SECRET}", ConfigError),
    ],
)
def test_no_message_holds_the_password(url: str, kind: type[Exception]) -> None:
    for attempt in (lambda: PostgresStore(url, lock_timeout=0), lambda: migrate(url)):
        with pytest.raises(kind) as told:
            attempt()
        assert SECRET not in str(told.value)
        assert "ada" not in str(told.value)


@pytest.mark.parametrize("url", [f"postgresql://ada:{SECRET}@db/x", f"postgresql://db/x?sslpassword={SECRET}"])
def test_what_the_library_says_is_passed_on_without_secrets(url: str) -> None:
    assert PostgresAddress(url).scrubbed(f"cannot\nuse {SECRET}") == "cannot use …"


def test_a_store_is_named_without_its_password(engine: PostgresEngine) -> None:
    port = engine.server.port
    at = f"127.0.0.1:{port}/{engine.database}"
    store = engine.open(url=f"postgresql://owner:{SECRET}@{at}")
    assert str(store) == f"postgresql://{at}"
    assert repr(store) == f"PostgresStore('postgresql://{at}')"


def test_a_default_that_loses_commits_is_told_and_not_followed(
    engine: PostgresEngine, empty: str, caplog: pytest.LogCaptureFixture
) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as admin:
        admin.execute(of_this_database("SET synchronous_commit = off"))
    engine.open(url=empty)
    assert "has synchronous_commit = off: appends are made with it on" in caplog.text
    with psycopg.connect(empty) as connection:
        connection.execute(
            "SELECT backstory.append('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', NULL, NULL)"
        )  # fmt: skip
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_isolation_in_which_a_write_could_pass_a_seal_is_refused(engine: PostgresEngine, level: str) -> None:
    option = f"-cdefault_transaction_isolation%3D{level.replace(' ', '%5C%20')}"
    with pytest.raises(StoreError, match=rf"^postgresql://.* has default_transaction_isolation = {level}: ALTER ROLE"):
        engine.open(url=f"{engine.url}?options={option}")


def test_a_setting_that_is_in_the_way_is_named(engine: PostgresEngine) -> None:
    short, frozen = (
        engine.open(url=f"{engine.url}?options=-c{setting}")
        for setting in ("statement_timeout%3D50ms", "default_transaction_read_only%3Don")
    )
    with pytest.raises(StoreError, match="this is a standby, or default_transaction_read_only is on: connect to"):
        frozen.append(STREAM, [chain(1)[0]], 0)
    with engine.admin() as admin, admin.transaction():
        admin.execute("LOCK TABLE backstory.streams IN EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="raise statement_timeout for this role, unless an administrator"):
            short.append(STREAM, [chain(1)[0]], 0)


# Transactions.


def test_threads_share_transactions(engine: PostgresEngine) -> None:
    store = engine.open()
    threads = [threading.Thread(target=store.append, args=(f"users/u{n}/ledger", chain(1), 0)) for n in range(16)]
    with engine.admin() as admin, admin.transaction():
        admin.execute("LOCK TABLE backstory.commits IN SHARE MODE")
        for thread in threads:
            thread.start()
        end = time.monotonic() + PATIENCE
        while len(store._appends._waiting) < 12:
            assert time.monotonic() < end
            time.sleep(0.005)
    for thread in threads:
        thread.join(PATIENCE)
    with engine.admin() as admin:
        counted = admin.execute("SELECT count(*), count(DISTINCT xid) FROM backstory.commits").fetchone()
    # Four at a time, and each of these may hand over to one more before the rest is taken.
    assert counted is not None
    assert counted[0] == 16
    assert 5 <= counted[1] <= 8


def test_a_commit_that_commits_late_is_not_passed_over(engine: PostgresEngine) -> None:
    store = engine.open()
    fill(store, "users/early/ledger", chain(1))
    _, position = store.changed(None)
    with engine.admin() as late, late.transaction():
        late.execute("INSERT INTO backstory.streams (name, seq, hash, bytes) VALUES ('users/late/ledger', 1, 'h', 3)")
        late.execute(
            "INSERT INTO backstory.commits (stream, seq, line, hash, byte) "
            "SELECT id, 1, 'xx', 'h', 0 FROM backstory.streams WHERE name = 'users/late/ledger'"
        )
        # Begun later, and there before.
        fill(store, "users/soon/ledger", chain(1))
        names, position = store.changed(position)
        assert "users/soon/ledger" in names
        assert "users/late/ledger" not in names
    names, position = store.changed(position)
    assert "users/late/ledger" in names


def test_what_has_changed_is_told_and_what_has_not_is_told_no_more(engine: PostgresEngine) -> None:
    store, lines = engine.open(), chain(2)
    assert store.changed(None)[0] == []
    for name in ("users/ada/ledger", "users/bob/ledger"):
        fill(store, name, lines)
    _, position = store.changed(None)

    def told() -> list[str]:
        nonlocal position
        names, position = store.changed(position)
        return list(names)

    # Other transactions of the server, such as its own, may hold the position back for a while.
    end = time.monotonic() + PATIENCE
    while told():
        assert time.monotonic() < end
    store.append("users/bob/ledger", [chain(3)[2]], 2)
    assert told() == ["users/bob/ledger"]
    while told():
        assert time.monotonic() < end
    with store.locked("users/ada/ledger"):
        store.redact("users/ada/ledger", {1: erase(lines[0], 0)})
    assert "users/ada/ledger" in told()


def test_a_look_for_changes_reads_no_line_that_came_before(engine: PostgresEngine) -> None:
    store, lines = engine.open(), chain(3000)
    store.append(STREAM, lines[:1000], 0)
    with psycopg.connect(engine.url, autocommit=True) as connection:
        connection.execute("ANALYZE backstory.commits")
        store.append(STREAM, lines[1000:2999], 1000)
        store.append(STREAM, [lines[2999]], 2999)
        before = msgspec.json.decode(store.changed(None)[1], type=_Position)
        asked = {**msgspec.structs.asdict(before), "xid": before.newest}
        plan = connection.execute("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) " + _CHANGED, asked).fetchall()
        (size,) = connection.execute("SELECT pg_relation_size('backstory.commits') / 8192").fetchone() or (0,)
    # The first line of the plan with buffers is that of all.
    read = next(line for (line,) in plan if "Buffers" in line)
    assert sum(map(int, re.findall(r"(?:hit|read)=(\d+)", read))) < size / 3


def test_a_look_for_changes_starts_no_parallel_workers_where_there_are_no_statistics(
    engine: PostgresEngine, empty: str
) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute("ALTER TABLE backstory.commits SET (autovacuum_enabled = false)")
        connection.execute(
            "INSERT INTO backstory.commits (stream, seq, line, hash, byte) "
            "SELECT 1, n, convert_to(repeat('x', 700), 'UTF8'), n, 0 FROM generate_series(1, 100000) n"
        )
        before = msgspec.json.decode(engine.open(url=empty).changed(None)[1], type=_Position)
        asked = msgspec.structs.asdict(before)
        plan = connection.execute("EXPLAIN " + _CHANGED, asked).fetchall()
    assert "Gather" not in str(plan)


def test_a_follower_gets_the_lines_of_a_stream_in_order_though_one_commits_late(engine: PostgresEngine) -> None:
    store, lines = engine.open(), chain(3)
    store.append(STREAM, [lines[0]], 0)
    following = engine.open().follow(STREAM)
    assert next(following).line == lines[0]
    writing = threading.Thread(target=lambda: fill(store, STREAM, lines[1:]))
    with engine.admin() as late, late.transaction():
        late.execute("SELECT FROM backstory.streams FOR UPDATE")
        writing.start()
        fill(engine.open(), "users/bob/ledger", chain(3))
    assert [next(following).line, next(following).line] == lines[1:]
    writing.join(PATIENCE)


def test_many_lines_are_read_page_by_page(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.ledger.engines.postgres.store._PAGE_LINES", 3)
    monkeypatch.setattr("backstory.ledger.engines.postgres.store._PAGE_BYTES", 1000)
    monkeypatch.setattr("backstory.ledger.engines.postgres.store._NAMES", 2)
    store, lines = engine.open(), chain(10)
    for name in ("a", "b", "c", "d", "e"):
        store.append(name, lines, 0)
    assert lines_of(store, "c") == lines
    assert lines_of(store, "c", 4) == lines[4:]
    assert list(store.streams()) == ["a", "b", "c", "d", "e"]


def test_users_are_listed_page_by_page(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstory.ledger.engines.postgres.store._NAMES", 2)
    store, asked = engine.open(), []
    for name in ("users/a-b/ledger", "users/a/ledger", "users/a/agents/x/ledger", "users/c/ledger", "users/none"):
        store.append(name, [chain(1)[0]], 0)
    rows = store._connections.rows
    monkeypatch.setattr(store._connections, "rows", lambda *args: asked.append(args) or rows(*args))
    assert store.folders("users") == ["a", "a-b", "c"]
    assert len(asked) == 3


# Erasure.


@pytest.mark.parametrize("many", [1, 40], ids=["the last of a page", "among others"])
def test_an_erasure_leaves_no_byte_in_the_files_of_the_table(engine: PostgresEngine, many: int) -> None:
    store = engine.open()
    lines = chain(many - 1)
    after = lines[-1] if lines else None
    fill(store, STREAM, lines)
    secret = sealed(turn(f"{MARK} {'x' * 300}", many)) if after is None else _following(after, many)
    store.append(STREAM, [secret], many - 1)
    assert engine.files_with(MARK)
    with store.locked(STREAM):
        store.redact(STREAM, {many: erase(secret, 0)})
    assert engine.files_with(MARK) == []
    assert lines_of(store) == [*lines, erase(secret, 0)]


def _following(line: bytes, n: int) -> bytes:
    from backstory.ledger.core.commit import head_of

    return sealed(turn(f"{MARK} {'x' * 300}", n), after=head_of(line))


def test_a_removal_leaves_no_byte_in_the_files_of_the_tables(engine: PostgresEngine) -> None:
    store = engine.open()
    store.append(STREAM, [sealed(turn(MARK))], 0)
    store.append("users/bob/ledger", [chain(1)[0]], 0)
    assert engine.files_with(MARK)
    assert store.remove("users/ada")
    assert engine.files_with(MARK) == []
    assert lines_of(store, "users/bob/ledger") == chain(1)


def test_an_erasure_that_a_backup_holds_up_is_completed_by_the_next(engine: PostgresEngine) -> None:
    store = engine.open(lock_timeout=0.2)
    (line,) = [sealed(turn(MARK))]
    store.append(STREAM, [line], 0)
    with engine.admin() as backup, backup.transaction():
        backup.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        backup.execute("SELECT FROM backstory.keys")
        with store.locked(STREAM), pytest.raises(StoreError, match=r"still needs the old rows of backstory\.commits"):
            store.redact(STREAM, {1: erase(line, 0)})
        assert lines_of(store) == [erase(line, 0)]
        store.append(STREAM, [_following(erase(line, 0), 2)], 1)
    with store.locked(STREAM):
        store.redact(STREAM, {2: erase(_following(line, 2), 0)})
    assert engine.files_with(MARK) == []


def wait_for_a_query(engine: PostgresEngine, which: str) -> None:
    """Wait until a session of the server is at a query."""
    end = time.monotonic() + PATIENCE / 2
    with engine.admin() as connection:
        while connection.execute(f"SELECT FROM pg_stat_activity WHERE {which}").fetchone() is None:
            assert time.monotonic() < end
            time.sleep(0.001)


def test_who_waits_for_the_lock_does_not_hold_up_the_erasure_under_it(engine: PostgresEngine) -> None:
    store, other = engine.open(lock_timeout=2), engine.open()
    (line,) = [sealed(turn(MARK))]
    store.append(STREAM, [line], 0)

    def wait() -> None:
        with other.locked(STREAM):
            read.extend(lines_of(other))

    read: list[bytes] = []
    waiting = threading.Thread(target=wait)
    with store.locked(STREAM):
        waiting.start()
        wait_for_a_query(engine, f"query LIKE 'SELECT pg_%lock(%{lock_of(STREAM)})'")
        store.redact(STREAM, {1: erase(line, 0)})
        assert not read
    waiting.join(PATIENCE)
    assert read == [erase(line, 0)]


def test_a_removal_that_waits_for_the_lock_does_not_hold_up_the_erasure_under_it(engine: PostgresEngine) -> None:
    store, other = engine.open(lock_timeout=2), engine.open()
    (line,) = [sealed(turn(MARK))]
    store.append(STREAM, [line], 0)
    removed: list[bool] = []
    removing = threading.Thread(target=lambda: removed.append(other.remove("users/ada")))
    with store.locked(STREAM):
        removing.start()
        wait_for_a_query(engine, "query = 'SELECT pg_advisory_xact_lock($1)' AND state = 'active'")
        store.redact(STREAM, {1: erase(line, 0)})
        assert lines_of(store) == [erase(line, 0)]
    removing.join(PATIENCE)
    assert removed == [True]
    assert lines_of(store) == []


def test_a_removal_and_an_append_to_two_of_its_streams_wait_for_each_other_in_one_order(engine: PostgresEngine) -> None:
    store, errors = engine.open(), []
    for name in ("users/ada/transcript", "users/ada/ledger"):
        store.append(name, [chain(1)[0]], 0)

    def remove() -> None:
        try:
            store.remove("users/ada")
        except StoreError as error:
            errors.append(error)

    removing = threading.Thread(target=remove)
    lock = "SELECT FROM backstory.streams WHERE name = %s FOR UPDATE"
    with engine.admin() as admin, engine.admin() as appending, appending.transaction():
        # As one transaction with appends to both does, in the order of their names.
        appending.execute(lock, ("users/ada/ledger",))
        removing.start()
        end = time.monotonic() + PATIENCE
        while not admin.execute(
            "SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()"
        ).fetchall():
            assert time.monotonic() < end
            time.sleep(0.005)
        appending.execute(lock, ("users/ada/transcript",))
    removing.join(PATIENCE)
    assert errors == []
    assert list(store.streams()) == []


def samples(admin: psycopg.Connection[tuple[object, ...]]) -> set[str]:
    """Return the columns of which the planner has samples that are content or keys."""
    rows = admin.execute(
        "SELECT tablename || '.' || attname FROM pg_stats WHERE schemaname = 'backstory' "
        "AND attname IN ('line', 'key') AND coalesce(histogram_bounds::text, most_common_vals::text) IS NOT NULL"
    )
    return {str(name) for (name,) in rows}


@pytest.mark.parametrize("partitioned", [False, True], ids=["one table", "partitions"])
def test_no_content_gets_into_the_statistics(engine: PostgresEngine, empty: str, partitioned: bool) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as admin:
        if partitioned:
            admin.execute(sql_of_the_docs()[1])
        store = engine.open(url=empty)
        for number in range(100):
            store.append(f"users/u{number}/ledger", [sealed(turn(f"{MARK} {number}"))], 0)
            store.key(f"users/u{number}/ledger", create=True)
        admin.execute("ANALYZE")
        assert samples(admin) == set()


def test_a_migration_drops_the_samples_of_content(engine: PostgresEngine, empty: str) -> None:
    migrate(empty)
    store = engine.open(url=empty)
    for number in range(100):
        store.append(f"users/u{number}/ledger", [sealed(turn(f"{MARK} {number}"))], 0)
        store.key(f"users/u{number}/ledger", create=True)
    with psycopg.connect(empty, autocommit=True) as admin:
        # As it was before the third.
        admin.execute("ALTER TABLE backstory.commits ALTER COLUMN line SET STATISTICS -1")
        admin.execute("ALTER TABLE backstory.keys ALTER COLUMN key SET STATISTICS -1")
        admin.execute("DELETE FROM backstory.migrations WHERE version = 3")
        admin.execute("ANALYZE")
        assert samples(admin) == {"commits.line", "keys.key"}
        migrate(empty)
        admin.execute("ANALYZE")
        assert samples(admin) == set()


def test_an_erasure_that_is_skipped_without_a_word_is_not_taken_for_done(engine: PostgresEngine, empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as admin:
        # Warnings are what the server says of a table that it skips.
        admin.execute(of_this_database("SET client_min_messages = error"))
    store, line = engine.open(url=empty, lock_timeout=0.2), sealed(turn(MARK))
    store.append(STREAM, [line], 0)
    with psycopg.connect(empty) as reader, store.locked(STREAM):
        reader.execute("SELECT FROM backstory.commits")
        with pytest.raises(StoreError, match=r"still needs the old rows of backstory\.commits"):
            store.redact(STREAM, {1: erase(line, 0)})
    with store.locked(STREAM):
        store.redact(STREAM, {})
    assert engine.files_with(MARK, f"{engine.database}_new") == []


def test_an_erasure_is_completed_by_a_role_with_another_search_path(engine: PostgresEngine, empty: str) -> None:
    migrate(empty)
    first = engine.open(url=f"{empty}?options=-csearch_path%3Dbackstory", lock_timeout=0.2)
    line = sealed(turn(MARK))
    first.append(STREAM, [line], 0)
    with psycopg.connect(empty) as reader, first.locked(STREAM):
        # Another table of that name, which the second one would find.
        reader.execute("CREATE TABLE public.commits ()")
        reader.commit()
        reader.execute("SELECT FROM backstory.commits")
        with pytest.raises(StoreError, match="still needs the old rows"):
            first.redact(STREAM, {1: erase(line, 0)})
    second = engine.open(url=empty)
    with second.locked(STREAM):
        second.redact(STREAM, {})
    assert engine.files_with(MARK, f"{engine.database}_new") == []


def test_an_erasure_rewrites_the_partition_that_it_touched(engine: PostgresEngine, empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as admin:
        admin.execute(sql_of_the_docs()[1])
        store = engine.open(url=empty)
        secret = sealed(turn(MARK))
        for number in range(40):
            store.append(f"users/u{number}/ledger", [chain(1)[0] if number else secret], 0)

        def files() -> dict[str, str]:
            rows = admin.execute(
                "SELECT relname::text, pg_relation_filepath(oid) FROM pg_class WHERE relname ~ '^commits_[0-9]+$'"
            )
            return {str(name): str(path) for name, path in rows}

        before = files()
        assert len(before) == 16
        with store.locked("users/u0/ledger"):
            store.redact("users/u0/ledger", {1: erase(secret, 0)})
        assert sum(path != before[name] for name, path in files().items()) == 1
    assert engine.files_with(MARK, f"{engine.database}_new") == []
    assert lines_of(store, "users/u0/ledger") == [erase(secret, 0)]
    assert lines_of(store, "users/u7/ledger") == chain(1)


# Rights.


def sql_of_the_docs() -> list[bytes]:
    """The blocks of SQL in docs/how-to/postgres.md: first the roles, then the partitions."""
    return [block.encode() for block in re.findall(r"```sql\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)]


@pytest.fixture
def roles(engine: PostgresEngine) -> Iterator[dict[str, str]]:
    """The addresses of the roles that docs/how-to/postgres.md makes, by name."""
    # Roles are those of a whole server.
    with run.alone("roles"), engine.admin() as admin:
        admin.execute(sql_of_the_docs()[0])
        yield {name: engine.server.url(engine.database, user=name) for name in ("backstory_writer", "backstory_eraser")}
        engine.close()
        for role in ("backstory_writer", "backstory_eraser"):
            admin.execute(f"DROP OWNED BY {role}".encode())
            admin.execute(f"DROP ROLE {role}".encode())


def test_a_writer_appends_and_can_neither_change_nor_delete(engine: PostgresEngine, roles: dict[str, str]) -> None:
    store = engine.open(url=roles["backstory_writer"])
    lines = chain(2)
    fill(store, STREAM, lines)
    key = store.key(STREAM, create=True)
    with store.locked(STREAM), store.lease(STREAM, "monday") as mine:
        assert mine
    with psycopg.connect(roles["backstory_writer"], autocommit=True) as connection:
        for table in ("streams", "commits", "keys", "removed", "seal", "unclean", "migrations"):
            columns = connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0", (f"backstory.{table}",)
            ).fetchall()
            for forbidden in (
                f"UPDATE backstory.{table} SET {columns[0][0]} = DEFAULT",  # noqa: S608
                f"DELETE FROM backstory.{table}",  # noqa: S608
                f"TRUNCATE backstory.{table}",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(forbidden.encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("INSERT INTO backstory.commits VALUES (1, 9, 'x', 'x', 0)")
    with store.locked(STREAM), pytest.raises(StoreError, match="may append only"):
        store.redact(STREAM, {2: erase(lines[1], 0)})
    for refused in (lambda: store.remove("users/ada"), lambda: store.set_key(STREAM, None)):
        with pytest.raises(
            StoreError, match=r"may append only|lacks the right: grant it as docs/how-to/postgres.md says"
        ):
            refused()
    assert lines_of(store) == lines
    assert store.key(STREAM) == key


def test_what_a_writer_may_not_erase_leaves_no_redaction(
    engine: PostgresEngine, roles: dict[str, str], tmp_path: Path
) -> None:
    with Backstory.open(tmp_path / "w", event_store=roles["backstory_writer"]) as home:
        memory = home.memory(user_id="ada")
        memory.record("t", [{"role": "user", "content": "Tea, please."}])
        fact = memory.add_fact("Ada likes tea").fact
        before = memory.head()
        for wanted in ({"fact_id": fact.id}, {"thread_id": "t"}, {"everything": True}):
            with pytest.raises(StoreError, match="may append only: erase as a role that owns the tables"):
                memory.forget(**wanted)
        assert memory.head() == before
    with Backstory.open(tmp_path / "e", event_store=roles["backstory_eraser"]) as home:
        assert home.memory(user_id="ada").forget(fact_id=fact.id).redacted


def test_an_eraser_erases_and_removes(engine: PostgresEngine, roles: dict[str, str]) -> None:
    writer, eraser = (engine.open(url=roles[name]) for name in ("backstory_writer", "backstory_eraser"))
    lines = chain(2)
    fill(writer, STREAM, lines)
    writer.key(STREAM, create=True)
    with eraser.locked(STREAM):
        eraser.redact(STREAM, {1: erase(lines[0], 0)})
    assert lines_of(writer) == [erase(lines[0], 0), lines[1]]
    eraser.set_key(STREAM, None)
    assert writer.key(STREAM) is None
    assert eraser.remove("users/ada")
    assert list(writer.streams()) == []


def test_a_wait_for_a_lock_ends(engine: PostgresEngine) -> None:
    store = engine.open(lock_timeout=0.05)
    refused = pytest.raises(LockTimeoutError, match="end that process, or raise")
    with engine.open().locked(STREAM), refused, store.locked(STREAM):
        pass


def test_the_address_may_state_how_to_connect(engine: PostgresEngine) -> None:
    store = engine.open(url=f"{engine.url}?application_name=mine&connect_timeout=3")
    stated = conninfo_to_dict(store._address.conninfo)
    assert (stated["application_name"], stated["connect_timeout"]) == ("mine", "3")


# What it says of a full disk.

_FULL = """
CREATE FUNCTION refuse_to_extend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'could not extend file', DETAIL = 'wrote 4096 of 8192 bytes';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON backstory.commits EXECUTE FUNCTION refuse_to_extend();
"""


def test_a_full_disk_is_told_in_one_line_and_is_no_hindrance_later(empty: str, engine: PostgresEngine) -> None:
    migrate(empty)
    store, lines = engine.open(url=empty), chain(2)
    store.append(STREAM, [lines[0]], 0)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(_FULL)
        with pytest.raises(
            StoreError, match=rf"^cannot append to {STREAM} in .*: could not extend file; free space on the disk .*$"
        ) as told:
            store.append(STREAM, [lines[1]], 1)
        assert "\n" not in str(told.value)
        connection.execute("DROP TRIGGER full_disk ON backstory.commits")
    assert lines_of(store) == lines[:1]
    store.append(STREAM, [lines[1]], 1)
    assert lines_of(store) == lines
