"""WSGI middleware, for Flask, Django, Pyramid and others.

::

    app.wsgi_app = AdmissionMiddleware(app.wsgi_app, Limiter("100/minute"), key=header("x-api-key"))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from ._decide import AnyLimiter, CostOf, OnError, Outcome, cost_of, decider, headers, problem

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

KeyOf: TypeAlias = Callable[["WSGIEnvironment"], "str | None"]
"""Returns who calls; ``None`` for a request that is not limited."""

_REASONS = {429: "429 Too Many Requests", 503: "503 Service Unavailable"}


def client_address(environ: WSGIEnvironment) -> str | None:
    """Returns the address of the peer. Behind a proxy, that is the proxy's."""
    return str(environ.get("REMOTE_ADDR", ""))


def header(name: str) -> KeyOf:
    """Returns a function that reads the key from a header. Requests without it share one key."""
    variable = "HTTP_" + name.upper().replace("-", "_")
    return lambda environ: str(environ.get(variable, ""))


class AdmissionMiddleware:
    """Admits requests by any limiter. A permit is held until the response is closed."""

    def __init__(
        self,
        app: WSGIApplication,
        limiter: AnyLimiter,
        *,
        key: KeyOf = client_address,
        cost: CostOf[WSGIEnvironment] = 1,
        name: str = "default",
        on_error: OnError = "deny",
    ) -> None:
        self.app = app
        self.decide = decider(limiter)
        self.key = key
        self.cost = cost
        self.name = name
        self.on_error = on_error

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handles a request."""
        key = self.key(environ)
        if key is None:
            return self.app(environ, start_response)
        outcome = self.decide(key, cost_of(self.cost, environ))
        if not outcome.passes(self.on_error):
            return self._deny(outcome, start_response)
        return self._pass(outcome, environ, start_response)

    def _pass(self, outcome: Outcome, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        extra = headers(outcome, self.name, denied=False)

        def start(status: str, fields: list[tuple[str, str]], *exc_info: Any) -> Any:
            return start_response(status, [*fields, *extra], *exc_info)

        try:
            return _Body(self.app(environ, start), outcome)
        except BaseException:
            outcome.end(failed=True)
            raise

    def _deny(self, outcome: Outcome, start_response: StartResponse) -> Iterable[bytes]:
        body = json.dumps(problem(outcome)).encode()
        fields = [
            ("content-type", "application/problem+json"),
            ("content-length", str(len(body))),
            *headers(outcome, self.name, denied=True),
        ]
        start_response(_REASONS[outcome.status], fields)
        return [body]


class _Body:
    """The body of a response. Ends the permit when the server closes it."""

    def __init__(self, body: Iterable[bytes], outcome: Outcome) -> None:
        self.body = body
        self.outcome = outcome

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.body)

    def close(self) -> None:
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        finally:
            self.outcome.end()
