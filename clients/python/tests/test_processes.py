"""Limits over several processes, in Python and in Rust, and processes that fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from conftest import DEADLINE, STORES, store_at
from throttlekit import Budget, Client, Limiter, SharedGuard, SharedLimiter, Store

Names = Callable[[], str]

PROCESSES = 4
UNITS = 10_000
REQUESTS = 2_000

PYTHON_PEER = """
import sys
from throttlekit import Budget, SharedLimiter, Store
url, policy, units, mode, requests = sys.argv[1:]
limiter = SharedLimiter(Store(url, deadline=5), policy, Budget.per_day(int(units)), leased=mode == "leased")
admitted = sum(bool(limiter.check("shared")) for _ in range(int(requests)))
limiter.close()
print(admitted)
"""


@pytest.mark.parametrize("mode", ["strict", "leased"])
def test_python_and_rust_processes_admit_exactly_the_limit(redis_url: str, name: Names, mode: str) -> None:
    peer = os.environ.get("THROTTLEKIT_RUST_PEER")
    if peer is None:
        pytest.fail("THROTTLEKIT_RUST_PEER is not set: build the example rust_peer of clients/python, and set its path")
    policy = name()
    args = [redis_url, policy, str(UNITS), mode, str(REQUESTS)]
    commands = [[peer, *args]] * PROCESSES + [[sys.executable, "-c", PYTHON_PEER, *args]] * PROCESSES
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    admitted = [int(process.communicate(timeout=120)[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    # Leased units that a process could not return in time are spent here.
    rest = SharedLimiter(Store(redis_url, deadline=DEADLINE), policy, Budget.per_day(UNITS))
    left = 0
    while rest.check("shared"):
        left += 1
    assert sum(admitted) + left == UNITS, admitted
    assert left == 0 or mode == "leased", "eight processes request more than there is"


def in_child(work: Callable[[], int]) -> int:
    """Runs `work` in a forked child and returns its result."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(99)
    end = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the child did not end")
        time.sleep(0.01)


@pytest.mark.parametrize("variable", STORES)
def test_a_forked_child_has_its_own_connections(variable: str, name: Names) -> None:
    limiter = SharedLimiter(store_at(variable), name(), Budget.per_day(9))
    assert limiter.check("a") and limiter.check("a")
    assert in_child(lambda: sum(bool(limiter.check("a")) for _ in range(3))) == 3
    grandchild = in_child(lambda: in_child(lambda: sum(bool(limiter.check("a")) for _ in range(2))))
    assert grandchild == 2
    assert sum(bool(limiter.check("a")) for _ in range(5)) == 2


def test_a_forked_child_leases_for_itself_and_awaits(redis: Store, name: Names) -> None:
    limiter = SharedLimiter(redis, name(), Budget.per_day(1_000), leased=True, batch=100)
    assert limiter.check("a")

    async def check() -> int:
        return sum([bool(await limiter.check_async("a")) for _ in range(50)])

    assert asyncio.run(check()) == 50
    assert in_child(lambda: asyncio.run(check())) == 50


def test_a_forked_child_calls_the_server_and_decides_in_process(server: Client) -> None:
    api, local = server.policy("api"), Limiter("1/hour")
    fork_key = f"fork-{time.time_ns()}"
    assert api.check(fork_key) and local.check("a")
    assert in_child(lambda: int(bool(api.check(fork_key))) + 2 * int(bool(local.check("a")))) == 1
    assert api.peek(fork_key).remaining == 3


def test_a_fork_while_threads_call_leaves_no_lock_held(redis: Store, name: Names) -> None:
    import threading

    limiter = SharedLimiter(redis, name(), Budget.per_day(10_000_000), leased=True)
    local, stop = Limiter(Budget.per_day(10_000_000)), threading.Event()

    def run() -> None:
        while not stop.is_set():
            limiter.check("a")
            local.check("a")

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: int(bool(limiter.check("b"))) + int(bool(local.check("b")))) == 2
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_pool_of_workers_shares_one_limit(redis_url: str, name: Names) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        admitted = pool.starmap(_admitted, [(redis_url, name_of := name(), 30)] * 1 + [(redis_url, name_of, 30)] * 3)
    assert sum(admitted) == 100


def _admitted(url: str, policy: str, requests: int) -> int:
    limiter = SharedLimiter(Store(url, deadline=DEADLINE), policy, Budget.per_day(100))
    return sum(bool(limiter.check("a")) for _ in range(requests))


KILLED = """
import sys, time
from throttlekit import SharedGuard, Store
guard = SharedGuard(Store(sys.argv[1], deadline=5), sys.argv[2], 2, lease=2)
held = [guard.acquire(timeout=10), guard.acquire(timeout=10)]
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_process_returns_its_slots_within_the_lease(redis_url: str, name: Names) -> None:
    policy = name()
    worker = subprocess.Popen([sys.executable, "-c", KILLED, redis_url, policy], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None and worker.stdout.readline() == "held\n"
    guard = SharedGuard(Store(redis_url, deadline=DEADLINE), policy, 2, lease=2)
    assert not guard.admit()
    worker.kill()
    killed_at = time.monotonic()
    worker.wait()
    with guard.acquire(timeout=30):
        assert time.monotonic() - killed_at < 10


ENDING = """
import asyncio, sys
from throttlekit import Guard, SharedLimiter, Store

async def main():
    limiter = SharedLimiter(Store(sys.argv[1], deadline=5), sys.argv[2], "1000000/second")
    await asyncio.gather(*(limiter.check_async("a") for _ in range(50)))
    for _ in range(200):
        limiter.check_async("a")  # not awaited: results arrive while the program ends

asyncio.run(main())
"""


def test_a_program_ends_while_results_arrive(redis_url: str, name: Names) -> None:
    for _ in range(10):
        subprocess.run([sys.executable, "-c", ENDING, redis_url, name()], check=True, timeout=60)
