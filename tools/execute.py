"""Runs the calls of one step side by side and tells what happens, as it happens.

Every call ends in exactly one `Outcome`, whatever the model wrote and whatever the
tool does: what went wrong is an output too, in words the model can act on. A call's
time runs out without waiting for the tool; a tool that does not let itself be stopped
is left to itself, and nothing more is heard of it.
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

MAX_ERROR = 500  # characters that people are shown
MAX_TOKEN = 500  # characters, of work that goes on elsewhere
MAX_PROGRESS = 500  # characters of one message
STOP_GRACE = 1.0  # seconds that tools have for leaving, once they are cancelled

#: What models put before a name that was told without it.
_INVENTED_PREFIXES = ("functions.", "default_api.")

_left_behind: set[asyncio.Task[Any]] = set()  # tasks that would not be stopped


@dataclass(frozen=True, slots=True)
class Progress:
    call_id: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    call_id: str
    #: "completed", "failed", "timed_out" or "accepted" (the work goes on elsewhere);
    #: in others' hands "unknown", "cancelled", "abandoned" and "background" too.
    state: str
    output: Output  # for the model
    error: str  # for people; "" where all went well
    seconds: float
    whole: str | None = None  # the text, where the output is only its beginning
    accepted: Accepted | None = None


def refused(call: Item, tools: Mapping[str, Tool]) -> Outcome | None:
    """The outcome of a call that cannot run: no such tool, or arguments that do not
    fit. None where it can."""
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
    """Yields one Outcome a call, and Progress before it, in the order of happening.

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
    """One call, from its start to its one outcome."""

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
        self._runs_out = math.inf  # on the loop's clock
        self._has_news = has_news
        self._progress: str | None = None  # not told yet
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
        """The next of what has happened; ask once for each piece of news."""
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
        """Cancelled, it is not over yet."""
        if self.task.done():
            return
        logger.warning("a tool call cannot be stopped and is left to itself")
        _left_behind.add(self.task)
        self.task.add_done_callback(_left_behind.discard)
        self._context.abandoned(self._call_id)

    # The call

    async def _answer(self) -> tuple[Output, str]:
        """The output and, where it is one, the error."""
        try:
            return await self._output(), ""
        except ToolError as exc:
            return _error(str(exc))
        except (Exception, SystemExit, BaseExceptionGroup) as exc:
            # Not the message: it may quote the arguments, to the log and the model.
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

    # Its time, which stands still while a person is asked

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

    # Its end: once, whichever comes first

    def _end(self, task: asyncio.Task[tuple[Output, str]]) -> None:
        if task.cancelled():  # by the tool itself, or it would be over by now
            output, error = _error(f"{self._name} failed: CancelledError.")
        elif exc := task.exception():  # KeyboardInterrupt and its like
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
        except RuntimeError:  # the loop is closed: nobody listens any more
            logger.debug("tool %s told its progress too late", self._name)

    def _note(self, message: str) -> None:
        if self._is_over:
            return
        is_news = self._progress is None
        self._progress = mended(str(message))[:MAX_PROGRESS]  # the last word counts
        if is_news:
            self._has_news(self)


async def _stop(running: Sequence[_Running]) -> None:
    """No call runs on, but one that refuses to be cancelled."""
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
    """Types and places of an exception and of those behind it, without a message."""
    told = []
    while exc is not None:
        frames = "".join(traceback.format_tb(exc.__traceback__))
        told.append(f"{type(exc).__qualname__}\n{frames}".rstrip())
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    return "\nafter ".join(told)
