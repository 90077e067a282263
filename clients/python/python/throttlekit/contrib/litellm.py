"""A hook for the LiteLLM proxy that replaces its rate limiter.

``custom_callbacks.py``::

    limits = Limits(SharedPolicy("redis://…", "chat", concurrency=Concurrency.per_key(8), rate="60/minute",
                                 tokens=Budget.per_minute(100_000)))

``config.yaml``::

    litellm_settings:
      callbacks: custom_callbacks.limits

A call reserves an estimate of its tokens, which the usage in its response replaces. A stream is debited chunk by chunk,
and ends when its budget is spent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from .._errors import Ended, StoreError
from .._native import Permit, Policy, RemotePolicy, SharedPolicy
from ._decide import OnError, async_decider, headers, problem

ESTIMATE_DEFAULT = 1_000
CHARACTERS_PER_TOKEN = 4
PERMIT = "throttlekit_permit"


def api_key(user: Any, data: dict[str, Any]) -> str:
    """Returns the hashed key of the caller."""
    return str(getattr(user, "api_key", None) or "")


def estimate(data: dict[str, Any]) -> int:
    """Returns the estimated tokens of a call: four characters each for the prompt, and the most that it may produce."""
    prompt = sum(len(str(message.get("content", ""))) for message in data.get("messages", ()))
    most = data.get("max_completion_tokens") or data.get("max_tokens") or ESTIMATE_DEFAULT
    return prompt // CHARACTERS_PER_TOKEN + int(most)


class Limits(CustomLogger):
    """Admits calls by a policy, and settles their tokens."""

    def __init__(
        self,
        policy: Policy | SharedPolicy | RemotePolicy,
        *,
        key: Callable[[Any, dict[str, Any]], str] = api_key,
        tokens: Callable[[dict[str, Any]], int] = estimate,
        on_error: OnError = "deny",
    ) -> None:
        super().__init__()
        self.decide = async_decider(policy)
        self.key = key
        self.tokens = tokens
        self.on_error = on_error

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Admits a call, or raises a 429."""
        outcome = await self.decide(self.key(user_api_key_dict, data), self.tokens(data))
        if not outcome.passes(self.on_error):
            fields = dict(headers(outcome, "litellm", denied=True))
            raise HTTPException(outcome.status, detail=problem(outcome), headers=fields)
        if outcome.permit is not None:
            data.setdefault("metadata", {})[PERMIT] = outcome.permit
        return data

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Settles the tokens of a call that does not stream."""
        permit = _taken(data)
        if permit is not None:
            usage = getattr(response, "usage", None)
            if usage is not None and getattr(usage, "total_tokens", None) is not None:
                permit.settle(int(usage.total_tokens))
            permit.success()
        return response

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Ends a call that failed."""
        permit = _taken(request_data)
        if permit is not None:
            permit.dropped()

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Debits a stream chunk by chunk, and ends it when its budget is spent."""
        permit = _taken(request_data)
        if permit is None:
            async for chunk in response:
                yield chunk
            return
        async with permit:
            async for chunk in response:
                if not await self._is_covered(permit, chunk):
                    return
                yield chunk

    async def _is_covered(self, permit: Permit, chunk: Any) -> bool:
        try:
            return bool(await permit.debit_async(_tokens_in(chunk)))
        except (StoreError, Ended):
            return self.on_error == "allow"


def _taken(data: dict[str, Any]) -> Permit | None:
    """Takes the permit of a call out of its data: it ends once."""
    permit = data.get("metadata", {}).pop(PERMIT, None)
    return permit if isinstance(permit, Permit) else None


def _tokens_in(chunk: Any) -> int:
    """Returns the tokens of a chunk: those that it reports, or one for each four characters, at least one."""
    text = "".join(str(choice.delta.content or "") for choice in getattr(chunk, "choices", ()) or ())
    return max(1, len(text) // CHARACTERS_PER_TOKEN) if text else 0
