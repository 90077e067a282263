"""Rates of Celery tasks over all workers. ``rate_limit`` of Celery counts in each worker.

::

    @app.task(base=LimitedTask, limiter=SharedLimiter("redis://…", "mail", "100/minute"))
    def send_mail(address: str) -> None: ...
"""

from __future__ import annotations

from typing import Any, ClassVar

from celery import Task

from ._decide import AnyLimiter, decider

RETRY_SECONDS_DEFAULT = 1.0


class LimitedTask(Task):  # type: ignore[misc]
    """A task that is postponed while its limiter denies it, without counting as a retry of its own.

    ``limiter`` decides. ``limit_key`` is the key. Default: the name of the task. Override ``key_of`` and ``cost_of`` to
    use the arguments. A permit is held while the task runs.
    """

    abstract = True
    limiter: ClassVar[AnyLimiter]
    limit_key: str | None = None

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Returns the key of a call."""
        return self.limit_key or str(self.name)

    def cost_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Returns the cost of a call."""
        return 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the task, or postpones it."""
        if self.request.called_directly:
            return super().__call__(*args, **kwargs)
        outcome = decider(self.limiter)(self.key_of(args, kwargs), self.cost_of(args, kwargs))
        if not outcome.allowed:
            wait = outcome.decision.retry_after if outcome.decision is not None else None
            raise self.postponed(RETRY_SECONDS_DEFAULT if wait is None else wait)
        failed = True
        try:
            result = super().__call__(*args, **kwargs)
            failed = False
            return result
        finally:
            outcome.end(failed=failed)

    def postponed(self, wait: float) -> BaseException:
        """Sends the task again, to run after ``wait`` seconds, and returns the exception that ends this attempt."""
        retries = self.request.retries
        # The next attempt has the same number: being postponed is not a failure of the task.
        self.request.retries = retries - 1
        try:
            error: BaseException = self.retry(countdown=wait, max_retries=None, throw=False)
        finally:
            self.request.retries = retries
        return error
