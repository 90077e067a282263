"""A gateway for language models: slots, requests and tokens for each tenant, in one decision."""

import asyncio
from collections.abc import AsyncIterator

from throttlekit import Budget, Concurrency, Policy, TokenBudget

CHAT = Policy(
    "chat",
    concurrency=Concurrency.per_key(2),
    rate="60/minute",
    tokens=Budget.per_minute(1_000),
)


async def model(chunks: int) -> AsyncIterator[int]:
    """Produces chunks of 50 tokens."""
    for _ in range(chunks):
        await asyncio.sleep(0)
        yield 50


async def respond(tenant: str, estimate: int, chunks: int) -> str:
    async with CHAT.admit(tenant, estimate) as admission:
        if admission.permit is None:
            return f"{tenant}: denied by {admission.denied_by}"
        async for tokens in model(chunks):
            if not await admission.permit.debit_async(tokens):
                return f"{tenant}: stopped after {admission.permit.used} tokens"
        # The rest of the estimate returns when the block ends.
        return f"{tenant}: {admission.permit.used} tokens"


async def main() -> None:
    print(await respond("acme", estimate=400, chunks=4))
    print(await respond("acme", estimate=400, chunks=30))
    print(await respond("acme", estimate=400, chunks=1))
    print(await respond("zoo", estimate=400, chunks=4))

    # A budget alone. Reservations are learned from the lengths of streams.
    budget = TokenBudget(Budget.per_minute(1_000))
    async with budget.open_async("acme", hint=300) as stream:
        while await stream.debit_async(120):
            pass
        print("budget:", stream.produced, "tokens of 1000")


if __name__ == "__main__":
    asyncio.run(main())
