"""Exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._native import Decision


class ThrottleKitError(Exception):
    """Base of all exceptions of this package."""


class BuildError(ThrottleKitError, ValueError):
    """A limiter was given settings that cannot work. The text states what to change."""


class StoreError(ThrottleKitError):
    """A store or a server decided nothing.

    ``kind`` is ``unavailable``, ``deadline``, ``overloaded``, ``misconfigured``, ``bad_state``, ``rejected`` or
    ``stale``.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        super().__init__(message)
        self.kind = kind


class StoreUnavailable(StoreError):
    """A store or a server could not be reached, or did not respond in time."""


class Denied(ThrottleKitError):
    """A request was denied. ``decision`` states when to retry, and ``axis`` which limit denied."""

    def __init__(self, message: str, decision: Decision, axis: str | None = None) -> None:
        super().__init__(message)
        self.decision = decision
        self.axis = axis


class NotReady(Denied):
    """A wait ended without an admission. ``reason`` is ``timeout``, ``full`` or ``never``."""

    def __init__(self, message: str, decision: Decision, axis: str | None = None, reason: str = "timeout") -> None:
        super().__init__(message, decision, axis)
        self.reason = reason


class Ended(ThrottleKitError, RuntimeError):
    """A permit or a stream was used after its end."""
