"""Checks from Python beside those of `limits`, and middleware beside slowapi. Exits non-zero below a threshold.

Contenders are interleaved in many short rounds, and each is judged by the median of its rounds. In process the time is
processor time of the thread, so that other work on the machine takes none of it; over Redis it is elapsed time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import limits
from fastapi import FastAPI, Request
from slowapi import Limiter as SlowLimiter
from slowapi.middleware import SlowAPIASGIMiddleware
from slowapi.util import get_remote_address
from throttlekit import Budget, Limiter, SharedLimiter, Store
from throttlekit._native import _empty_call, _empty_decision
from throttlekit.contrib.asgi import AdmissionMiddleware

ROUNDS = 101
"""Rounds in process. Each takes some milliseconds."""

REDIS_ROUNDS = 15

THRESHOLDS = {
    "check / limits moving window": ("most", 0.05),
    "check / empty call": ("most", 3.0),
    "limits on Redis / leased check": ("least", 50.0),
    "FastAPI with middleware / without": ("most", 1.05),
}

KEYS = [f"user-{number}" for number in range(1_000)]


Clock: TypeAlias = Callable[[], int]


def nanos(run: Callable[[int], None], count: int, clock: Clock) -> float:
    """Returns the nanoseconds of one call."""
    began = clock()
    run(count)
    return (clock() - began) / count


def medians(
    contenders: dict[str, tuple[Callable[[int], None], int]],
    rounds: int = ROUNDS,
    clock: Clock = time.thread_time_ns,
) -> dict[str, float]:
    """Returns the median nanoseconds of a call of each contender, in interleaved rounds."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run, count in contenders.values():
        run(count)
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, (run, count) in contenders.items():
            times[name].append(nanos(run, count, clock))
    gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}


def checks() -> dict[str, float]:
    ours, nothing, decision = Limiter("1000/minute").check, _empty_call, _empty_decision
    window = limits.strategies.MovingWindowRateLimiter(limits.storage.MemoryStorage())
    item = limits.parse("1000/minute")

    def empty(count: int) -> None:
        keys = KEYS
        for number in range(count):
            nothing(keys[number % 1_000])

    def undecided(count: int) -> None:
        keys = KEYS
        for number in range(count):
            decision(keys[number % 1_000])

    def native(count: int) -> None:
        keys = KEYS
        for number in range(count):
            ours(keys[number % 1_000])

    def peer(count: int) -> None:
        keys = KEYS
        for number in range(count):
            window.hit(item, keys[number % 1_000])

    def loop(count: int) -> None:
        keys = KEYS
        for number in range(count):
            keys[number % 1_000]

    found = medians(
        {
            "loop": (loop, 20_000),
            "empty call": (empty, 20_000),
            "call that returns a decision": (undecided, 20_000),
            "check": (native, 20_000),
            "limits moving window": (peer, 200),
        }
    )
    bare = found.pop("loop")
    return {name: time - bare for name, time in found.items()}


def redis(url: str) -> dict[str, float]:
    name = f"bench-{uuid.uuid4().hex}"
    leased = SharedLimiter(Store(url, deadline=5), name, Budget.per_day(1_000_000_000), leased=True, batch=50_000)
    window = limits.strategies.MovingWindowRateLimiter(limits.storage.RedisStorage(url))
    item = limits.parse("1000000/minute")

    def ours(count: int) -> None:
        for _ in range(count):
            leased.check("a")

    def peer(count: int) -> None:
        for _ in range(count):
            window.hit(item, name)

    contenders = {"leased check": (ours, 20_000), "limits on Redis": (peer, 300)}
    found = medians(contenders, REDIS_ROUNDS, time.perf_counter_ns)
    leased.close()
    return found


def hello_world() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def hello(request: Request) -> dict[str, str]:
        return {"hello": "world"}

    return app


def limited_by_slowapi() -> FastAPI:
    app = hello_world()
    app.state.limiter = SlowLimiter(key_func=get_remote_address, default_limits=["100000/minute"])
    app.add_middleware(SlowAPIASGIMiddleware)
    return app


SCOPE: dict[str, Any] = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "GET",
    "path": "/",
    "raw_path": b"/",
    "query_string": b"",
    "root_path": "",
    "scheme": "http",
    "headers": [(b"host", b"test"), (b"x-api-key", b"alice")],
    "client": ("127.0.0.1", 1),
    "server": ("test", 80),
}


async def request(app: Callable[..., Awaitable[None]]) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        pass

    await app(dict(SCOPE), receive, send)


def middleware() -> dict[str, float]:
    apps: dict[str, Any] = {
        "FastAPI": hello_world(),
        "FastAPI with middleware": AdmissionMiddleware(hello_world(), Limiter("100000000/minute")),
        "FastAPI with slowapi": limited_by_slowapi(),
    }
    event_loop = asyncio.new_event_loop()

    def serve(app: Any) -> Callable[[int], None]:
        async def run(count: int) -> None:
            for _ in range(count):
                await request(app)

        return lambda count: event_loop.run_until_complete(run(count))

    found = medians({name: (serve(app), 100) for name, app in apps.items()})
    event_loop.close()
    return found


def main() -> int:
    times = checks() | redis(os.environ["THROTTLEKIT_REDIS"]) | middleware()
    ratios = {
        "check / limits moving window": times["check"] / times["limits moving window"],
        "check / empty call": times["check"] / times["empty call"],
        "limits on Redis / leased check": times["limits on Redis"] / times["leased check"],
        "FastAPI with middleware / without": times["FastAPI with middleware"] / times["FastAPI"],
    }
    for name, nanoseconds in times.items():
        print(f"{name:<40}{nanoseconds / 1_000:>12.3f} µs")
    missed = []
    for name, ratio in ratios.items():
        side, threshold = THRESHOLDS[name]
        met = ratio <= threshold if side == "most" else ratio >= threshold
        missed += [] if met else [name]
        print(f"{name:<40}{ratio:>12.4f}    at {side} {threshold}{'' if met else '    MISSED'}")
    figure = {"name": "python", "nanoseconds": times, "ratios": ratios, "missed": missed}
    print("figure: " + json.dumps(figure))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
