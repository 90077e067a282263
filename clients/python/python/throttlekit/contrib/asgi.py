"""ASGI middleware, for Starlette, FastAPI, Litestar, Quart and others.

::

    app.add_middleware(AdmissionMiddleware, limiter=Limiter("100/minute"), key=header("x-api-key"))
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from .._native import Decision, FairLimiter, Limiter, _ResponseFields
from ._decide import LOCAL, AnyLimiter, CostOf, OnError, Outcome, async_decider, decider, headers, problem

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

KeyOf: TypeAlias = Callable[[Scope], str | None]
"""Returns who calls; ``None`` for a request that is not limited."""


def client_address(scope: Scope) -> str | None:
    """Returns the address of the peer. Behind a proxy, that is the proxy's."""
    client = scope.get("client")
    return client[0] if client else ""


def header(name: str) -> KeyOf:
    """Returns a function that reads the key from a header. Requests without it share one key."""
    wanted = name.lower().encode("latin-1")

    def key(scope: Scope) -> str | None:
        for field, value in scope["headers"]:
            if field == wanted:
                return bytes(value).decode("latin-1")
        return ""

    return key


class AdmissionMiddleware:
    """Admits requests by any limiter. A permit is held until the response is sent.

    ``key`` returns who calls. ``cost`` is a number or a function of the scope. ``on_error`` applies if nothing was
    decided: ``deny`` responds with 503, ``allow`` lets the request through. Headers are set on every response.
    """

    def __init__(
        self,
        app: App,
        limiter: AnyLimiter,
        *,
        key: KeyOf = client_address,
        cost: CostOf[Scope] = 1,
        name: str = "default",
        on_error: OnError = "deny",
    ) -> None:
        self.app = app
        # A check in process holds nothing, and needs no coroutine of its own.
        self.check = limiter.check if isinstance(limiter, (Limiter, FairLimiter)) else None
        self.decide = decider(limiter) if isinstance(limiter, LOCAL) else None
        self.decide_async = async_decider(limiter)
        self.key = key
        self.cost = cost if isinstance(cost, int) else 1
        self.cost_of = None if isinstance(cost, int) else cost
        self.name = name
        self.on_error = on_error
        self.fields = _ResponseFields(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request. WebSocket and lifespan scopes pass."""
        key = self.key(scope) if scope["type"] == "http" else None
        if key is None:
            await self.app(scope, receive, send)
            return
        cost = self.cost if self.cost_of is None else self.cost_of(scope)
        if self.check is not None:
            decision = self.check(key, cost)
            if decision:
                await self.app(scope, receive, self._marked(send, decision))
            else:
                await self._deny(Outcome(decision), send)
            return
        outcome = self.decide(key, cost) if self.decide is not None else await self.decide_async(key, cost)
        if not outcome.passes(self.on_error):
            await self._deny(outcome, send)
            return
        failed = True
        try:
            await self.app(scope, receive, self._marked(send, outcome.decision))
            failed = False
        finally:
            outcome.end(failed=failed)

    def _marked(self, send: Send, decision: Decision | None) -> Send:
        """Returns a function that adds the headers of a decision. It returns what ``send`` does: no further coroutine."""
        if decision is None:
            return send
        append = self.fields.append

        def send_marked(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = append(message.get("headers", ()), decision)
            return send(message)

        return send_marked

    async def _deny(self, outcome: Outcome, send: Send) -> None:
        body = json.dumps(problem(outcome)).encode()
        fields = [
            ("content-type", "application/problem+json"),
            ("content-length", str(len(body))),
            *headers(outcome, self.name, denied=True),
        ]
        encoded = [(field.encode(), value.encode()) for field, value in fields]
        await send({"type": "http.response.start", "status": outcome.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})
