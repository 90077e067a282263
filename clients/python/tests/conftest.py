"""Engines and servers. A test that needs one fails without it, and is never skipped."""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import subprocess
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from throttlekit import Client, Store

# Longer than any default: the machine may be busy.
DEADLINE = 5.0

STORES = [
    "THROTTLEKIT_REDIS",
    "THROTTLEKIT_VALKEY",
    "THROTTLEKIT_REDIS_CLUSTER",
    "THROTTLEKIT_SENTINEL",
    "THROTTLEKIT_POSTGRES",
]


def address(variable: str) -> str:
    """Returns the address of an engine."""
    found = os.environ.get(variable)
    if found is None:
        pytest.fail(f'{variable} is not set: run eval "$(cargo xtask services up)" first')
    if variable == "THROTTLEKIT_REDIS_CLUSTER":
        nodes = [node.removeprefix("redis://") for node in found.split(",")]
        return "redis+cluster://" + ",".join(nodes)
    if variable == "THROTTLEKIT_SENTINEL":
        return f"redis+sentinel://{found}/mymaster"
    return found


SCHEMA = f"py_{uuid.uuid4().hex[:12]}"


def store_at(variable: str) -> Store:
    """Returns the store of an engine. On PostgreSQL it has a schema of its own."""
    if variable == "THROTTLEKIT_POSTGRES":
        return Store(address(variable), deadline=DEADLINE, schema=SCHEMA, migrate=True)
    return Store(address(variable), deadline=DEADLINE)


@pytest.fixture
def redis_url() -> str:
    return address("THROTTLEKIT_REDIS")


@pytest.fixture
def redis(redis_url: str) -> Store:
    return Store(redis_url, deadline=DEADLINE)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    """Each of the engines in turn."""
    return store_at(request.param)


@pytest.fixture
def name() -> Callable[[], str]:
    """Returns names that no other test has."""
    prefix, numbers = f"py-{uuid.uuid4().hex[:12]}", itertools.count()
    return lambda: f"{prefix}-{next(numbers)}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(port: int, seconds: float, process: subprocess.Popen[bytes]) -> None:
    """Waits until a process listens, for as long as it runs."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise
            time.sleep(0.05)


POLICIES = """
    version: 1
    policies:
      api:
        rate: {limit: 5, per: 1m}
      chat:
        cost: {budget: 2000, per: day}
      nested:
        concurrency: {limit: 100}
        cost:
          - {name: team, budget: 100, per: day}
          - {name: user, budget: 50, per: day, by: 1}
      jobs:
        concurrency: {limit: 2}
      queued:
        concurrency: {limit: 1}
        wait: {max: 5s}
      learning:
        cost: {budget: 100000, per: day}
        learn: {}
      lent:
        rate: {algorithm: fixed_window, limit: 1000, per: 1d}
        fleet: {}
    access:
      anonymous: [{endpoints: [check, peek, debit, admit, reserve, monitor]}]
      principals:
        operator:
          token_sha256: TOKEN_SHA256
          allow: [{endpoints: [check, peek, admin]}]
"""
OPERATOR_TOKEN = "0123456789abcdef-of-the-operator"


@pytest.fixture(scope="session")
def server(server_address: str) -> Client:
    """A client of a real server."""
    return Client(f"http://{server_address}", deadline=DEADLINE)


@pytest.fixture(scope="session")
def operator(server_address: str) -> Client:
    """A client of the same server that may reset keys."""
    return Client(f"http://{server_address}", deadline=DEADLINE, token=OPERATOR_TOKEN)


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    with running_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that has decided nothing yet."""
    with running_server(tmp_path) as address:
        yield address


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """Runs a server in memory with `POLICIES`, and returns its address."""
    binary = os.environ.get("THROTTLEKIT_BIN")
    if binary is None:
        pytest.fail("THROTTLEKIT_BIN is not set: build it with cargo build -p throttlekit-cli, and set its path")
    digest = hashlib.sha256(OPERATOR_TOKEN.encode()).hexdigest()
    (folder / "policies.yaml").write_text(textwrap.dedent(POLICIES).replace("TOKEN_SHA256", digest))
    grpc, http, metrics = free_port(), free_port(), free_port()
    listen = {"--listen": grpc, "--http": http, "--metrics": metrics}
    command = [binary, "serve", "policies.yaml", "--fresh-start"]
    command += [word for option, port in listen.items() for word in (option, f"127.0.0.1:{port}")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        wait_for_port(grpc, 60, process)
        yield f"127.0.0.1:{grpc}"
    finally:
        process.terminate()
        process.wait(30)
