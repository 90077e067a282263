"""An adapter for requests that limits calls to providers, and learns from their responses.

::

    session.mount("https://", OutboundAdapter(Outbound("github", requests_per_minute=80)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from .._native import Outbound

REFUSALS = frozenset({429, 503, 529})


def host(request: PreparedRequest) -> str:
    """Returns the host of a request."""
    return urlsplit(request.url or "").hostname or ""


def no_tokens(request: PreparedRequest) -> int:
    """Returns no estimate."""
    return 0


class OutboundAdapter(HTTPAdapter):
    """Sends calls when their limits allow it. ``tokens`` estimates the tokens of a call; ``key`` separates limits."""

    def __init__(
        self,
        limits: Outbound,
        *,
        key: Callable[[PreparedRequest], str] = host,
        tokens: Callable[[PreparedRequest], int] = no_tokens,
        **options: Any,
    ) -> None:
        self.limits = limits
        self.key = key
        self.tokens = tokens
        super().__init__(**options)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Waits for the limits, and sends the request."""
        with self.limits.until_ready(self.key(request), self.tokens(request)) as permit:
            response = super().send(request, *args, **kwargs)
            body = response.content if response.status_code in REFUSALS else b""
            permit.observe(response.status_code, list(response.headers.items()), body)
        return response
