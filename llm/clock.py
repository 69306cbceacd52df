"""Time limits of answers, with one timer of the event loop for all of them."""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from typing import Any, Protocol

from django.conf import settings

from llm.errors import ProviderTimeout


class Rings(Protocol):
    """An operation with a deadline that can be moved."""

    until: float  # on the event loop's clock; math.inf for no deadline

    def ring(self) -> None:
        """Handle the deadline and move `until`. Raises nothing."""


class Bell:
    """One event-loop timer for the deadlines of many operations.

    A timer for each takes half a kilobyte, and thousands of responses may be open. This
    timer fires at the earliest deadline and then checks all of them. As each chunk
    moves a deadline, it usually has nothing to do for a minute or more.
    """

    __slots__ = ("_all", "_timer", "at", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.at = math.inf  # when it fires
        self._all: set[Rings] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, each: Rings) -> None:
        self._all.add(each)
        self.by(each.until)

    def drop(self, each: Rings) -> None:
        self._all.discard(each)
        if not self._all and self._timer is not None:
            self._timer.cancel()
            self._timer, self.at = None, math.inf

    def by(self, when: float) -> None:
        """Fire at that time at the latest."""
        if when >= self.at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at = when
        # In an empty context, because the caller's may keep a whole request in memory.
        self._timer = self.loop.call_at(when, self._ring, context=Context())

    def _ring(self) -> None:
        self._timer, self.at = None, math.inf
        now = self.loop.time()
        for each in [each for each in self._all if each.until <= now]:
            each.ring()
        if self._all:
            self.by(min(each.until for each in self._all))


def bell() -> Bell:
    """This event loop's timer."""
    loop = asyncio.get_running_loop()
    found = _bells.get(loop)
    if found is None:
        for ended in [other for other in _bells if other.is_closed()]:
            del _bells[ended]
        found = _bells[loop] = Bell(loop)
    return found


_bells: dict[asyncio.AbstractEventLoop, Bell] = {}


class Clock:
    """The time limits of one response. Enter it around each wait, and close it at the
    end.

    A timer set for every chunk, as `asyncio.timeout` does, costs as much as to decode
    it. Here a wait only moves its end, at which the bell looks when it rings.
    """

    __slots__ = (
        "_bell",
        "_cancelling",
        "_deadline",
        "_idle",
        "_rang",
        "_waiting",
        "first_byte",
        "until",
    )

    def __init__(self, *, streams: bool) -> None:
        self._bell = bell()
        now = self._bell.loop.time()
        self._idle: float = settings.LLM_IDLE_TIMEOUT
        self._deadline: float = now + settings.LLM_TOTAL_TIMEOUT
        #: None after the first byte. A response that does not stream begins when it is
        #: complete.
        self.first_byte: float | None = (
            now + settings.LLM_FIRST_BYTE_TIMEOUT if streams else self._deadline
        )
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelling = 0  # requests that the task had before it waited
        self.until = math.inf  # when that wait has been too long
        self._rang = False
        self._bell.add(self)

    def __enter__(self) -> None:
        """Start a wait. Never hold it across a yield."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting, self._cancelling = task, task.cancelling()
        when, deadline = self.first_byte, self._deadline
        if when is None:
            when = self._bell.loop.time() + self._idle
        self.until = when = when if when < deadline else deadline
        if when < self._bell.at:
            self._bell.by(when)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: object,
    ) -> None:
        """Raises ProviderTimeout for its own cancellation only."""
        task, self._waiting = self._waiting, None
        if not self._rang:
            return
        self._rang = False
        assert task is not None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._expired() from exc

    def close(self) -> None:
        self._bell.drop(self)

    def _expired(self) -> ProviderTimeout:
        if self._bell.loop.time() >= self._deadline:
            said = f"Not finished within {settings.LLM_TOTAL_TIMEOUT:g} s."
        elif self.first_byte is not None:
            said = f"No answer within {settings.LLM_FIRST_BYTE_TIMEOUT:g} s."
        else:
            said = f"Silent for {self._idle:g} s."
        return ProviderTimeout(detail=said)

    def ring(self) -> None:
        """Handle the deadline. If nothing waits, the next wait sets a new one."""
        self.until = math.inf
        if self._waiting is not None:
            self._rang = True
            self._waiting.cancel()
