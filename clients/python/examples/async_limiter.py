"""One limit for many processes, checked from asyncio. Needs Redis, Valkey or PostgreSQL."""

import asyncio
import os
import sys

from throttlekit import SharedLimiter, Store, StoreError


async def main(url: str) -> None:
    store = Store(url, deadline=2)
    await store.connect_async()
    name = f"example-async-{os.getpid()}"
    limiter = SharedLimiter(store, name, "5/minute", on_outage="open")

    async def request(number: int) -> str:
        try:
            answer = await limiter.check_async("alice")
        except StoreError as error:
            return f"{number}: undecided, {error}"
        verdict = "allowed" if answer else f"denied, retry after {answer.retry_after:.0f} s"
        return f"{number}: {verdict} ({answer.guarantee})"

    for line in await asyncio.gather(*(request(number) for number in range(1, 8))):
        print(line)

    # Wait for a turn instead of a denial.
    paced = SharedLimiter(store, f"{name}-paced", "10/second; burst 1")
    for number in range(3):
        await paced.until_ready_async("alice", timeout=10)
        print("turn", number + 1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379"))
