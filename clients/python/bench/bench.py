"""Checks from Python beside those of `limits`, and middleware beside slowapi. Exits non-zero below a threshold.

Contenders are interleaved in rounds, and each is judged by the median of its rounds: the machine may be busy.
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
from typing import Any

import limits
from fastapi import FastAPI, Request
from slowapi import Limiter as SlowLimiter
from slowapi.middleware import SlowAPIASGIMiddleware
from slowapi.util import get_remote_address
from throttlekit import Budget, Limiter, SharedLimiter, Store
from throttlekit._native import _empty_call
from throttlekit.contrib.asgi import AdmissionMiddleware

ROUNDS = 15

THRESHOLDS = {
    "check / limits moving window": ("most", 0.05),
    "check / empty call": ("most", 3.0),
    "limits on Redis / leased check": ("least", 50.0),
    "FastAPI with middleware / without": ("most", 1.05),
}

KEYS = [f"user-{number}" for number in range(1_000)]


def nanos(run: Callable[[int], None], count: int) -> float:
    """Returns the nanoseconds of one call."""
    began = time.perf_counter_ns()
    run(count)
    return (time.perf_counter_ns() - began) / count


def medians(contenders: dict[str, tuple[Callable[[int], None], int]]) -> dict[str, float]:
    """Returns the median nanoseconds of a call of each contender, in interleaved rounds."""
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for run, count in contenders.values():
        run(max(1, count // 10))
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        for name, (run, count) in contenders.items():
            rounds[name].append(nanos(run, count))
    gc.enable()
    return {name: statistics.median(times) for name, times in rounds.items()}


def checks() -> dict[str, float]:
    ours = Limiter("1000/minute").check
    window = limits.strategies.MovingWindowRateLimiter(limits.storage.MemoryStorage())
    item = limits.parse("1000/minute")

    def empty(count: int) -> None:
        keys = KEYS
        for number in range(count):
            _empty_call(keys[number % 1_000])

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
            "loop": (loop, 100_000),
            "empty call": (empty, 100_000),
            "check": (native, 100_000),
            "limits moving window": (peer, 5_000),
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

    found = medians({"leased check": (ours, 20_000), "limits on Redis": (peer, 300)})
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

    found = medians({name: (serve(app), 1_000) for name, app in apps.items()})
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
