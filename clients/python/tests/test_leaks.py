"""Memory stays flat over checks and permits, and nothing is left held."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

from throttlekit import Guard, Limiter, Policy

# The environment may raise them.
CHECKS = int(os.environ.get("THROTTLEKIT_LEAK_CHECKS", "10000000"))
PERMITS = int(os.environ.get("THROTTLEKIT_LEAK_PERMITS", "100000"))

GROWTH_MAX = 8 << 20


def resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_checks_leave_no_memory_behind() -> None:
    limiter = Limiter("1000/second")
    keys = [f"key-{number}" for number in range(1_000)]

    def run(count: int) -> None:
        for number in range(count):
            limiter.check(keys[number % 1_000])

    run(100_000)
    before = resident()
    run(CHECKS)
    assert resident() - before < GROWTH_MAX


def test_permits_that_are_dropped_leave_no_memory_and_no_slot() -> None:
    guard, policy = Guard(10), Policy("chat", concurrency=10, rate="1000000/second")

    def run(count: int) -> None:
        for _ in range(count):
            guard.acquire()
            policy.admit("a", 3)

    run(10_000)
    before = resident()
    run(PERMITS)
    assert resident() - before < GROWTH_MAX
    assert guard.peek().remaining == 10


class Holder:
    """Holds a permit and itself: only the garbage collector frees it."""

    def __init__(self, permit: object) -> None:
        self.permit = permit
        self.holder = self


def test_permits_that_are_garbage_collected_leave_no_memory_and_no_slot() -> None:
    guard, policy = Guard(1_000_000), Policy("chat", concurrency=1_000_000)

    def run(count: int) -> None:
        for _ in range(count):
            Holder(guard.acquire())
            Holder(policy.admit("a"))
        gc.collect()

    run(10_000)
    before = resident()
    run(PERMITS)
    assert resident() - before < GROWTH_MAX
    assert guard.peek().remaining == 1_000_000


async def test_cancelled_waits_leave_no_memory_and_no_slot() -> None:
    guard = Guard(1)

    async def run(count: int) -> None:
        for _ in range(count):
            async with guard.acquire_async():
                waiters = [asyncio.ensure_future(hold(guard)) for _ in range(10)]
                await asyncio.sleep(0)
                for waiter in waiters:
                    waiter.cancel()
                await asyncio.gather(*waiters, return_exceptions=True)

    await run(100)
    before = resident()
    await run(PERMITS // 10)
    assert resident() - before < GROWTH_MAX
    async with guard.acquire_async(timeout=10):
        pass


async def hold(guard: Guard) -> None:
    async with guard.acquire_async(timeout=60):
        pass
