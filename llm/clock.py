"""The time limits of one provider call, at the price of one timer."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from django.conf import settings

from llm.errors import ProviderTimeout


class Clock:
    """By the event loop's clock. Held around each wait; to be closed in the end.

    Where a wait is for a future of ours, the clock is told of that and needs not be
    held: the future fails in time, which is cheaper than to cancel the task.

    A timer set for every chunk, as `asyncio.timeout` does, costs as much as to decode
    it. Here one timer stays: a wait only moves its end, at which the timer looks when
    it rings.
    """

    __slots__ = (
        "_cancelling",
        "_deadline",
        "_idle",
        "_loop",
        "_rang",
        "_rings_at",
        "_timer",
        "_until",
        "_waiter",
        "_waiting",
        "first_byte",
    )

    def __init__(self, *, streams: bool) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._idle: float = settings.LLM_IDLE_TIMEOUT
        self._deadline: float = now + settings.LLM_TOTAL_TIMEOUT
        #: None once it has come. An answer in one piece begins when it is finished.
        self.first_byte: float | None = (
            now + settings.LLM_FIRST_BYTE_TIMEOUT if streams else self._deadline
        )
        self._waiting: asyncio.Task[Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._cancelling = 0  # requests that the task had before it waited
        self._until = math.inf  # when that wait has been too long
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._rang = False

    def __enter__(self) -> None:
        """Begin to wait. Never to be held around a yield."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._waiting, self._cancelling = task, task.cancelling()
        self.watch(None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: object,
    ) -> None:
        """Raises ProviderTimeout for our own cancellation, and for no one else's."""
        task, self._waiting = self._waiting, None
        if not self._rang:
            return
        self._rang = False
        assert task is not None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._expired() from exc

    def watch(self, waiter: asyncio.Future[None] | None) -> None:
        """`waiter` gets a ProviderTimeout where it takes too long."""
        self._waiter = waiter
        when, deadline = self.first_byte, self._deadline
        if when is None:
            when = self._loop.time() + self._idle
        self._until = when if when < deadline else deadline
        if self._until < self._rings_at:
            self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expired(self) -> ProviderTimeout:
        if self._loop.time() >= self._deadline:
            said = f"Not finished within {settings.LLM_TOTAL_TIMEOUT:g} s."
        elif self.first_byte is not None:
            said = f"No answer within {settings.LLM_FIRST_BYTE_TIMEOUT:g} s."
        else:
            said = f"Silent for {self._idle:g} s."
        return ProviderTimeout(detail=said)

    def _set_timer(self) -> None:
        self.close()
        self._rings_at = self._until
        self._timer = self._loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        task, waiter = self._waiting, self._waiter
        if task is None and (waiter is None or waiter.done()):
            return  # the next wait sets it again
        if self._loop.time() < self._until:
            self._set_timer()
        elif task is not None:
            self._rang = True
            task.cancel()
        elif waiter is not None:
            waiter.set_exception(self._expired())
