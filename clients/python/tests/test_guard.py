"""Concurrency limits, permits, policies and token budgets of one process."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest
from throttlekit import Budget, Concurrency, Denied, Ended, Guard, ManualClock, Policy, TokenBudget


def test_a_block_holds_a_slot_and_releases_it() -> None:
    guard = Guard(1)
    with guard.acquire() as permit:
        assert permit.held and guard.try_acquire() is None
    assert not permit.held
    with pytest.raises(ZeroDivisionError), guard.acquire():
        raise ZeroDivisionError
    assert guard.try_acquire() is not None


def test_a_dropped_permit_releases_its_slot() -> None:
    guard = Guard(1)
    permit = guard.acquire()
    assert guard.try_acquire() is None
    del permit
    gc.collect()
    assert guard.try_acquire() is not None


def test_a_wait_that_takes_too_long_is_denied() -> None:
    guard = Guard(1)
    with guard.acquire():
        with pytest.raises(Denied, match="retry when a slot is released") as error:
            guard.acquire(timeout=0.02)
    assert error.value.axis == "concurrency" and error.value.decision.retry == "on_release"


def test_a_thread_waits_without_the_interpreters_lock() -> None:
    guard = Guard(1)
    permit = guard.acquire()
    timer = threading.Timer(0.05, permit.success)
    timer.start()
    began = time.monotonic()
    with guard.acquire(timeout=10):
        assert time.monotonic() - began < 5
    timer.join()


def test_limits_per_key_are_separate() -> None:
    guard = Guard(Concurrency.per_key(1, total=2))
    held = [guard.acquire("a"), guard.acquire("b")]
    assert guard.try_acquire("a") is None and guard.try_acquire("c") is None
    held.pop().success()
    assert guard.try_acquire("c") is not None


async def test_tasks_wait_in_turn_and_cancelled_ones_leave() -> None:
    guard = Guard(1)
    order: list[int] = []

    async def work(number: int) -> None:
        async with guard.acquire_async(timeout=10):
            order.append(number)
            await asyncio.sleep(0)

    async with guard.acquire_async():
        tasks = [asyncio.create_task(work(number)) for number in range(4)]
        await asyncio.sleep(0.05)
        tasks[1].cancel()
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 2, 3]
    assert guard.peek().remaining == 1


async def test_a_cancelled_wait_gives_its_slot_back() -> None:
    guard = Guard(1)
    for _ in range(200):
        held = await guard.acquire_async(timeout=5)
        waiter = asyncio.ensure_future(_hold(guard))
        await asyncio.sleep(0)
        held.success()
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
    # A slot that was granted meanwhile is released when its result is dropped.
    async with guard.acquire_async(timeout=5):
        pass


async def _hold(guard: Guard) -> None:
    async with guard.acquire_async(timeout=5):
        await asyncio.sleep(0)


def test_a_policy_names_the_axis_that_denied() -> None:
    chat = Policy("chat", concurrency=1, rate="2/hour", tokens=Budget.per_day(100))
    with chat.admit("acme", 60) as admission:
        assert admission and admission.permit is not None and set(admission.axes) == {"concurrency", "rate", "cost"}
        assert chat.admit("zoo").denied_by == "concurrency"
        assert admission.permit.debit(10) and admission.permit.used == 10 and admission.permit.reserved == 50
    assert chat.admit("acme", 91).denied_by == "cost", "ten units stay charged"
    with pytest.raises(Denied) as error:
        chat.admit("acme", 91).into_permit()
    assert error.value.axis == "cost"
    assert chat.admit("acme", 90)
    assert chat.admit("acme").denied_by == "rate"


def test_a_permit_settles_once_and_then_has_ended() -> None:
    clock = ManualClock(1_700_000_000_000_000_000)
    tokens = Policy("tokens", tokens=Budget.per_minute(100), clock=clock)
    permit = tokens.admit("a", 80).into_permit()
    permit.settle(30)
    permit.success()
    permit.dropped()
    with pytest.raises(Ended, match="has ended"):
        permit.debit(1)
    assert not tokens.admit("a", 71) and tokens.admit("a", 70)


async def test_a_policy_works_in_an_async_block() -> None:
    chat = Policy("chat", concurrency=1, tokens=Budget.per_minute(100))
    async with chat.admit("a", 50) as admission:
        assert admission.permit is not None
        assert await admission.permit.debit_async(20)
        with pytest.raises(Denied):
            chat.admit("b").into_permit()
    assert chat.admit("b")


def test_a_stream_returns_what_it_did_not_use() -> None:
    budget = TokenBudget(Budget.per_day(1_000), reserve=200)
    with budget.open("acme") as stream:
        assert stream and stream.reserved == 200
        assert stream.debit(150) and stream.produced == 150
        assert budget.peek("acme").remaining == 800
        stream.settle()
    assert budget.peek("acme").remaining == 850


def test_a_stream_is_denied_when_the_budget_is_spent() -> None:
    budget = TokenBudget(Budget.per_day(100), reserve=100)
    with budget.open("acme") as stream:
        assert stream.debit(100) and stream.debit(1).remaining == 0
        denied = budget.open("acme")
        assert not denied and denied.retry_after is not None
        with pytest.raises(Ended):
            denied.debit(1)
