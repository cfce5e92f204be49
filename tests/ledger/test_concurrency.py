"""The bounded mapping that caches share, and what threads do to it."""

from __future__ import annotations

import threading

from backstory.ledger.concurrency.recent import Recent


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent: Recent[str, int] = Recent(3)
    for value, key in enumerate("abc"):
        recent.put(key, value)
    assert recent.get("a") == 0, "a look is no use"
    recent.put("b", 7)
    recent.put("d", 3)
    assert list(recent) == ["c", "b", "d"]
    assert recent.use("c") == 2
    assert recent.use("a") is None
    recent.put("e", 4)
    assert dict(recent) == {"d": 3, "c": 2, "e": 4}


def test_threads_that_put_and_use_and_pop_at_once_never_fail_and_never_keep_too_much() -> None:
    recent: Recent[int, int] = Recent(4)

    def work(step: int) -> None:
        for n in range(3_000):
            recent.put(n * step % 7, n)
            recent.use(n % 5)
            recent.pop(n * step % 3, None)

    threads = [threading.Thread(target=work, args=(step,)) for step in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recent) <= 4
