"""Decisions of any limiter, for the adapters."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
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

    __slots__ = ("decision", "permit")

    def __init__(self, decision: Decision | None, permit: Permit | None = None) -> None:
        self.decision = decision
        self.permit = permit

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


def decide(limiter: AnyLimiter, key: Any, cost: int) -> Outcome:
    """Decides a request. Blocks if the limiter is shared."""
    try:
        if isinstance(limiter, (Policy, SharedPolicy, RemotePolicy)):
            return _admitted(limiter.admit(key, cost))
        if isinstance(limiter, SharedGuard):
            return _admitted(limiter.admit(key))
        if isinstance(limiter, Guard):
            return _guarded(limiter, key)
        return Outcome(limiter.check(key, cost))
    except StoreError as error:
        return _undecided(error)


async def decide_async(limiter: AnyLimiter, key: Any, cost: int) -> Outcome:
    """Decides a request, without blocking the event loop."""
    try:
        if isinstance(limiter, (SharedPolicy, RemotePolicy)):
            return _admitted(await limiter.admit_async(key, cost))
        if isinstance(limiter, SharedGuard):
            return _admitted(await limiter.admit_async(key))
        if isinstance(limiter, (SharedLimiter, SharedFairLimiter)):
            return Outcome(await limiter.check_async(key, cost))
    except StoreError as error:
        return _undecided(error)
    return decide(limiter, key, cost)


def _admitted(admission: Admission) -> Outcome:
    return Outcome(admission, admission.permit)


def _guarded(guard: Guard, key: Any) -> Outcome:
    permit = guard.try_acquire(key)
    return Outcome(guard.peek(key), permit)


def _undecided(error: StoreError) -> Outcome:
    log.warning("request undecided", extra={"kind": error.kind, "error": str(error)})
    return Outcome(None)


def is_let_through(outcome: Outcome, on_error: OnError) -> bool:
    """Checks whether the request proceeds."""
    if outcome.decision is None:
        return on_error == "allow"
    return outcome.permit is not None or outcome.decision.allowed


def headers(outcome: Outcome, name: str, *, denied: bool) -> list[tuple[str, str]]:
    """Returns the headers of a response: the limit, what is left, and when to retry."""
    decision = outcome.decision
    if decision is None:
        return [("retry-after", str(UNDECIDED_RETRY_SECONDS))] if denied else []
    reset = max(0, math.ceil(decision.reset_at_ns / 1e9 - time.time()))
    found = [
        ("ratelimit-policy", f'"{name}";q={decision.limit}'),
        ("ratelimit", f'"{name}";r={decision.remaining};t={reset}'),
    ]
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
