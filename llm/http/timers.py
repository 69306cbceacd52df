"""Time limits of provider responses, with one event-loop timer for all of them."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import Any, Protocol

from llm.concurrency.per_loop import PerLoop
from llm.conf import settings
from llm.errors import ProviderTimeout
from llm.http.connection_problems import NO_ANSWER, NOT_FINISHED, SILENT
from llm.provider import DIRECT, Connection


class TimedOperation(Protocol):
    """An operation with a deadline that can be moved."""

    until: float  # on the event loop's clock; math.inf for no deadline

    def on_timer(self) -> None:
        """Handle the deadline and move `until`. Raises nothing."""


class DeadlineTimer:
    """One event-loop timer for the deadlines of many operations.

    A timer for each takes half a kilobyte, and thousands of responses may be open. This
    timer fires at the earliest deadline and then checks all of them. As each chunk
    moves a deadline, it usually has nothing to do for a minute or more.
    """

    __slots__ = ("_handle", "_operations", "fires_at", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.fires_at = math.inf  # when it fires
        self._operations: set[TimedOperation] = set()
        self._handle: asyncio.TimerHandle | None = None

    def add(self, operation: TimedOperation) -> None:
        self._operations.add(operation)
        self.fire_by(operation.until)

    def remove(self, operation: TimedOperation) -> None:
        self._operations.discard(operation)
        if not self._operations and self._handle is not None:
            self._handle.cancel()
            self._handle, self.fires_at = None, math.inf

    def fire_by(self, when: float) -> None:
        """Fire at that time at the latest."""
        if when >= self.fires_at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self.fires_at = when
        # In an empty context, because the caller's may keep a whole request in memory.
        self._handle = self.loop.call_at(when, self.fire, context=Context())

    def fire(self) -> None:
        self._handle, self.fires_at = None, math.inf
        now = self.loop.time()
        for each in [each for each in self._operations if each.until <= now]:
            each.on_timer()
        if self._operations:
            self.fire_by(min(each.until for each in self._operations))


deadline_timer = PerLoop(lambda: DeadlineTimer(asyncio.get_running_loop()))


class ResponseTimer:
    """The time limits of one response. Enter it around each wait, and close it at the
    end.

    A timer for every chunk, as in `asyncio.timeout`, costs as much as decoding the
    chunk. Here a wait only moves the deadline, which the shared timer checks when it
    fires.
    """

    __slots__ = (
        "_cancelling",
        "_deadline",
        "_first",
        "_has_expired",
        "_idle",
        "_task",
        "_timer",
        "_total",
        "first_byte",
        "until",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        streams: bool,
        connection: Connection = DIRECT,
    ) -> None:
        self._timer = deadline_timer.of[loop]
        now = loop.time()
        self._idle: float = connection.idle_timeout or settings.LLM_IDLE_TIMEOUT
        total = connection.total_timeout or math.inf
        self._total: float = min(total, settings.LLM_TOTAL_TIMEOUT)
        self._first: float = (
            connection.first_byte_timeout or settings.LLM_FIRST_BYTE_TIMEOUT
        )
        self._deadline = now + self._total
        #: None after the first byte. A response that does not stream begins when it is
        #: complete.
        self.first_byte: float | None = now + self._first if streams else self._deadline
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0  # cancellation requests of the task before the wait
        self.until = math.inf  # the deadline of the current wait
        self._has_expired = False
        self._timer.add(self)

    def __enter__(self) -> None:
        """Start a wait. Never hold it across a yield."""
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        when, deadline = self.first_byte, self._deadline
        if when is None:
            when = self._timer.loop.time() + self._idle
        self.until = when = when if when < deadline else deadline
        if when < self._timer.fires_at:
            self._timer.fire_by(when)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: object,
    ) -> None:
        """Raises ProviderTimeout for its own cancellation only."""
        task, self._task = self._task, None
        if not self._has_expired:
            return
        self._has_expired = False
        assert task is not None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._timeout_error() from exc

    def close(self) -> None:
        self._timer.remove(self)

    def _timeout_error(self) -> ProviderTimeout:
        if self._timer.loop.time() >= self._deadline:
            detail = NOT_FINISHED.format(seconds=self._total)
        elif self.first_byte is not None:
            detail = NO_ANSWER.format(seconds=self._first)
        else:
            detail = SILENT.format(seconds=self._idle)
        return ProviderTimeout(detail=detail)

    def on_timer(self) -> None:
        """Handle the deadline. If nothing waits, the next wait sets a new one."""
        self.until = math.inf
        if self._task is not None:
            self._has_expired = True
            self._task.cancel()
