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
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from llm.concurrency.worker_thread import run_off_loop
from llm.telemetry import tracing
from llm.telemetry.registry import OTHER
from llm.wire.items import Item
from llm.wire.response_builder import arguments_of
from llm.wire.sanitize import sanitize_json, sanitize_text
from tools.conf import settings
from tools.errors import ToolError
from tools.execution.call_metrics import count_tool_call
from tools.execution.output import Output, measure, render_output, truncate
from tools.json_schema.arguments import check
from tools.runtime_tool import Accepted, Context, FormAnswer, RuntimeTool

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

MAX_ERROR = 500  # characters of an error that users see
MAX_PARALLEL = 16  # calls of one step that run at once; further ones wait
MAX_TOKEN = 500  # characters of the token that identifies external work
MAX_PROGRESS = 500  # characters of one message
MAX_PAUSE = 7 * 24 * 3600  # seconds between two polls of external work
MAX_CAUSES = 20  # exceptions of one trace
STOP_GRACE = 1.0  # seconds that cancelled tools have to end

#: Prefixes that models add to a tool's name by mistake.
_MISTAKEN_PREFIXES = ("functions.", "default_api.")

#: They end a process. Raised by a tool they are its failure; asyncio would let them end
#: the event loop.
_OF_PROCESS = (SystemExit, KeyboardInterrupt)

abandoned_tasks: set[asyncio.Task[Any]] = set()  # tasks that ignore cancellation


@dataclass(frozen=True, slots=True)
class CallProgress:
    call_id: str
    message: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A call that waited for others runs as soon as the next event is awaited."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CallOutcome:
    call_id: str
    #: "completed", "failed", "timed_out" or "accepted" (external work goes on); callers
    #: of this module also store "unknown", "cancelled", "abandoned" and "background".
    state: str
    output: Output  # for the model
    error: str  # for users; "" if the call succeeded
    seconds: float
    full_text: str | None = None  # the whole text, if the output was truncated
    accepted: Accepted | None = None


def check_call(call: Item, tools: Mapping[str, RuntimeTool]) -> CallOutcome | None:
    """The outcome of a call that cannot run, because there is no such tool or its
    arguments are invalid; None if it can run."""
    name = find_tool_name(call["name"], tools)
    try:
        _arguments(call, _tool(name, tools))
    except ToolError as exc:
        output, error = _error(str(exc))
        return CallOutcome(call["call_id"], "failed", output, error[:MAX_ERROR], 0.0)
    return None


async def execute(
    calls: Sequence[Item],
    tools: Mapping[str, RuntimeTool],
    context: Context,
    *,
    client_tools: Collection[str] = (),
    refusal: str = "",
) -> AsyncGenerator[CallProgress | CallBegins | CallOutcome, None]:
    """Yield one CallOutcome for each call, and CallProgress before it, as they happen.

    A call beyond the first MAX_PARALLEL yields CallBegins once others have ended.
    `client_tools` are names that the model may also call and that the client runs. A
    `refusal` is the error of every call; then none of them runs. Raises only
    CancelledError. Closing the generator early cancels the running calls.
    """
    ready: asyncio.Queue[_RunningCall] = asyncio.Queue()
    slots = asyncio.Semaphore(MAX_PARALLEL)
    running = [
        _RunningCall(
            call,
            tools,
            context,
            ready.put_nowait,
            slots,
            client_tools,
            refusal,
            must_wait=number >= MAX_PARALLEL,
        )
        for number, call in enumerate(calls)
    ]
    waiting = len(running)
    try:
        while waiting:
            ready_call = await ready.get()
            event = ready_call.next_event()
            waiting -= isinstance(event, CallOutcome)
            yield event
            if isinstance(event, CallBegins):
                ready_call.may_begin.set()
    finally:
        await _stop(running)


