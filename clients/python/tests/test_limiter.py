"""The limiter of one process."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from throttlekit import Budget, FairLimiter, Limit, Limiter, ManualClock, NotReady, Rate


def test_a_key_is_denied_beyond_its_limit_and_told_when_to_retry() -> None:
    clock = ManualClock(1_700_000_000_000_000_000)
    limiter = Limiter("3/second", clock=clock)
    assert [limiter.check("alice").remaining for _ in range(3)] == [2, 1, 0]
    denied = limiter.check("alice")
    assert not denied and not denied.allowed and denied.retry == "after"
    assert denied.retry_after_ns == 333_333_334 and denied.retry_after_ms == 334
    clock.advance(denied.retry_after_ns / 1e9 - 1e-6)
    assert not limiter.check("alice")
    clock.advance(2e-6)
    assert limiter.check("alice")
    assert limiter.check("bob"), "another key"


def test_times_are_datetimes_in_utc() -> None:
    clock = ManualClock(1_700_000_000_000_000_000)
    limiter = Limiter(Budget.per_minute(1), clock=clock)
    expected = datetime(2023, 11, 14, 22, 14, tzinfo=timezone.utc)
    assert limiter.check("a").reset_at == expected


def test_keys_are_text_bytes_or_tuples() -> None:
    limiter = Limiter("1/hour", limits={"org": (1, "2/hour")})
    assert limiter.check(("alice", "acme")) and limiter.check((b"bob", "acme"))
    assert not limiter.check(("carol", b"acme")), "the organization has used its limit"
    assert limiter.check("dave") and not limiter.check(b"dave")
    with pytest.raises(TypeError, match="expected str, bytes"):
        limiter.check(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty tuple"):
        limiter.check(())


def test_each_limit_may_have_its_own_cost() -> None:
    limiter = Limiter("10/hour", limits={"tokens": Budget.per_day(100)})
    assert limiter.check("a", [1, 60]) and not limiter.check("a", [1, 60]) and limiter.check("a", [1, 40])
    with pytest.raises(ValueError, match="invalid cost"):
        limiter.check("a", -1)


def test_a_peek_charges_nothing_and_a_reset_forgets() -> None:
    limiter = Limiter(Limit.fixed_window(2, "1h"))
    assert limiter.peek("a").remaining == 2 and limiter.forecast("a").spendable_now == 2
    limiter.check("a", 2)
    assert limiter.peek("a").remaining == 0
    limiter.reset("a")
    assert limiter.peek("a").remaining == 2


def test_many_requests_are_decided_in_order() -> None:
    limiter = Limiter("2/hour")
    assert [bool(d) for d in limiter.check_many(["a", "a", "a", "b"])] == [True, True, False, True]
    assert [d.remaining for d in limiter.check_many([("c", 2), ("d", 1)])] == [0, 1]


def test_a_cost_beyond_the_limit_never_passes() -> None:
    denied = Limiter("5/minute").check("a", 6)
    assert denied.retry == "never" and denied.retry_after is None


def test_waiting_takes_as_long_as_the_limit_requires() -> None:
    limiter = Limiter(Rate(20, 1).burst(1))
    began = time.monotonic()
    for _ in range(5):
        assert limiter.until_ready("a", timeout=5)
    assert time.monotonic() - began >= 0.2
    with pytest.raises(NotReady) as error:
        Limiter("1/hour").until_ready("a", 2, timeout=1)
    assert error.value.reason == "never"


async def test_waiting_in_an_event_loop_does_not_block_it() -> None:
    limiter = Limiter(Rate(20, 1).burst(1))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    await asyncio.gather(*(limiter.until_ready_async("a", timeout=5) for _ in range(5)))
    ticker.cancel()
    assert ticks > 5


def test_threads_admit_exactly_the_limit_together() -> None:
    limiter = Limiter(Budget.per_day(10_000))
    admitted = [0] * 8

    def run(index: int) -> None:
        admitted[index] = sum(bool(limiter.check("a")) for _ in range(5_000))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == 10_000


def test_tenants_share_by_weight() -> None:
    clock = ManualClock(1_700_000_000_000_000_000)
    limiter = FairLimiter(Budget(100, timedelta(seconds=1)), weights={"big": 3}, clock=clock)
    assert limiter.check("big") and limiter.check("small")
    small = sum(bool(limiter.check("small")) for _ in range(200)) + 1
    big = sum(bool(limiter.check("big")) for _ in range(200)) + 1
    assert (big, small) == (75, 25)
