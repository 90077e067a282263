"""The client of a server by the names of the package ``throttlekit-py``, for programs that move from it.

``from throttlekit.service import ServiceBackend`` replaces ``from throttlekit import ServiceBackend``. New programs use
`throttlekit.Client`. Differences: calls have a deadline, slots are always renewed, ``reset_at`` is a ``datetime``, and
answers also have a guarantee.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from types import TracebackType

from ._native import Admission, Answer, Client, Forecast, RemotePolicy

__all__ = ["AsyncServiceAdmission", "AsyncServiceBackend", "ServiceAdmission", "ServiceBackend"]


class _Held:
    """What a request was admitted with."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission

    @property
    def allowed(self) -> bool:
        """True if the work may proceed."""
        return self.admission.allowed

    @property
    def binding_axis(self) -> str:
        """Axis that denied; empty if none did."""
        return self.admission.denied_by or ""

    @property
    def held(self) -> bool:
        """True while a permit is held."""
        return self.admission.permit is not None and self.admission.permit.held

    @property
    def reclaimed(self) -> bool:
        """True if the server may have given the slot to others."""
        permit = self.admission.permit
        return permit is not None and permit.held and permit.is_fenced

    def _end(self, dropped: bool) -> None:
        permit = self.admission.permit
        if permit is not None:
            if dropped:
                permit.dropped()
            else:
                permit.success()


class ServiceAdmission(_Held):
    """The result of ``admit``. A context manager that releases the slot."""

    def release(self, *, dropped: bool = False) -> None:
        """Returns the slot, once. ``dropped`` reports an overload."""
        self._end(dropped)

    def __enter__(self) -> ServiceAdmission:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(value is not None)


class AsyncServiceAdmission(_Held):
    """The same for asyncio."""

    async def release(self, *, dropped: bool = False) -> None:
        """Returns the slot, once. ``dropped`` reports an overload."""
        self._end(dropped)

    async def __aenter__(self) -> AsyncServiceAdmission:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(value is not None)


class _Policies:
    """The policies of a server by name."""

    def __init__(self, target: str, *, deadline: float | None = None, token: str | None = None) -> None:
        uri = target if "://" in target else f"http://{target}"
        self._client = Client(uri, deadline=deadline, token=token)
        self._policies: dict[str, RemotePolicy] = {}

    def _policy(self, name: str) -> RemotePolicy:
        policy = self._policies.get(name)
        if policy is None:
            policy = self._policies[name] = self._client.policy(name)
        return policy


class ServiceBackend(_Policies):
    """A client of the server at ``host:port``."""

    def check(self, policy: str, key: str, cost: int = 1) -> Answer:
        """Decides one request, and charges it if allowed."""
        return self._policy(policy).check(key, cost)

    def check_many(self, policy: str, keys: Sequence[str], cost: int = 1) -> list[Answer]:
        """Decides several requests, each independently."""
        return self._policy(policy).check_many(keys, cost)

    def peek(self, policy: str, key: str) -> Answer:
        """Returns the state of a key, without charging."""
        return self._policy(policy).peek(key)

    def forecast(self, policy: str, key: str, cost: int = 1) -> Forecast:
        """Returns what a key can spend, now and later."""
        return self._policy(policy).forecast(key, cost)

    def debit(self, policy: str, key: str, tokens: int = 1) -> Answer:
        """Debits a token budget, once however often the network delivers it."""
        return self._policy(policy).debit(key, tokens, stream=secrets.randbits(127), number=1)

    def admit(self, policy: str, key: str, *, heartbeat: bool = True) -> ServiceAdmission:
        """Admits work. What it holds is renewed until it is released; ``heartbeat`` has no effect."""
        return ServiceAdmission(self._policy(policy).admit(key))

    def close(self) -> None:
        """Forgets the policies. Connections close with the last permit."""
        self._policies.clear()

    def __enter__(self) -> ServiceBackend:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncServiceBackend(_Policies):
    """The same for asyncio."""

    async def check(self, policy: str, key: str, cost: int = 1) -> Answer:
        """Decides one request, and charges it if allowed."""
        return await self._policy(policy).check_async(key, cost)

    async def check_many(self, policy: str, keys: Sequence[str], cost: int = 1) -> list[Answer]:
        """Decides several requests, each independently."""
        return await self._policy(policy).check_many_async(keys, cost)

    async def peek(self, policy: str, key: str) -> Answer:
        """Returns the state of a key, without charging."""
        return await self._policy(policy).peek_async(key)

    async def forecast(self, policy: str, key: str, cost: int = 1) -> Forecast:
        """Returns what a key can spend, now and later."""
        return await self._policy(policy).forecast_async(key, cost)

    async def debit(self, policy: str, key: str, tokens: int = 1) -> Answer:
        """Debits a token budget, once however often the network delivers it."""
        return await self._policy(policy).debit_async(key, tokens, stream=secrets.randbits(127), number=1)

    async def admit(self, policy: str, key: str, *, heartbeat: bool = True) -> AsyncServiceAdmission:
        """Admits work. What it holds is renewed until it is released; ``heartbeat`` has no effect."""
        return AsyncServiceAdmission(await self._policy(policy).admit_async(key))

    async def aclose(self) -> None:
        """Forgets the policies. Connections close with the last permit."""
        self._policies.clear()

    async def __aenter__(self) -> AsyncServiceBackend:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()