class _RunningCall:
    """One call, from its start to its only outcome."""

    def __init__(
        self,
        call: Item,
        tools: Mapping[str, RuntimeTool],
        context: Context,
        notify: Callable[[_RunningCall], None],
        slots: asyncio.Semaphore,
        client_tools: Collection[str],
        refusal: str,
        must_wait: bool,
    ) -> None:
        self._call_id: str = call["call_id"]
        self._name = find_tool_name(call["name"], tools)
        self._call = call
        self._tools = tools
        self._client_tools = client_tools
        self._refusal = refusal
        self._context = replace(
            context,
            call_id=self._call_id,
            idempotency_key=f"{context.turn_id}:{self._call_id}",
            progress=self._report_progress,
            ask=self._ask if context.ask else None,
            pause_timer=self._pause_timer,
        )
        self._context_ask = context.ask
        self._limit = math.inf
        self._deadline = math.inf  # in seconds of the event loop's clock
        self._pauses = 0  # open ones
        self._seconds_left = math.inf  # until the deadline, during pauses
        self._notify = notify
        self._slots = slots
        self._has_slot = False
        self._must_wait = must_wait
        self._begins = False  # not yet yielded
        self.may_begin = asyncio.Event()
        self._progress: str | None = None  # not yet yielded
        self._outcome: CallOutcome | None = None
        self._full_text: str | None = None
        self._accepted: Accepted | None = None
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._started = time.monotonic()
        self._span: Span | None = None  # None without traces
        self.task = self._loop.create_task(self._run())
        self.task.add_done_callback(self._end)

    def next_event(self) -> CallProgress | CallBegins | CallOutcome:
        """The next event. Call it once for each notification."""
        if self._begins:
            self._begins = False
            return CallBegins(self._call_id)
        if (message := self._progress) is not None:
            self._progress = None
            return CallProgress(self._call_id, message)
        assert self._outcome, "there was news"
        return self._outcome

    def cancel(self) -> None:
        if not self._is_over:
            seconds = time.monotonic() - self._started
            count_tool_call(self._name, self._tools, "cancelled", seconds)
            self._end_span("cancelled")
        self._is_over = True
        if self._timer:
            self._timer.cancel()
        self.task.cancel()

    def abandon_if_running(self) -> None:
        """Abandon the task if it is still running after its cancellation."""
        if self.task.done():
            return
        logger.warning("a tool call cannot be stopped and was abandoned")
        abandoned_tasks.add(self.task)
        self.task.add_done_callback(abandoned_tasks.discard)
        self._context.abandoned(self._call_id)

    # The call

    async def _run(self) -> None:
        await self._slots.acquire()
        self._has_slot = True
        if self._must_wait:
            self._begins = True
            self._notify(self)
            await self.may_begin.wait()
        self._started = time.monotonic()
        if tracing.spans is not None:
            name = self._name if self._name in self._tools else OTHER  # invented
            self._span = tracing.spans.start_tool_call(name, self._call_id)
        try:
            output = await self._output()
        except ToolError as exc:
            self._fail(_message_of(exc))
        except (Exception, *_OF_PROCESS, BaseExceptionGroup) as exc:
            # Without the message, which may quote the user's arguments.
            logger.error("tool %s failed: %s", self._name, format_trace(exc))
            self._fail(f"{self._name} failed: {type(exc).__name__}.")
        else:
            self._conclude("accepted" if self._accepted else "completed", output)

    async def _output(self) -> Output:
        if self._refusal:
            raise ToolError(self._refusal)
        tool = _tool(self._name, self._tools, self._client_tools)
        arguments = _arguments(self._call, tool)
        if tool.permit:
            await tool.permit(self._context, arguments)
            self._started = time.monotonic()
        self._limit = settings.TOOL_TIMEOUT if tool.timeout is None else tool.timeout
        self._start_timer(self._limit)
        value = await tool.call(self._context, arguments)
        if isinstance(value, Accepted):
            _check_accepted(value)
            self._accepted = value
            return ""
        made = await run_off_loop(measure(value), render_output, value)
        self._full_text = made.full_text
        return made.output

    # The timeout, which pauses while the tool waits for a person or a process

    def _start_timer(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._time_out)

    async def _ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> FormAnswer:
        assert self._context_ask is not None
        with self._pause_timer():
            return await self._context_ask(
                context, sanitize_text(message), sanitize_json(schema)
            )

    @contextmanager
    def _pause_timer(self) -> Iterator[None]:
        self._pauses += 1
        if self._pauses == 1:
            self._seconds_left = self._deadline - self._loop.time()
            if self._timer:
                self._timer.cancel()
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._is_over and not self._pauses:
                self._start_timer(self._seconds_left)

    # The end, which happens once: by result, error or timeout

    def _end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by the tool itself: `cancel` sets `_is_over` before
            self._fail(f"{self._name} failed: CancelledError.")
        elif exc := task.exception():  # such as GeneratorExit
            self._fail(f"{self._name} failed: {type(exc).__name__}.")

    def _time_out(self) -> None:
        self._fail(
            f"{self._name} took longer than {self._limit:g} seconds and timed out;"
            " what it began may still take effect.",
            state="timed_out",
        )
        self.task.cancel()

    def _fail(self, sentence: str, *, state: str = "failed") -> None:
        output, error = _error(sentence)
        self._conclude(state, output, error)

    def _conclude(self, state: str, output: Output, error: str = "") -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer:
            self._timer.cancel()
        if self._has_slot:  # its task may ignore the cancellation, and go on
            self._slots.release()
        seconds = time.monotonic() - self._started
        count_tool_call(self._name, self._tools, state, seconds)
        self._end_span("" if state in ("completed", "accepted") else state)
        self._outcome = CallOutcome(
            self._call_id,
            state,
            output,
            error[:MAX_ERROR],
            seconds,
            full_text=self._full_text,
            accepted=self._accepted,
        )
        self._notify(self)

    # Traces

    def _end_span(self, error_type: str) -> None:
        if tracing.spans is not None and self._span is not None:
            tracing.spans.end(self._span, error_type)

    # Progress

    def _report_progress(self, message: str) -> None:
        # Here, in the tool's own code: what `str` raises would end the event loop.
        # Cut first: a tool may report megabytes, on the event loop.
        message = sanitize_text(str(message)[:MAX_PROGRESS])
        if threading.get_ident() == self._thread:
            self._record_progress(message)
            return
        try:
            self._loop.call_soon_threadsafe(self._record_progress, message)
        except RuntimeError:  # the event loop is closed
            logger.debug("tool %s reported progress after its end", self._name)

    def _record_progress(self, message: str) -> None:
        if self._is_over:
            return
        is_news = self._progress is None
        self._progress = message  # the latest message wins
        if is_news:
            self._notify(self)


