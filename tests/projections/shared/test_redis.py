"""Redis: what it holds and how it fails changes how long a read takes, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.other_engine import lines_read
from doubles.redis_server import RedisPlace, RedisServer, empty_redis, other_home, own_redis
from fakes import PATIENCE, FakeClock, open_home

from backstory.home import Backstory
from backstory.ledger.core.errors import ConfigError
from backstory.lifecycle.maintenance import doctor
from backstory.projections.shared import redis_cache
from backstory.projections.shared.memories import FEWEST_COMMITS
from backstory.projections.shared.redis_cache import RedisCache

ENGINE = "doubles.other_engine:OtherEngine"


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> RedisPlace:
    """A Redis that answers, if late, on a busy machine."""
    monkeypatch.setattr(redis_cache, "_TIMEOUT_SECONDS", PATIENCE)
    return empty_redis()


@pytest.fixture
def own() -> Iterator[RedisServer]:
    with own_redis() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def opened(home: Path, redis: RedisPlace | RedisServer, **more: object) -> Backstory:
    return open_home(home, storage_class=ENGINE, redis_url=redis.url, max_facts=500, **more)


def learn(bs: Backstory, count: int = FEWEST_COMMITS, of: str = "cats") -> None:
    memory = bs.memory("ada")
    for number in range(count):
        memory.add_fact(f"Ada has {number} {of}")
    memory.flush()


def values(redis: RedisPlace | RedisServer) -> dict[bytes, bytes]:
    from redis import Redis

    with Redis.from_url(redis.url) as client:
        return {key: client.get(key) for key in client.keys("*")}  # type: ignore[misc, union-attr]


def contents(home: Path, redis: RedisPlace | RedisServer, tmp_path: Path, name: str) -> tuple[list[str], int]:
    """What another machine, which has nothing yet, says of Ada, and how many lines of her ledger it reads for that."""
    with opened(other_home(home, tmp_path / name), redis) as bs:
        lines_read.clear()
        facts = [fact.content for fact in bs.memory("ada").document().facts]
        return facts, lines_read.count("users/ada/ledger")


def test_what_one_machine_commits_another_reads_without_a_replay(home: Path, redis: RedisPlace, tmp_path: Path) -> None:
    with opened(home, redis) as bs:
        learn(bs)
        facts = [fact.content for fact in bs.memory("ada").document().facts]
        assert contents(home, redis, tmp_path, "other") == (facts, 1)
        bs.memory("ada").add_fact("Ada sails")
        bs.memory("ada").flush()
        assert contents(home, redis, tmp_path, "third") == ([*facts, "Ada sails"], 1)
        block = bs.memory("ada").context().text
        with opened(tmp_path / "third", redis) as other:
            assert other.memory("ada").context().text == block


def test_a_value_ends_by_itself(home: Path, redis: RedisPlace) -> None:
    from redis import Redis

    with opened(home, redis, redis_ttl_seconds=77) as bs:
        learn(bs)
        with Redis.from_url(redis.url) as client:
            (key,) = client.keys("*")  # type: ignore[misc]
            assert 0 < client.ttl(key) <= 77  # type: ignore[operator]


def test_what_redis_holds_of_a_fact_whose_time_is_over_is_not_shown(
    home: Path, redis: RedisPlace, tmp_path: Path
) -> None:
    clock = FakeClock()
    with opened(home, redis, clock=clock) as bs:
        learn(bs)
        bs.memory("ada").add_fact("Ada saw a heron", expires_at="2026-03-01")
        bs.memory("ada").flush()
        clock.advance(24 * 3600)
        with opened(other_home(home, tmp_path / "other"), redis, clock=clock) as other:
            lines_read.clear()
            memory = other.memory("ada")
            assert len(memory.facts()) == len(memory.document().facts) == FEWEST_COMMITS
            assert lines_read.count("users/ada/ledger") == 1
            assert not memory.search("heron")
            assert "heron" not in memory.context("heron").text
        (held,) = values(redis).values()
        assert b"heron" in held


@pytest.mark.parametrize("kind", ["garbage", "list", "old", "another home's", "huge"])
def test_whatever_stands_in_redis_the_answer_is_right(home: Path, redis: RedisPlace, tmp_path: Path, kind: str) -> None:
    from redis import Redis

    with opened(home, redis) as bs, Redis.from_url(redis.url) as client:
        learn(bs)
        ((key, old),) = values(redis).items()
        if kind == "another home's":
            with opened(tmp_path / "elsewhere", redis) as elsewhere:
                learn(elsewhere)
            (their,) = set(values(redis)) - {key}
            client.set(key, values(redis)[their])
        elif kind == "old":
            bs.memory("ada").add_fact("Ada sails")
            bs.memory("ada").flush()
            client.set(key, old)
        elif kind == "list":
            client.delete(key)
            client.lpush(key, "no memory")
        else:
            client.set(key, b"x" * (9 << 20 if kind == "huge" else 7))
        wanted = [fact.content for fact in bs.memory("ada").document().facts]
        facts, lines = contents(home, redis, tmp_path, "other")
        assert facts == wanted
        assert lines > FEWEST_COMMITS
        assert contents(home, redis, tmp_path, "third") == (wanted, 1)


@pytest.mark.parametrize("fault", ["killed", "stopped", "never there"])
def test_without_an_answer_of_redis_everything_works(
    home: Path, own: RedisServer, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(home, own) as bs:
        if fault != "never there":
            learn(bs, of="dogs")
        if fault == "stopped":
            own.stop()
        else:
            own.kill()
        try:
            learn(bs)
            facts = [fact.content for fact in bs.memory("ada").document().facts]
            assert len(facts) == FEWEST_COMMITS * (1 if fault == "never there" else 2)
            assert contents(home, own, tmp_path, "other")[0] == facts
            bs.memory("ada").forget(fact_id=bs.memory("ada").facts()[0].id)
            assert contents(home, own, tmp_path, "third")[0] == facts[1:]
        finally:
            if fault == "stopped":
                own.go_on()
            else:
                own.start()
    assert "what it holds of user ada is not used any more, and ends within 1800 s" in caplog.text
    assert contents(home, own, tmp_path, "fourth")[0] == facts[1:]


def test_a_forgotten_text_is_gone_from_redis_when_that_is_answered(home: Path, redis: RedisPlace) -> None:
    with opened(home, redis) as bs:
        memory = bs.memory("ada")
        learn(bs)
        memory.add_fact("Ada has a secret")
        memory.flush()
        assert any(b"a secret" in value for value in values(redis).values())
        memory.forget(matching="a secret")
        assert not any(b"a secret" in value for value in values(redis).values())
        learn(bs, of="dogs")
        assert values(redis)
        bs.forget_user("ada")
        assert values(redis) == {}


def test_a_slow_redis_costs_nothing_after_the_first_call(own: RedisServer) -> None:
    now = 0.0
    cache = RedisCache(own.url, elapsed=lambda: now)
    assert cache.put("k", b"v", 60)
    own.stop()
    try:
        assert cache.get("k") is None
        client, cache._redis = cache._redis, None  # type: ignore[assignment]
        # Without a client: nothing is asked.
        for seconds in (0.0, 4.9):
            now = seconds
            assert (cache.get("k"), cache.put("k", b"w", 60), cache.delete("k")) == (None, False, False)
        cache._redis = client
        now = 5.0
        assert cache.get("k") is None
        cache._redis = None  # type: ignore[assignment]
        now = 14.9
        assert cache.get("k") is None
        cache._redis = client
    finally:
        own.go_on()
    now = 15.0
    assert cache.get("k") == b"v"
    assert cache.get("k") == b"v"
    cache.close()


def test_an_evicted_value_is_a_miss(home: Path, redis: RedisPlace, tmp_path: Path) -> None:
    from redis import Redis

    with opened(home, redis) as bs, Redis.from_url(redis.url) as client:
        learn(bs)
        client.flushdb()
        facts, lines = contents(home, redis, tmp_path, "other")
        assert len(facts) == FEWEST_COMMITS
        assert lines > FEWEST_COMMITS


def test_a_full_redis_refuses_values_and_nothing_else(home: Path, own: RedisServer, tmp_path: Path) -> None:
    from redis import Redis

    with Redis.from_url(own.url) as client:
        client.config_set("maxmemory", "1")
    with opened(home, own) as bs:
        learn(bs)
        assert values(own) == {}
        assert len(contents(home, own, tmp_path, "other")[0]) == FEWEST_COMMITS


@pytest.mark.parametrize("url", ["http://cache", "redis://", "cache:6379"])
def test_an_address_that_is_none_of_redis_is_refused(home: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="redis_url"):
        open_home(home, redis_url=url)


def test_an_option_that_redis_does_not_have_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="redis_url is no address of Redis"):
        open_home(home, storage_class=ENGINE, redis_url="redis://127.0.0.1:1/zero?nothing=1")


def test_doctor_says_whether_redis_answers(home: Path, own: RedisServer) -> None:
    def said(engine: str = "", url: str = own.url) -> tuple[bool, str]:
        config = {"storage_class": engine, "redis_url": url}
        (check,) = [check for check in doctor(home, config=config, environ={}) if check.check == "redis"]
        return check.ok, check.hint

    assert said(ENGINE) == (True, "it answers")
    assert said() == (True, "not used: the log is kept in files, beside which lies an index")
    own.kill()
    ok, hint = said(ENGINE, own.url.replace("//", "//user:password@"))
    assert not ok
    assert hint.startswith("it does not answer, so memories are read from the log: ConnectionError")
    assert "password" not in hint
    own.start()
    assert not [check for check in doctor(home, environ={}) if check.check == "redis"]
