"""A decorator for views of Flask. For all routes at once, use the middleware of ``throttlekit.contrib.wsgi``.

::

    @app.get("/items")
    @admitted(Limiter("100/minute"))
    def items() -> list[str]: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from flask import Request, Response, jsonify, make_response, request

from ._decide import AnyLimiter, CostOf, OnError, cost_of, decider, headers, problem

P = ParamSpec("P")


def client_address(request: Request) -> str | None:
    """Returns the address of the peer. Behind a proxy, that is the proxy's."""
    return request.remote_addr or ""


def admitted(
    limiter: AnyLimiter,
    *,
    key: Callable[[Request], str | None] = client_address,
    cost: CostOf[Request] = 1,
    name: str = "default",
    on_error: OnError = "deny",
) -> Callable[[Callable[P, Any]], Callable[P, Response]]:
    """Returns a decorator that admits requests by any limiter. A permit is held until the view returns."""

    decide = decider(limiter)

    def decorate(view: Callable[P, Any]) -> Callable[P, Response]:
        @functools.wraps(view)
        def limited(*args: P.args, **kwargs: P.kwargs) -> Response:
            caller = key(request)
            if caller is None:
                return make_response(view(*args, **kwargs))
            outcome = decide(caller, cost_of(cost, request))
            if not outcome.passes(on_error):
                response = make_response(jsonify(problem(outcome)), outcome.status)
                response.headers.extend(headers(outcome, name, denied=True))
                return response
            failed = True
            try:
                response = make_response(view(*args, **kwargs))
                failed = False
            finally:
                outcome.end(failed=failed)
            response.headers.extend(headers(outcome, name, denied=False))
            return response

        return limited

    return decorate