async def _stop(running: Sequence[_RunningCall]) -> None:
    """Cancel all calls and abandon those that do not end within STOP_GRACE."""
    for each in running:
        each.cancel()
    if not (tasks := [each.task for each in running if not each.task.done()]):
        return
    await asyncio.wait(tasks, timeout=STOP_GRACE)
    for each in running:
        each.abandon_if_running()


def _tool(
    name: str, tools: Mapping[str, RuntimeTool], client_tools: Collection[str] = ()
) -> RuntimeTool:
    if (tool := tools.get(name)) is None:
        raise ToolError(_describe_unknown(name, {*tools, *client_tools}))
    return tool


def _arguments(call: Item, tool: RuntimeTool) -> dict[str, Any]:
    try:
        arguments = arguments_of(call)
    except ValueError as exc:
        raise ToolError(str(exc)) from exc
    check(tool.parameters, arguments)
    return arguments


def find_tool_name(name: str, tools: Mapping[str, RuntimeTool]) -> str:
    if name in tools:
        return name
    for prefix in _MISTAKEN_PREFIXES:
        if (bare := name.removeprefix(prefix)) in tools:
            return bare
    return name


def _describe_unknown(name: str, callable_now: Collection[str]) -> str:
    names = ", ".join(sorted(callable_now))
    offer = f"call one of these: {names}." if names else "no tool may be called now."
    return f"there is no tool named {name[:64]!r}; {offer}"


def _error(sentence: str) -> tuple[Output, str]:
    sentence = sanitize_text(sentence)
    return truncate(f"Error: {sentence}"), sentence


def _message_of(exc: ToolError) -> str:
    """Whatever the tool's own class of errors raises instead, which may be meant to end
    the process."""
    try:
        return str(exc)
    except (Exception, *_OF_PROCESS):
        return f"the tool failed with an error without a message: {type(exc).__name__}."


def _check_accepted(accepted: Accepted) -> None:
    """Raises ToolError for what cannot be stored."""
    if sanitize_text(accepted.token) != accepted.token:
        raise ToolError("its token is not text that can be stored.")
    if len(accepted.token) > MAX_TOKEN:
        raise ToolError(f"its token is longer than {MAX_TOKEN} characters.")
    if not _is_pause(accepted.poll_after):
        raise ToolError(
            f"its poll_after is not a number of seconds from 0 to {MAX_PAUSE:,}."
        )


def _is_pause(seconds: object) -> bool:
    """Whether a time this many seconds from now can be stored; None is no time."""
    if seconds is None:
        return True
    return isinstance(seconds, int | float) and 0 <= seconds <= MAX_PAUSE


def format_trace(exc: BaseException | None) -> str:
    """Types and tracebacks of an exception and its causes, without their messages."""
    parts: list[str] = []
    while exc is not None and len(parts) < MAX_CAUSES:  # they may form a circle
        frames = "".join(traceback.format_tb(exc.__traceback__))
        parts.append(f"{type(exc).__qualname__}\n{frames}".rstrip())
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    return "\nafter ".join(parts)
