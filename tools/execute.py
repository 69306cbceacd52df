"""Concurrent execution of the tool calls of one step, with progress events.

Every call ends in exactly one `CallOutcome`, whatever the model wrote and whatever the
tool does: a failure becomes an output too, with a message for the model. At its timeout
a call ends without waiting for the tool. A tool that cannot be stopped is abandoned,
and its later results are ignored.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from llm.wire.items import Item
from llm.wire.mending import mended, mended_json
from llm.wire.response import arguments_of
from tools.arguments import check
from tools.errors import ToolError
from tools.output import Output, rendered, shortened
from tools.registry import Accepted, Answer, Context, Tool

logger = logging.getLogger(__name__)

MAX_ERROR = 500  # characters of an error that users see
MAX_TOKEN = 500  # characters of the token that identifies external work
MAX_PROGRESS = 500  # characters of one message
STOP_GRACE = 1.0  # seconds that cancelled tools have to end

#: Prefixes that models add to a tool's name by mistake.
_INVENTED_PREFIXES = ("functions.", "default_api.")

_left_behind: set[asyncio.Task[Any]] = set()  # tasks that ignore cancellation


@dataclass(frozen=True, slots=True)
class Progress:
    call_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    call_id: str
    #: "completed", "failed", "timed_out" or "accepted" (external work goes on); callers
    #: of this module also store "unknown", "cancelled", "abandoned" and "background".
    state: str
    output: Output  # for the model
    error: str  # for users; "" if the call succeeded
    seconds: float
    whole: str | None = None  # the whole text, if the output was truncated
    accepted: Accepted | None = None


def refused(call: Item, tools: Mapping[str, Tool]) -> Outcome | None:
    """The outcome of a call that cannot run, because there is no such tool or its
    arguments are invalid; None if it can run."""
    name = known_name(call["name"], tools)
    try:
        _arguments(call, _tool(name, tools))
    except ToolError as exc:
        output, error = _error(str(exc))
        return Outcome(call["call_id"], "failed", output, error[:MAX_ERROR], 0.0)
    return None


async def execute(
    calls: Sequence[Item],
    tools: Mapping[str, Tool],
    context: Context,
    *,
    others: Collection[str] = (),
    refusal: str = "",
) -> AsyncGenerator[Progress | Outcome, None]:
    """Yields one CallOutcome for each call, and CallProgress before it, as they happen.

    `others`: names that the model may call as well, and that the client answers.
    `refusal`: the error of every call, where none of them may run.
    Raises nothing but CancelledError. Closed early, it cancels what still runs.
    """
    news: asyncio.Queue[_Running] = asyncio.Queue()
    running = [
        _Running(call, tools, context, news.put_nowait, others, refusal)
        for call in calls
    ]
    waiting = len(running)
    try:
        while waiting:
            happening = (await news.get()).told()
            waiting -= isinstance(happening, Outcome)
            yield happening
    finally:
        await _stop(running)


class _Running:
    """One call, from its start to its only outcome."""

    def __init__(
        self,
        call: Item,
        tools: Mapping[str, Tool],
        context: Context,
        has_news: Callable[[_Running], None],
        others: Collection[str],
        refusal: str,
    ) -> None:
        self._call_id: str = call["call_id"]
        self._name = known_name(call["name"], tools)
        self._call = call
        self._tools = tools
        self._others = others
        self._refusal = refusal
        self._context = replace(
            context,
            call_id=self._call_id,
            idempotency_key=f"{context.turn_id}:{self._call_id}",
            progress=self._progress_from_anywhere,
            ask=self._ask if context.ask else None,
        )
        self._asks = context.ask
        self._limit = math.inf
        self._runs_out = math.inf  # in seconds of the event loop's clock
        self._has_news = has_news
        self._progress: str | None = None  # not yet yielded
        self._outcome: Outcome | None = None
        self._whole: str | None = None
        self._accepted: Accepted | None = None
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._started = time.monotonic()
        self.task = self._loop.create_task(self._answer())
        self.task.add_done_callback(self._end)

    def told(self) -> Progress | Outcome:
        """The next event. Call it once for each notification."""
        if (message := self._progress) is not None:
            self._progress = None
            return Progress(self._call_id, message)
        assert self._outcome, "there was news"
        return self._outcome

    def cancel(self) -> None:
        self._is_over = True
        if self._timer:
            self._timer.cancel()
        self.task.cancel()

    def leave_behind(self) -> None:
        """Abandons the task if it is still running after its cancellation."""
        if self.task.done():
            return
        logger.warning("a tool call cannot be stopped and is left to itself")
        _left_behind.add(self.task)
        self.task.add_done_callback(_left_behind.discard)
        self._context.abandoned(self._call_id)

    # The call

    async def _answer(self) -> tuple[Output, str]:
        """Runs the call; returns its output and its error, "" for none."""
        try:
            return await self._output(), ""
        except ToolError as exc:
            return _error(str(exc))
        except (Exception, SystemExit, BaseExceptionGroup) as exc:
            # Without the message, which may quote the user's arguments.
            logger.error("tool %s failed: %s", self._name, where(exc))
            return _error(f"{self._name} failed: {type(exc).__name__}.")

    async def _output(self) -> Output:
        if self._refusal:
            raise ToolError(self._refusal)
        tool = _tool(self._name, self._tools, self._others)
        arguments = _arguments(self._call, tool)
        self._limit = settings.TOOL_TIMEOUT if tool.timeout is None else tool.timeout
        self._wind_up(self._limit)
        value = await tool.call(self._context, arguments)
        if isinstance(value, Accepted):
            if mended(value.token) != value.token:
                raise ToolError("its token is no text that can be kept.")
            if len(value.token) > MAX_TOKEN:
                raise ToolError(f"its token is longer than {MAX_TOKEN} characters.")
            self._accepted = value
            return ""
        made = rendered(value)
        self._whole = made.whole
        return made.output

    # The timeout, which pauses while the tool waits for a person's answer

    def _wind_up(self, seconds: float) -> None:
        self._runs_out = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._time_out)

    async def _ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> Answer:
        assert self._asks is not None
        if self._timer:
            self._timer.cancel()
        left = self._runs_out - self._loop.time()
        try:
            return await self._asks(context, mended(message), mended_json(schema))
        finally:
            if not self._is_over:
                self._wind_up(left)

    # The end, which happens once: by result, error or timeout

    def _end(self, task: asyncio.Task[tuple[Output, str]]) -> None:
        if task.cancelled():  # by the tool itself: `cancel` sets `_is_over` before
            output, error = _error(f"{self._name} failed: CancelledError.")
        elif exc := task.exception():  # such as KeyboardInterrupt
            output, error = _error(f"{self._name} failed: {type(exc).__name__}.")
        else:
            output, error = task.result()
        state = "accepted" if self._accepted else "completed"
        self._conclude("failed" if error else state, output, error)

    def _time_out(self) -> None:
        output, error = _error(
            f"{self._name} took longer than {self._limit:g} seconds and was given up;"
            " what it began may still take effect."
        )
        self._conclude("timed_out", output, error)
        self.task.cancel()

    def _conclude(self, state: str, output: Output, error: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer:
            self._timer.cancel()
        seconds = time.monotonic() - self._started
        self._outcome = Outcome(
            self._call_id,
            state,
            output,
            error[:MAX_ERROR],
            seconds,
            whole=self._whole,
            accepted=self._accepted,
        )
        self._has_news(self)

    # Progress

    def _progress_from_anywhere(self, message: str) -> None:
        if threading.get_ident() == self._thread:
            self._note(message)
            return
        try:
            self._loop.call_soon_threadsafe(self._note, message)
        except RuntimeError:  # the event loop is closed
            logger.debug("tool %s told its progress too late", self._name)

    def _note(self, message: str) -> None:
        if self._is_over:
            return
        is_news = self._progress is None
        self._progress = mended(str(message))[:MAX_PROGRESS]  # the latest message wins
        if is_news:
            self._has_news(self)


async def _stop(running: Sequence[_Running]) -> None:
    """Cancels all calls and abandons those that do not end within STOP_GRACE."""
    for each in running:
        each.cancel()
    if not (tasks := [each.task for each in running if not each.task.done()]):
        return
    await asyncio.wait(tasks, timeout=STOP_GRACE)
    for each in running:
        each.leave_behind()


def _tool(name: str, tools: Mapping[str, Tool], others: Collection[str] = ()) -> Tool:
    if (tool := tools.get(name)) is None:
        raise ToolError(_unknown(name, {*tools, *others}))
    return tool


def _arguments(call: Item, tool: Tool) -> dict[str, Any]:
    try:
        arguments = arguments_of(call)
    except ValueError as exc:
        raise ToolError(str(exc)) from exc
    check(tool.parameters, arguments)
    return arguments


def known_name(name: str, tools: Mapping[str, Tool]) -> str:
    if name in tools:
        return name
    for prefix in _INVENTED_PREFIXES:
        if (bare := name.removeprefix(prefix)) in tools:
            return bare
    return name


def _unknown(name: str, callable_now: Collection[str]) -> str:
    names = ", ".join(sorted(callable_now))
    offer = f"call one of these: {names}." if names else "no tool may be called now."
    return f"there is no tool named {name[:64]!r}; {offer}"


def _error(sentence: str) -> tuple[Output, str]:
    sentence = mended(sentence)
    return shortened(f"Error: {sentence}"), sentence


def where(exc: BaseException | None) -> str:
    """Types and tracebacks of an exception and its causes, without their messages."""
    told = []
    while exc is not None:
        frames = "".join(traceback.format_tb(exc.__traceback__))
        told.append(f"{type(exc).__qualname__}\n{frames}".rstrip())
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    return "\nafter ".join(told)
