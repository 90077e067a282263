"""Checks from Python beside those of `limits`, and middleware beside slowapi. Exits non-zero below a threshold.

Contenders are interleaved in many short rounds, and each is judged by the median of its rounds. In process the time is
processor time of the thread, so that other work on the machine takes none of it; over Redis it is elapsed time.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import limits
import uvicorn
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

SERVED_ROUNDS = 31

START_SECONDS = 20
"""Maximum time for a server to accept connections."""

THRESHOLDS = {
    "check / limits moving window": ("most", 0.05),
    "check / empty call": ("most", 3.0),
    "limits on Redis / leased check": ("least", 50.0),
    "served by uvicorn, with middleware / without": ("most", 1.05),
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


def limited_by_us() -> AdmissionMiddleware:
    return AdmissionMiddleware(hello_world(), Limiter("100000000/minute"))


APPS: dict[str, Callable[[], Any]] = {
    "FastAPI": hello_world,
    "FastAPI with middleware": limited_by_us,
    "FastAPI with slowapi": limited_by_slowapi,
}


def middleware() -> dict[str, float]:
    """Times calls of the application, without a server around it."""
    apps = {name: app() for name, app in APPS.items()}
    event_loop = asyncio.new_event_loop()

    def serve(app: Any) -> Callable[[int], None]:
        async def run(count: int) -> None:
            for _ in range(count):
                await request(app)

        return lambda count: event_loop.run_until_complete(run(count))

    found = medians({name: (serve(app), 100) for name, app in apps.items()})
    event_loop.close()
    return found


def serve(name: str, listener: socket.socket) -> None:
    server = uvicorn.Server(uvicorn.Config(APPS[name](), access_log=False, log_level="warning"))
    server.run(sockets=[listener])


@contextmanager
def served(name: str) -> Iterator[tuple[Callable[[int], None], Clock]]:
    """Serves an application by uvicorn in a process of its own. Yields a client, and the processor time of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(target=serve, args=(name, listener), daemon=True)
        process.start()
        port = listener.getsockname()[1]
    times = Path(f"/proc/{process.pid}/schedstat")
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)

    def requests(count: int) -> None:
        for _ in range(count):
            client.request("GET", "/")
            response = client.getresponse()
            body = response.read()
            assert (response.status, body) == (200, b'{"hello":"world"}')

    yield requests, lambda: int(times.read_text().split()[0])
    client.close()
    process.terminate()
    process.join(START_SECONDS)


def served_apps() -> dict[str, float]:
    """Times requests to the application behind uvicorn, in processor time of the server."""
    with served("FastAPI") as bare, served("FastAPI with middleware") as ours, served("FastAPI with slowapi") as slow:
        servers = {"uvicorn": bare, "uvicorn with middleware": ours, "uvicorn with slowapi": slow}
        times: dict[str, list[float]] = {name: [] for name in servers}
        for run, _ in servers.values():
            run(300)
        for _ in range(SERVED_ROUNDS):
            for name, (run, clock) in servers.items():
                times[name].append(nanos(run, 100, clock))
        return {name: statistics.median(found) for name, found in times.items()}


def main() -> int:
    times = checks() | redis(os.environ["THROTTLEKIT_REDIS"]) | middleware() | served_apps()
    ratios = {
        "check / limits moving window": times["check"] / times["limits moving window"],
        "check / empty call": times["check"] / times["empty call"],
        "limits on Redis / leased check": times["limits on Redis"] / times["leased check"],
        "served by uvicorn, with middleware / without": times["uvicorn with middleware"] / times["uvicorn"],
        "served by uvicorn, with slowapi / without": times["uvicorn with slowapi"] / times["uvicorn"],
        "application alone, with middleware / without": times["FastAPI with middleware"] / times["FastAPI"],
        "application alone, with slowapi / without": times["FastAPI with slowapi"] / times["FastAPI"],
    }
    for name, nanoseconds in times.items():
        print(f"{name:<50}{nanoseconds / 1_000:>12.3f} µs")
    missed = []
    for name, ratio in ratios.items():
        if name not in THRESHOLDS:
            print(f"{name:<50}{ratio:>12.4f}")
            continue
        side, threshold = THRESHOLDS[name]
        met = ratio <= threshold if side == "most" else ratio >= threshold
        missed += [] if met else [name]
        print(f"{name:<50}{ratio:>12.4f}    at {side} {threshold}{'' if met else '    MISSED'}")
    figure = {"name": "python", "nanoseconds": times, "ratios": ratios, "missed": missed}
    print("figure: " + json.dumps(figure))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
