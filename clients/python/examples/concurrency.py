"""At most n at a time: in a thread, in tasks, and per key."""

import asyncio

from throttlekit import Concurrency, Denied, Guard


def threads() -> None:
    guard = Guard(1)
    with guard.acquire(timeout=1):
        try:
            guard.acquire(timeout=0.05)
        except Denied as denied:
            print("second:", denied)


async def tasks() -> None:
    guard, running, most = Guard(3), 0, 0

    async def work() -> None:
        nonlocal running, most
        async with guard.acquire_async(timeout=10):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

    await asyncio.gather(*(work() for _ in range(12)))
    print("twelve tasks, at most", most, "at a time")


def tenants() -> None:
    guard = Guard(Concurrency.per_key(1, total=2))
    with guard.acquire("acme"), guard.acquire("zoo"):
        print("acme again:", guard.try_acquire("acme"), "- a third tenant:", guard.try_acquire("bank"))

    # The limit follows the latency of the work, between 4 and 200.
    adaptive = Guard(Concurrency.adaptive(4, 200))
    with adaptive.acquire() as permit:
        permit.success()
    print("adaptive limit:", adaptive.peek().limit)


if __name__ == "__main__":
    threads()
    asyncio.run(tasks())
    tenants()
