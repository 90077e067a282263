"""The client of a real server."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid

import pytest
from throttlekit import Budget, Client, CostHint, Ended, SharedGuard, SharedLimiter, StoreError, Watch


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


def test_a_denial_names_the_budget_that_denied(server: Client) -> None:
    nested, team, ann = server.policy("nested"), key(), key()
    with nested.admit((team, ann), 40) as work:
        assert work.limit_name is None and work.permit is not None
        denied = nested.admit((team, ann), 20)
        assert (denied.denied_by, denied.limit_name) == ("cost", "user")
        assert nested.admit((team, key()), 61).limit_name == "user", "more than a user ever has"
        other = nested.admit((team, key()), 50).into_permit()
        assert nested.admit((team, key()), 20).limit_name == "team"
        assert work.permit.debit(40) and work.permit.debit(10) and work.permit.limit_name is None
        assert not work.permit.debit(1) and work.permit.limit_name == "team", "both are spent: the first"
        other.ignored()
    chat = server.policy("chat")
    assert chat.debit(ann, 2_000, stream=1, number=1).limit_name is None
    assert chat.debit(ann, 1, stream=1, number=2).limit_name is None, "the only budget has no name"


def test_slots_of_the_server_are_held_by_a_block(server: Client) -> None:
    jobs = server.policy("jobs")
    with jobs.admit(key()) as one, jobs.admit(key()) as two:
        assert one and two and jobs.admit(key()).denied_by == "concurrency"


async def test_slots_are_held_by_an_async_block(server: Client) -> None:
    jobs = server.policy("jobs")
    async with jobs.admit_async(key()) as one:
        assert one.allowed


def test_an_admission_waits_on_the_server(server: Client) -> None:
    queued = server.policy("queued", wait=5)
    held = queued.admit(key()).into_permit()
    threading.Timer(0.2, held.success).start()
    with queued.admit(key(), priority=1, value=2.0) as admission:
        assert admission.allowed
    assert server.policy("queued").admit(key()).allowed, "without a wait"


def test_a_policy_that_learns_reserves_what_earlier_work_used(server: Client) -> None:
    learning, acme = server.policy("learning"), key()
    hint = CostHint("small-model", input=100, at_most=50)
    with learning.admit(acme, hint=hint) as work:
        reserved = 100_000 - learning.peek(acme).remaining
        assert 100 < reserved <= 150, f"the input and at most 50 tokens more, not {reserved}"
        assert work.permit is not None
        work.permit.settle(120)
    # The permit ends in the background.
    end = time.monotonic() + 10
    while (left := learning.peek(acme).remaining) != 100_000 - 120:
        assert time.monotonic() < end, left
    assert repr(hint) == 'CostHint("small-model", input=100, at_most=50)'


async def test_a_hint_counts_in_an_event_loop(server: Client) -> None:
    learning, acme = server.policy("learning"), key()
    async with learning.admit_async(acme, hint=CostHint(input=1_000, at_most=1)) as work:
        assert work.allowed
        assert learning.peek(acme).remaining in (99_000, 98_999)


def test_units_are_leased_from_a_server(server: Client) -> None:
    lent, acme = SharedLimiter(server, "lent", Budget.per_day(1_000), leased=True, batch=100), key()
    assert [bool(lent.check(acme)) for _ in range(1_001)] == [True] * 1_000 + [False]
    with pytest.raises(StoreError, match="RemotePolicy"):
        lent.peek(acme)
    lent.close()
    with pytest.raises(TypeError, match="a Client"):
        SharedLimiter(7, "lent", "1/hour")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a Store or its URL"):
        SharedGuard(server, "lent", 1)  # type: ignore[arg-type]


async def test_units_are_leased_in_an_event_loop(server: Client) -> None:
    lent, zoo = SharedLimiter(server, "lent", Budget.per_day(1_000), leased=True, batch=10), key()
    answers = [await lent.check_async(zoo) for _ in range(50)]
    assert all(answers) and answers[-1].guarantee == "exact"
    await lent.close_async()


def test_calls_without_a_session_decide_the_same(server_address: str) -> None:
    api, alice = Client(f"http://{server_address}", deadline=5, sessions=False).policy("api"), key()
    assert [bool(api.check(alice)) for _ in range(6)] == [True] * 5 + [False]


def test_a_reset_forgets_what_a_key_has_used(server: Client, operator: Client) -> None:
    api, alice = operator.policy("api"), key()
    assert api.check(alice, 5) and not api.check(alice)
    with pytest.raises(StoreError, match="rejected"):
        server.policy("api").reset(alice)
    assert api.peek(alice).remaining == 0
    api.reset(alice)
    assert api.peek(alice).remaining == 5


async def test_a_reset_forgets_in_an_event_loop(operator: Client) -> None:
    api, alice = operator.policy("api"), key()
    assert await api.check_async(alice, 5)
    await api.reset_async(alice)
    assert (await api.peek_async(alice)).remaining == 5


def test_denials_are_watched_as_they_happen(server: Client) -> None:
    api, alice, seen = server.policy("api"), key(), []
    with server.watch("api") as watch:
        assert api.check(alice, 5) and not api.check(alice)
        for denial in watch:
            if denial.key == alice:
                seen.append(denial)
                break
        assert watch.next(timeout=0) is None
        waiter = threading.Thread(target=lambda: seen.extend(watch))
        waiter.start()
        time.sleep(0.1)
    waiter.join(10)
    assert not waiter.is_alive(), "closing ends a wait"
    (denial,) = seen
    assert (denial.policy, denial.axis, denial.limit, denial.remaining) == ("api", "rate", 5, 0)
    assert 0 < denial.retry_after_ms <= 60_000 and abs(denial.at.timestamp() - time.time()) < 60
    assert watch.next() is None, "closed"


async def test_denials_are_watched_in_an_event_loop(server: Client) -> None:
    api, alice = server.policy("api"), key()
    async with server.watch_async() as watch:
        assert await api.check_async(alice, 5) and not await api.check_async(alice)
        async for denial in watch:
            if denial.key == alice:
                break
        assert await watch.next_async(timeout=0.01) is None
        waiting = asyncio.ensure_future(to_list(watch))
        await asyncio.sleep(0.05)
    assert await asyncio.wait_for(waiting, 10) == []


async def to_list(watch: Watch) -> list[object]:
    return [denial async for denial in watch]


def test_a_watch_ends_at_a_fork(server: Client) -> None:
    watch = server.watch()
    child = os.fork()
    if child == 0:
        try:
            watch.next(timeout=1)
        except Ended:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_snapshot_has_every_policy(server: Client) -> None:
    api, alice = server.policy("api"), key()
    assert api.check(alice)
    end = time.monotonic() + 10
    while True:
        snapshot = server.snapshot()
        policies = {policy["name"]: policy for policy in snapshot["policies"]}
        if policies["api"]["allowed"] or time.monotonic() > end:
            break
    assert set(policies) == {"api", "chat", "jobs", "learning", "lent", "nested", "queued"}
    assert policies["api"]["allowed"] > 0
    assert snapshot["engine"]["kind"] == "memory" and snapshot["config"]["versionHash"]


async def test_a_snapshot_is_awaited(server: Client) -> None:
    snapshot = await server.snapshot_async()
    assert snapshot["meta"]["mode"] and isinstance(snapshot["recentDenials"], list)


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
