"""The client of a real server."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from throttlekit import Client, StoreError


def key() -> str:
    return uuid.uuid4().hex


def test_a_policy_is_checked(server: Client) -> None:
    api, alice = server.policy("api"), key()
    assert [bool(api.check(alice)) for _ in range(6)] == [True] * 5 + [False]
    assert api.peek(alice).remaining == 0 and api.forecast(key()).spendable_now == 5
    assert [bool(answer) for answer in api.check_many([alice, key(), (key(), 5)])] == [False, True, True]


async def test_a_policy_is_checked_in_an_event_loop(server: Client) -> None:
    api, bob = server.policy("api"), key()
    answers = await asyncio.gather(*(api.check_async(bob) for _ in range(8)))
    assert sum(map(bool, answers)) == 5
    assert answers[0].guarantee == "exact"


def test_a_token_budget_is_debited_once(server: Client) -> None:
    chat, acme = server.policy("chat"), key()
    for _ in range(2):
        assert chat.debit(acme, 900, stream=1, number=1)
    with chat.stream(acme) as stream:
        assert stream.debit(1_000) and stream.debit(500) and not stream.debit(1)


def test_slots_of_the_server_are_held_by_a_block(server: Client) -> None:
    jobs = server.policy("jobs")
    with jobs.admit(key()) as one, jobs.admit(key()) as two:
        assert one and two and jobs.admit(key()).denied_by == "concurrency"


async def test_slots_are_held_by_an_async_block(server: Client) -> None:
    jobs = server.policy("jobs")
    async with jobs.admit_async(key()) as one:
        assert one.allowed


def test_an_unknown_policy_is_an_error(server: Client) -> None:
    with pytest.raises(StoreError, match="rejected") as error:
        server.policy("unknown").check("a")
    assert error.value.kind == "rejected"


def test_a_fallback_decides_while_the_server_is_unreachable() -> None:
    client = Client("http://127.0.0.1:1", deadline=0.1)
    closed = client.policy("api").check("a")
    assert not closed and closed.guarantee == "closed" and closed.outage is not None
    opened = client.policy("api", on_outage="open").check("a")
    assert opened and opened.guarantee == "open"
    local = client.policy("api", on_outage="local", nodes=2, limit="4/hour")
    assert sum(bool(local.check("a")) for _ in range(5)) == 2


def test_names_of_throttlekit_py_work(server: Client, server_address: str) -> None:
    from throttlekit.service import ServiceBackend

    with ServiceBackend(server_address, deadline=5) as backend:
        assert backend.check("api", key()).remaining == 4
        assert len(backend.check_many("api", [key(), key()])) == 2
        acme = key()
        assert backend.debit("chat", acme, 1_999) and backend.debit("chat", acme, 2)
        assert not backend.debit("chat", acme, 1)
        with backend.admit("jobs", key(), heartbeat=True) as one:
            assert one.allowed and one.held and not one.reclaimed and one.binding_axis == ""
        assert not one.held


async def test_async_names_of_throttlekit_py_work(server: Client, server_address: str) -> None:
    from throttlekit.service import AsyncServiceBackend

    async with AsyncServiceBackend(server_address, deadline=5) as backend:
        assert (await backend.check("api", key())).allowed
        async with await backend.admit("jobs", key()) as one:
            assert one.held
