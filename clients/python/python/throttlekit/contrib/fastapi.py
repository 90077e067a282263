"""A dependency for FastAPI. For all routes at once, use the middleware of ``throttlekit.contrib.asgi``.

::

    limit = Admitted(Limiter("100/minute"))

    @app.get("/items", dependencies=[Depends(limit)])
    async def items() -> list[str]: ...
"""

from collections.abc import AsyncIterator, Callable

from fastapi import HTTPException, Request, Response

from ._decide import AnyLimiter, CostOf, OnError, Outcome, async_decider, cost_of, headers, problem


def client_address(request: Request) -> str | None:
    """Returns the address of the peer. Behind a proxy, that is the proxy's."""
    return request.client.host if request.client else ""


class Admitted:
    """A dependency that admits requests by any limiter. A permit is held until the response is sent."""

    def __init__(
        self,
        limiter: AnyLimiter,
        *,
        key: Callable[[Request], str | None] = client_address,
        cost: CostOf[Request] = 1,
        name: str = "default",
        on_error: OnError = "deny",
    ) -> None:
        self.decide = async_decider(limiter)
        self.key = key
        self.cost = cost
        self.name = name
        self.on_error = on_error

    async def __call__(self, request: Request, response: Response) -> AsyncIterator[Outcome | None]:
        """Admits a request, or raises an ``HTTPException``."""
        key = self.key(request)
        if key is None:
            yield None
            return
        outcome = await self.decide(key, cost_of(self.cost, request))
        if not outcome.passes(self.on_error):
            fields = dict(headers(outcome, self.name, denied=True))
            raise HTTPException(outcome.status, detail=problem(outcome), headers=fields)
        response.headers.update(dict(headers(outcome, self.name, denied=False)))
        failed = True
        try:
            yield outcome
            failed = False
        finally:
            outcome.end(failed=failed)
