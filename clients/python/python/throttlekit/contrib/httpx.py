"""Transports for httpx that limit calls to providers, and learn from their responses.

::

    limits = Outbound("openai", requests_per_minute=500, tokens_per_minute=90_000)
    client = httpx.AsyncClient(transport=AsyncOutboundTransport(limits))
"""

from __future__ import annotations

from collections.abc import Callable

import httpx

from .._native import Outbound, OutboundPermit

KeyOf = Callable[[httpx.Request], str]
TokensOf = Callable[[httpx.Request], int]

REFUSALS = frozenset({429, 503, 529})


def host(request: httpx.Request) -> str:
    """Returns the host of a request."""
    return request.url.host


def no_tokens(request: httpx.Request) -> int:
    """Returns no estimate."""
    return 0


class OutboundTransport(httpx.BaseTransport):
    """Sends calls when their limits allow it. ``tokens`` estimates the tokens of a call; ``key`` separates limits."""

    def __init__(
        self,
        limits: Outbound,
        transport: httpx.BaseTransport | None = None,
        *,
        key: KeyOf = host,
        tokens: TokensOf = no_tokens,
    ) -> None:
        self.limits = limits
        self.transport = transport if transport is not None else httpx.HTTPTransport()
        self.key = key
        self.tokens = tokens

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Waits for the limits, and sends the request."""
        permit = self.limits.until_ready(self.key(request), self.tokens(request))
        try:
            response = self.transport.handle_request(request)
            body = response.read() if response.status_code in REFUSALS else b""
        except BaseException:
            permit.dropped()
            raise
        _observe(permit, response, body)
        return response

    def close(self) -> None:
        """Closes the transport below."""
        self.transport.close()


class AsyncOutboundTransport(httpx.AsyncBaseTransport):
    """The same for asyncio."""

    def __init__(
        self,
        limits: Outbound,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        key: KeyOf = host,
        tokens: TokensOf = no_tokens,
    ) -> None:
        self.limits = limits
        self.transport = transport if transport is not None else httpx.AsyncHTTPTransport()
        self.key = key
        self.tokens = tokens

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Waits for the limits, and sends the request."""
        permit = await self.limits.until_ready_async(self.key(request), self.tokens(request))
        try:
            response = await self.transport.handle_async_request(request)
            body = await response.aread() if response.status_code in REFUSALS else b""
        except BaseException:
            permit.dropped()
            raise
        _observe(permit, response, body)
        return response

    async def aclose(self) -> None:
        """Closes the transport below."""
        await self.transport.aclose()


def _observe(permit: OutboundPermit, response: httpx.Response, body: bytes) -> None:
    with permit:
        permit.observe(response.status_code, response.headers.multi_items(), body)
