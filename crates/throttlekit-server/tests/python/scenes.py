"""Scenes that the client from PyPI plays against a server. Each ends by itself or fails with what it saw."""

import json
import os
import sys
import time

from throttlekit import FleetBackend, ServiceBackend
from throttlekit.errors import OperationNotSupportedError, PolicyNotFoundError, ThrottleKitError

TARGET = os.environ["TARGET"]


def raises(kind, work):
    try:
        work()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was expected")


def rate(rl):
    allowed = [rl.check("api", "ada").allowed for _ in range(6)]
    assert allowed == [True] * 5 + [False], allowed
    denied = rl.check("api", "ada")
    assert denied.limit == 5 and denied.remaining == 0 and 0 < denied.retry_after_ms <= 60_000, denied
    many = rl.check_many("api", ["bob", "cy", "bob"], cost=2)
    assert [d.remaining for d in many] == [3, 3, 1], many
    assert rl.peek("api", "bob").remaining == 1 and rl.peek("api", "bob").remaining == 1
    forecast = rl.forecast("api", "bob", cost=1)
    assert forecast.spendable_now == 1 and forecast.full_at > forecast.next_replenish_at, forecast
    assert rl.check("api", "dee", cost=5).remaining == 0
    assert not rl.check("api", "eve", cost=6).allowed
    assert rl.peek("api", "eve").remaining == 5, "a denial costs nothing"
    leased = [rl.check("leased", "ada").allowed for _ in range(25)]
    assert leased.count(True) == 20, leased


def budget(rl):
    assert [rl.debit("tokens", "t", 60).remaining for _ in range(2)] == [40, 0]
    crossed = rl.debit("tokens", "t", 1)
    assert not crossed.allowed and crossed.retry_after_ms > 0, crossed
    assert rl.debit("tokens", "other").remaining == 99


def admit(rl):
    with rl.admit("jobs", "u") as one, rl.admit("jobs", "u") as two:
        assert one.allowed and two.allowed and one.held and one.lease_id != two.lease_id
        three = rl.admit("jobs", "u")
        assert not three.allowed and three.binding_axis == "concurrency" and not three.held
    again = rl.admit("jobs", "u")
    assert again.allowed, "both slots are back"
    again.release()
    again.release()
    for _ in range(3):
        rl.admit("both", "u").release()
    denied = rl.admit("both", "u")
    assert not denied.allowed and denied.binding_axis == "rate" and not denied.policy_denied
    cheap = rl.admit("priced", "u", value=1)
    assert not cheap.allowed and cheap.policy_denied and cheap.binding_axis == ""
    dear = rl.admit("priced", "u", value=9)
    assert dear.allowed
    dear.release()


def crash(rl):
    lost = [rl.admit("jobs", "u") for _ in range(2)]
    assert all(a.allowed for a in lost) and not rl.admit("jobs", "u").allowed
    deadline = time.monotonic() + 4
    while not (found := rl.admit("jobs", "u")).allowed:
        assert time.monotonic() < deadline, "slots of a client that fell silent come back"
        time.sleep(0.1)
    found.release()


def heartbeats(rl):
    with rl.admit("jobs", "u", heartbeat=True) as held:
        time.sleep(3.2)
        assert not held.reclaimed, "heartbeats keep it past its lifetime"
        others = [rl.admit("jobs", "v") for _ in range(2)]
        assert [o.allowed for o in others] == [True, False]
    lost = rl.admit("jobs", "w", heartbeat=True)
    lost._backend._pump._stub.Release(type_of_release(lost.lease_id))
    deadline = time.monotonic() + 4
    while not lost.reclaimed:
        assert time.monotonic() < deadline, "a lost lease is reported with the next heartbeat"
        time.sleep(0.1)


def type_of_release(lease_id):
    from throttlekit._generated import throttlekit_pb2 as pb

    return pb.ReleaseRequest(lease_id=lease_id)


def fleet(_):
    with FleetBackend(TARGET) as fleet:
        limiter = fleet.leased("lent", domain="acme", batch=4)
        allowed = [limiter.check().allowed for _ in range(14)]
        assert allowed == [True] * 10 + [False] * 4, allowed
        lease = fleet.reserve("lent", domain="other", wants=100)
        assert lease.capacity == 10 and lease.limit == 10 and lease.safe_capacity <= lease.capacity
        empty = fleet.reserve("lent", domain="other", wants=1)
        assert not empty.granted and empty.retry_after_ms > 0, empty
        raises(OperationNotSupportedError, lambda: fleet.reserve("lent", axis="concurrency"))
        raises(OperationNotSupportedError, lambda: fleet.reserve("api"))


def monitor(rl):
    from throttlekit import MonitorBackend

    for _ in range(6):
        rl.check("api", "mo")
    with MonitorBackend(TARGET) as watch:
        deadline = time.monotonic() + 5
        while True:
            snapshot = watch.get_snapshot()
            seen = {p.name: p for p in snapshot.policies}
            if "api" in seen and seen["api"].allowed >= 5 and seen["api"].denied >= 1:
                break
            assert time.monotonic() < deadline, seen.get("api")
            time.sleep(0.1)
        assert snapshot.generated_at > 0 and seen["api"].limit == 5
        shown = json.dumps(snapshot.parsed())
        assert "mo" in shown and "rate" in shown, shown
        rl.check("shared", "acme", cost=30)
        while True:
            policies = {p["name"]: p for p in watch.get_snapshot().parsed()["policies"]}
            if policies["shared"]["fairShares"]:
                break
            assert time.monotonic() < deadline, policies["shared"]
            time.sleep(0.1)
        share = {"tenant": "acme", "used": 30, "guaranteed": 100, "weight": 3}
        assert policies["shared"]["fairShares"] == [share], policies["shared"]
        assert snapshot.parsed()["engine"]["lastError"] == ""


def errors(rl):
    raises(PolicyNotFoundError, lambda: rl.check("nobody", "k"))
    raises(OperationNotSupportedError, lambda: rl.debit("api", "k"))
    raises(OperationNotSupportedError, lambda: rl.check("jobs", "k"))
    raises(OperationNotSupportedError, lambda: rl.check("tokens", "k"))
    raises(OperationNotSupportedError, lambda: rl.admit("api", "k"))
    said = raises(ThrottleKitError, lambda: rl.check("api", "k", cost=-1))
    assert said.startswith("INVALID_ARGUMENT"), said


def golden(rl):
    """The recorded decisions, over the wire. The test sets the server's clock when it is told an instant."""
    with open(os.environ["VECTORS"], encoding="utf-8") as file:
        suites = json.load(file)["suites"]
    played = 0
    for place, suite in enumerate(suites):
        if suite["primitive"] == "lease":
            continue
        for op in suite["ops"]:
            print(f"clock {op['now']}", flush=True)
            assert sys.stdin.readline().strip() == "set"
            policy, key = f"p{place}", suite.get("key", "k")
            got = rl.debit(policy, key, op["tokens"]) if "tokens" in op else rl.check(policy, key, op["cost"])
            want = op["expect"]
            seen = {
                "allowed": got.allowed,
                "limit": got.limit,
                "remaining": got.remaining,
                "resetAt": got.reset_at,
                "retryAfterMs": got.retry_after_ms,
            }
            assert seen == want, (suite["name"], op, seen)
        played += 1
    assert played == 12, played


scene = sys.argv[1]
with ServiceBackend(TARGET) as backend:
    globals()[scene](backend)
print(f"{scene}: as it should be")
