"""Middleware and a decorator for Django, for synchronous and asynchronous views.

Settings::

    MIDDLEWARE = [..., "throttlekit.contrib.django.AdmissionMiddleware"]
    THROTTLEKIT = {"limiter": Limiter("100/minute"), "key": lambda request: request.headers.get("x-api-key", "")}
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, JsonResponse

from ._decide import (
    AnyLimiter,
    CostOf,
    OnError,
    Outcome,
    async_decider,
    cost_of,
    decider,
    headers,
    problem,
)

KeyOf = Callable[[HttpRequest], "str | None"]
Get = Callable[..., Any]


def client_address(request: HttpRequest) -> str | None:
    """Returns the address of the peer. Behind a proxy, that is the proxy's."""
    return str(request.META.get("REMOTE_ADDR", ""))


class _Admission:
    """Admits requests around a function that responds to them."""

    def __init__(
        self,
        limiter: AnyLimiter,
        key: KeyOf = client_address,
        cost: CostOf[HttpRequest] = 1,
        name: str = "default",
        on_error: OnError = "deny",
    ) -> None:
        self.decide = decider(limiter)
        self.decide_async = async_decider(limiter)
        self.key = key
        self.cost = cost
        self.name = name
        self.on_error = on_error

    def respond(self, request: HttpRequest, get: Callable[[], HttpResponseBase]) -> HttpResponseBase:
        key = self.key(request)
        if key is None:
            return get()
        outcome = self.decide(key, cost_of(self.cost, request))
        if not outcome.passes(self.on_error):
            return self._denied(outcome)
        failed = True
        try:
            response = get()
            failed = False
        finally:
            outcome.end(failed=failed)
        return self._marked(response, outcome, denied=False)

    async def respond_async(
        self, request: HttpRequest, get: Callable[[], Awaitable[HttpResponseBase]]
    ) -> HttpResponseBase:
        key = self.key(request)
        if key is None:
            return await get()
        outcome = await self.decide_async(key, cost_of(self.cost, request))
        if not outcome.passes(self.on_error):
            return self._denied(outcome)
        failed = True
        try:
            response = await get()
            failed = False
        finally:
            outcome.end(failed=failed)
        return self._marked(response, outcome, denied=False)

    def _denied(self, outcome: Outcome) -> HttpResponseBase:
        return self._marked(JsonResponse(problem(outcome), status=outcome.status), outcome, denied=True)

    def _marked(self, response: HttpResponseBase, outcome: Outcome, *, denied: bool) -> HttpResponseBase:
        for field, value in headers(outcome, self.name, denied=denied):
            response.headers[field] = value
        return response


class AdmissionMiddleware:
    """Admits all requests by the limiter of ``settings.THROTTLEKIT``."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Get) -> None:
        self.get_response = get_response
        self.admission = _Admission(**settings.THROTTLEKIT)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Handles a request."""
        if iscoroutinefunction(self):
            return self.admission.respond_async(request, lambda: self.get_response(request))
        return self.admission.respond(request, lambda: self.get_response(request))


def admitted(
    limiter: AnyLimiter,
    *,
    key: KeyOf = client_address,
    cost: CostOf[HttpRequest] = 1,
    name: str = "default",
    on_error: OnError = "deny",
) -> Callable[[Get], Get]:
    """Returns a decorator that admits requests to a view by any limiter. A permit is held until the view returns."""
    admission = _Admission(limiter, key, cost, name, on_error)

    def decorate(view: Get) -> Get:
        if iscoroutinefunction(view):

            @functools.wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
                return await admission.respond_async(request, lambda: view(request, *args, **kwargs))

            return limited_async

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            return admission.respond(request, lambda: view(request, *args, **kwargs))

        return limited

    return decorate
