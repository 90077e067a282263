"""Leases: several processes share a limit, and most requests need no round trip. Needs Redis or Valkey."""

import multiprocessing
import os
import sys
import time

from throttlekit import Budget, SharedLimiter, Store

LIMIT = 20_000
PROCESSES = 4


def worker(url: str, name: str) -> tuple[int, int, float]:
    """Requests as fast as it can, and returns the number of admissions, of requests, and the seconds they took."""
    limiter = SharedLimiter(Store(url, deadline=5), name, Budget.per_day(LIMIT), leased=True)
    admitted = requests = 0
    began = time.perf_counter()
    while requests < LIMIT // 2:
        requests += 1
        admitted += bool(limiter.check("acme"))
    seconds = time.perf_counter() - began
    limiter.close()
    return admitted, requests, seconds


def main(url: str) -> None:
    name = f"example-leases-{os.getpid()}"
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        results = pool.starmap(worker, [(url, name)] * PROCESSES)
    admitted = sum(result[0] for result in results)
    for number, (own, requests, seconds) in enumerate(results, 1):
        print(f"process {number}: {own} of {requests} admitted, {1e6 * seconds / requests:.1f} µs a request")
    print(f"together {admitted} of {LIMIT}: never more than the limit")
    assert admitted <= LIMIT


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379")
