"""Decisions of any limiter, for the adapters."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias, TypeVar

from .._errors import StoreError
from .._native import (
    Admission,
    Decision,
    FairLimiter,
    Guard,
    Limiter,
    Permit,
    Policy,
    RemotePolicy,
    SharedFairLimiter,
    SharedGuard,
    SharedLimiter,
    SharedPolicy,
)

AnyLimiter: TypeAlias = (
    Limiter
    | SharedLimiter
    | FairLimiter
    | SharedFairLimiter
    | Guard
    | SharedGuard
    | Policy
    | SharedPolicy
    | RemotePolicy
)
"""Anything that decides."""

OnError: TypeAlias = Literal["deny", "allow"]
"""Response to a request on which nothing was decided: 503, or as if it was allowed."""

T = TypeVar("T")
CostOf: TypeAlias = int | Callable[[T], int]
"""Cost of a request, or a function that returns it."""

UNDECIDED_RETRY_SECONDS = 1

log = logging.getLogger("throttlekit")


class Outcome:
    """The decision on a request and the permit that it holds; no decision if the store failed."""

    __slots__ = ("allowed", "decision", "permit")

    def __init__(self, decision: Decision | None, permit: Permit | None = None, *, holds: bool = False) -> None:
        self.decision = decision
        self.permit = permit
        self.allowed = permit is not None if holds else decision is not None and decision.allowed

    def passes(self, on_error: OnError) -> bool:
        """Checks whether the request proceeds."""
        return self.allowed or (self.decision is None and on_error == "allow")

    @property
    def status(self) -> int:
        """Status of the response to a request that is not let through: 429, or 503 in an outage."""
        return 503 if is_outage(self.decision) else 429

    def end(self, *, failed: bool = False) -> None:
        """Ends the work."""
        if self.permit is not None:
            if failed:
                self.permit.dropped()
            else:
                self.permit.success()


def is_outage(decision: Decision | None) -> bool:
    """Checks whether the store, and not a limit, is the reason of a denial."""
    return decision is None or getattr(decision, "guarantee", None) == "closed"


def cost_of(cost: CostOf[T], request: T) -> int:
    """Returns the cost of a request."""
    return cost if isinstance(cost, int) else cost(request)


LOCAL = (Limiter, FairLimiter, Guard, Policy)
"""Limiters that decide without I/O, so that an event loop need not wait for them."""


def decider(limiter: AnyLimiter) -> Callable[[Any, int], Outcome]:
    """Returns the function that decides requests by a limiter. It blocks if the limiter is shared."""
    if isinstance(limiter, (Policy, SharedPolicy, RemotePolicy)):
        admit = limiter.admit
        return _guarded_by_errors(lambda key, cost: _admitted(admit(key, cost)))
    if isinstance(limiter, SharedGuard):
        enter = limiter.admit
        return _guarded_by_errors(lambda key, cost: _admitted(enter(key)))
    if isinstance(limiter, Guard):
        guard = limiter
        return lambda key, cost: Outcome(guard.peek(key), guard.try_acquire(key), holds=True)
    check = limiter.check
    if isinstance(limiter, LOCAL):
        return lambda key, cost: Outcome(check(key, cost))
    return _guarded_by_errors(lambda key, cost: Outcome(check(key, cost)))


def async_decider(limiter: AnyLimiter) -> Callable[[Any, int], Awaitable[Outcome]]:
    """Returns the function that decides requests by a limiter, without blocking an event loop."""
    if isinstance(limiter, (SharedPolicy, RemotePolicy)):
        admit = limiter.admit_async

        async def decide_policy(key: Any, cost: int) -> Outcome:
            try:
                return _admitted(await admit(key, cost))
            except StoreError as error:
                return _undecided(error)

        return decide_policy
    if isinstance(limiter, SharedGuard):
        enter = limiter.admit_async

        async def decide_slot(key: Any, cost: int) -> Outcome:
            try:
                return _admitted(await enter(key))
            except StoreError as error:
                return _undecided(error)

        return decide_slot
    if isinstance(limiter, (SharedLimiter, SharedFairLimiter)):
        check = limiter.check_async

        async def decide_limit(key: Any, cost: int) -> Outcome:
            try:
                return Outcome(await check(key, cost))
            except StoreError as error:
                return _undecided(error)

        return decide_limit
    decide = decider(limiter)

    async def decide_now(key: Any, cost: int) -> Outcome:
        return decide(key, cost)

    return decide_now


def _guarded_by_errors(decide: Callable[[Any, int], Outcome]) -> Callable[[Any, int], Outcome]:
    def decided(key: Any, cost: int) -> Outcome:
        try:
            return decide(key, cost)
        except StoreError as error:
            return _undecided(error)

    return decided


def _admitted(admission: Admission) -> Outcome:
    return Outcome(admission, admission.permit)


def _undecided(error: StoreError) -> Outcome:
    log.warning("request undecided", extra={"kind": error.kind, "error": str(error)})
    return Outcome(None)


def headers(outcome: Outcome, name: str, *, denied: bool) -> list[tuple[str, str]]:
    """Returns the headers of a response: the limit, what is left, and when to retry."""
    decision = outcome.decision
    if decision is None:
        return [("retry-after", str(UNDECIDED_RETRY_SECONDS))] if denied else []
    policy, left = decision.headers(name)
    found = [("ratelimit-policy", policy), ("ratelimit", left)]
    if denied and decision.retry_after is not None:
        found.append(("retry-after", str(max(1, math.ceil(decision.retry_after)))))
    return found


def problem(outcome: Outcome) -> dict[str, Any]:
    """Returns the body of the response to a request that is not let through."""
    if outcome.decision is None or is_outage(outcome.decision):
        return {"title": "Service Unavailable", "status": 503, "detail": "the rate limit could not be checked"}
    axis = getattr(outcome.decision, "denied_by", None) or "rate"
    return {
        "title": "Too Many Requests",
        "status": 429,
        "detail": f"denied by the {axis} limit",
        "retry_after": outcome.decision.retry_after,
    }
