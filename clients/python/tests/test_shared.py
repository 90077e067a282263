"""Shared limits on each engine, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from conftest import address
from throttlekit import (
    Budget,
    BuildError,
    Concurrency,
    Denied,
    SharedFairLimiter,
    SharedGuard,
    SharedLimiter,
    SharedPolicy,
    Store,
    StoreError,
    StoreUnavailable,
    TokenBudget,
)

Names = Callable[[], str]


def test_a_limit_holds_over_two_limiters_of_one_name(store: Store, name: Names) -> None:
    policy = name()
    one, two = SharedLimiter(store, policy, "6/hour"), SharedLimiter(store, policy, "6/hour")
    answers = [limiter.check("alice") for _ in range(4) for limiter in (one, two)]
    assert [answer.allowed for answer in answers] == [True] * 6 + [False] * 2
    # An engine that may forget charges makes them bounded.
    assert answers[0].guarantee in {"exact", "bounded"} and answers[0].outage is None
    assert one.peek("alice").remaining == 0 and one.peek("bob").remaining == 6
    one.reset("alice")
    assert two.check("alice")


async def test_a_limit_holds_in_an_event_loop(store: Store, name: Names) -> None:
    limiter = SharedLimiter(store, name(), Budget.per_day(20))
    answers = await asyncio.gather(*(limiter.check_async("a") for _ in range(50)))
    assert sum(answer.allowed for answer in answers) == 20
    many = await limiter.check_many_async(["b", ("b", 19), "b"])
    assert [answer.allowed for answer in many] == [True, True, False]
    assert (await limiter.peek_async("b")).remaining == 0
    assert (await limiter.forecast_async("c")).spendable_now == 20


def test_a_leased_limit_is_never_exceeded(store: Store, name: Names) -> None:
    policy = name()
    limiters = [SharedLimiter(store, policy, Budget.per_day(5_000), leased=True) for _ in range(2)]
    limiters.append(SharedLimiter(store, policy, Budget.per_day(5_000)))
    admitted = [0] * 3

    def run(index: int, count: int) -> None:
        admitted[index] = sum(bool(limiters[index].check("a")) for _ in range(count))

    threads = [threading.Thread(target=run, args=(0, 8_000)), threading.Thread(target=run, args=(1, 8_000))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + 10
    while sum(admitted) < 5_000 and time.monotonic() < deadline:
        # Units that were on their way to a limiter when it was closed are given back by its next close.
        for limiter in limiters:
            limiter.close()
        while limiters[2].check("a"):
            admitted[2] += 1
    assert sum(admitted) == 5_000


async def test_most_leased_checks_need_no_call(redis: Store, name: Names) -> None:
    limiter = SharedLimiter(redis, name(), Budget.per_day(1_000_000), leased=True, batch=10_000)
    await limiter.check_async("a")
    held = sum(limiter.try_check("a") is not None for _ in range(1_000))
    assert held == 1_000
    strict = SharedLimiter(redis, name(), "5/hour")
    assert strict.try_check("a") is None


def test_a_charge_is_settled_once(store: Store, name: Names) -> None:
    limiter = SharedLimiter(store, name(), Budget.per_day(100))
    answer = limiter.check("a", 60)
    assert answer.receipt is not None
    limiter.settle(answer.receipt, 10)
    assert limiter.peek("a").remaining == 90
    with pytest.raises(ValueError, match="settle each receipt once"):
        limiter.settle(answer.receipt, 10)


def test_a_debit_counts_once(store: Store, name: Names) -> None:
    limiter = SharedLimiter(store, name(), Budget.per_day(100))
    for _ in range(3):
        assert limiter.debit("a", 30, stream=7, number=1)
    assert limiter.peek("a").remaining == 70


def test_slots_are_shared_and_released(store: Store, name: Names) -> None:
    policy = name()
    one, two = (SharedGuard(store, policy, Concurrency.per_key(1)) for _ in range(2))
    with one.acquire("gpu", timeout=10) as permit:
        assert not permit.is_fenced
        denied = two.admit("gpu")
        assert not denied and denied.denied_by == "concurrency"
        assert two.admit("cpu")
        with pytest.raises(Denied):
            two.acquire("gpu", timeout=2)
    with two.acquire("gpu", timeout=10):
        assert one.peek("gpu").remaining == 0


async def test_a_slot_is_held_in_an_async_block(redis: Store, name: Names) -> None:
    guard = SharedGuard(redis, name(), 1)
    async with guard.acquire_async(timeout=10):
        assert not await guard.admit_async()
    async with guard.acquire_async(timeout=10):
        pass


def test_a_policy_over_a_store_settles_its_permit(store: Store, name: Names) -> None:
    chat = SharedPolicy(store, name(), concurrency=Concurrency.per_key(1), rate="10/hour", tokens=Budget.per_day(1_000))
    with chat.admit("acme", 800) as admission:
        assert admission.permit is not None and admission.guarantee in {"exact", "bounded"}
        assert admission.permit.debit(100)
        assert chat.admit("acme", 1).denied_by == "concurrency"
    end = time.monotonic() + 10
    while not (again := chat.admit("acme", 900)):
        assert time.monotonic() < end, again.denied_by
        time.sleep(0.01)
    again.into_permit().ignored()


async def test_a_policy_over_a_store_in_an_event_loop(redis: Store, name: Names) -> None:
    chat = SharedPolicy(redis, name(), rate="2/hour", tokens=Budget.per_day(1_000))
    async with chat.admit_async("acme", 500) as admission:
        assert admission.permit is not None
        assert await admission.permit.debit_async(600)
    assert (await chat.admit_async("acme", 401)).denied_by == "cost"
    assert await chat.admit_async("acme", 400)


def test_tenants_of_two_processes_share_a_budget(store: Store, name: Names) -> None:
    limiter = SharedFairLimiter(store, name(), Budget.per_day(100), weights={"big": 3})
    assert limiter.check("big") and limiter.check("small")
    total = sum(bool(limiter.check(tenant)) for tenant in ("big", "small") for _ in range(200))
    assert total + 2 <= 100


def test_a_stream_on_a_store_returns_its_rest(store: Store, name: Names) -> None:
    budget = TokenBudget(Budget.per_day(1_000), store=store, name=name(), reserve=300)
    with budget.open("acme") as stream:
        assert stream.debit(50)
        stream.settle()
    assert budget.peek("acme").remaining == 950


def test_a_limit_waits_for_its_turn(redis: Store, name: Names) -> None:
    limiter = SharedLimiter(redis, name(), "20/second; burst 1")
    began = time.monotonic()
    for _ in range(4):
        limiter.until_ready("a", timeout=20)
    assert time.monotonic() - began >= 0.15


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "postgres"])
def test_a_fallback_decides_while_the_store_is_unreachable(scheme: str) -> None:
    store = Store(f"{scheme}://127.0.0.1:1", deadline=0.2)
    began = time.monotonic()
    closed = SharedLimiter(store, "api", "5/minute").check("a")
    assert not closed and closed.guarantee == "closed" and closed.outage is not None
    opened = SharedLimiter(store, "api", "5/minute", on_outage="open").check("a")
    assert opened and opened.guarantee == "open"
    local = SharedLimiter(store, "api", "4/hour", on_outage="local", nodes=2)
    assert sum(bool(local.check("a")) for _ in range(5)) == 2
    assert time.monotonic() - began < 10


async def test_a_peek_of_an_unreachable_store_is_an_error() -> None:
    limiter = SharedLimiter(Store("redis://127.0.0.1:1", deadline=0.2), "api", "5/minute")
    with pytest.raises(StoreUnavailable) as error:
        await limiter.peek_async("a")
    assert error.value.kind in {"unavailable", "deadline"}


def test_invalid_settings_are_reported_when_the_limiter_is_built() -> None:
    with pytest.raises(ValueError, match="redis://"):
        Store("dynamodb://x")
    with pytest.raises(ValueError, match="name of the primary"):
        Store("redis+sentinel://host:26379")
    with pytest.raises(ValueError, match="only redis\\+sentinel"):
        Store("redis://host", sentinel_password="secret")
    assert repr(Store("redis+sentinel://u:p@a:1,b:2/main", sentinel_password="s")) == "Store(redis)"
    with pytest.raises(BuildError, match="exactly one limit"):
        SharedLimiter("memory", "a", "1/minute", limits={"b": "1/minute"}, leased=True)
    with pytest.raises(ValueError, match="on_outage"):
        SharedLimiter("memory", "a", "1/minute", on_outage="local")
    assert "password" not in repr(Store("redis://user:password@host:1"))


def test_a_missing_schema_is_an_error_with_its_remedy() -> None:
    limiter = SharedLimiter(Store(address("THROTTLEKIT_POSTGRES"), deadline=5, schema="missing"), "a", "1/minute")
    with pytest.raises(StoreError, match="migrate=True") as error:
        limiter.check("a")
    assert error.value.kind == "misconfigured"
