"""A run: the tool loop without a database, as a stream of events with a result."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from llm.adaptation.structured import OutputFormat
from llm.concurrency.calling_thread import CallingThread
from llm.errors import LLMError, ProviderTimeout
from llm.generation.answer import Answer
from llm.generation.pending_request import Input, Model, Options, PendingRequest
from llm.generation.result import Result
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.items import Event, Item
from llm.wire.request import Request
from tools.agent.background import RunBackgroundCalls
from tools.agent.options import OnEvent, RunLimits, RunOptions
from tools.agent.toolbox import Toolbox, load_tools
from tools.execute import CallOutcome
from tools.loop.late_results import LateResult
from tools.loop.loop import respond
from tools.loop.steps import choice_after_calls, is_allowed
from tools.loop.task import Task
from tools.runtime_tool import Context

_LOOP_OPTIONS = frozenset(RunLimits.__slots__)
_TOO_LATE = "The deadline of the run passed before the model was called."


class RunStream(AsyncIterator[Event]):
    """One run: an iterator of canonical events, and afterwards its `result`.

    Nothing is done before the first event is read. An invalid request or tool raises
    then; a later error ends the stream with the event `response.failed` and is in
    `error`.
    """

    def __init__(
        self,
        model: Model,
        input: Input,
        options: RunOptions,
        *,
        output_format: OutputFormat | None = None,
        buffered: bool = False,
    ) -> None:
        self.error: LLMError | None = None
        given: dict[str, Any] = {**options}
        self._tools = given.pop("tools", ())
        loop = {name: given.pop(name) for name in _LOOP_OPTIONS & given.keys()}
        self._limits = RunLimits(**loop)
        of_calls: Options = given  # type: ignore[assignment]
        self._pending = PendingRequest.of(model, input, of_calls)
        self._output_format = output_format
        self._buffered = buffered
        self._result: Result | None = None
        self._ready: deque[Event] = deque()
        self._batches = self._run()

    @property
    def result(self) -> Result:
        """The result, available after the last event; RuntimeError before that."""
        if self._result is None:
            raise RuntimeError("The stream has not ended; read it to the end first.")
        return self._result

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            events = await self._batches.__anext__()
            if self._limits.on_event:
                await self._notify(self._limits.on_event, events)
            self._ready.extend(events)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop the run if it is not over: close its connections, cancel its calls."""
        self._ready.clear()
        await self._batches.aclose()

    async def _notify(self, on_event: OnEvent, events: Sequence[Event]) -> None:
        try:
            for event in events:
                if event["type"].startswith("parley:"):
                    handled = on_event(event)
                    if isawaitable(handled):
                        await handled
        except BaseException:
            await self._batches.aclose()
            raise

    async def _run(self) -> AsyncGenerator[list[Event], None]:
        deadline = None
        if self._limits.deadline is not None:
            deadline = asyncio.get_running_loop().time() + self._limits.deadline
        async with AsyncExitStack() as stack:
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    toolbox = await load_tools(self._tools, self._pending.user, stack)
                    answer = self._answer(toolbox)
                    events = await answer.open()
            except TimeoutError as exc:
                if limit.expired():
                    raise ProviderTimeout(_TOO_LATE) from exc
                raise
            yield events
            stack.push_async_callback(answer.end)
            run = _Run(answer, toolbox, self._limits, self._pending.user, deadline)
            stack.push_async_callback(run.close)
            while (batch := await run.next_batch()) is not None:
                if answer.builder.ended:
                    await answer.end()
                    self._result = run.result()
                    self.error = answer.builder.error
                yield batch

    def _answer(self, toolbox: Toolbox) -> Answer:
        options = {**self._pending.options, "tools": toolbox.definitions}
        return Answer(
            replace(self._pending, options=options),
            output_format=self._output_format,
            buffered=self._buffered,
        )


class _Run:
    """A run whose tools and model are known. It is the `Record` of its loop."""

    def __init__(
        self,
        answer: Answer,
        toolbox: Toolbox,
        limits: RunLimits,
        user: Any,
        deadline: float | None,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._deadline = deadline  # of the event loop's clock
        self._is_stopped = False  # by the deadline
        self._tool_seconds = 0.0
        self._progress: list[tuple[Item, str]] = []
        self._loop: AsyncGenerator[list[Event], None] | None = None
        choice = answer.request.tool_choice
        tools = {
            name: tool
            for name, tool in limits.apply(toolbox.tools).items()
            if is_allowed(name, choice)
        }
        user_id = getattr(user, "pk", None)
        context = Context(user_id=user_id, sign_ins_of=user_id, turn_id=answer.id)
        self.background = RunBackgroundCalls(
            tools, context, lambda call, text: self._progress.append((call, text))
        )
        self._task = Task(
            prepare=self._prepare,
            stream=answer.call_model,
            tools=tools,
            client_tools=toolbox.client_tools,
            context=context,
            parallel=answer.request.parallel_tool_calls is not False,
            max_steps=limits.max_iterations,
            max_tool_calls=limits.max_tool_calls,
            holds_open=lambda: self.background.is_running,
            cancel_background=self.background.cancel,
        )

    def result(self) -> Result:
        seconds = self._tool_seconds + self.background.seconds
        result = self._answer.result(tool_seconds=seconds)
        late = [each.item for each in self.background.take_results()]
        return replace(result, late_results=late) if late else result

    async def next_batch(self) -> list[Event] | None:
        """The next events after the beginning; None after the last."""
        builder = self._answer.builder
        while not builder.ended:
            if self._progress:
                return self._take_progress()
            if self._loop is None:
                self._loop = respond(
                    self._task,
                    builder=builder,
                    record=self,
                    stop_reason=lambda: "deadline" if self._is_stopped else None,
                )
            if self._deadline is None:
                events = await anext(self._loop, None)
            else:
                events = await self._read(self._loop, self._deadline)
            if events is not None:
                return events
            self._loop = None  # the response waits for a background call
            if not await self._wait_for_news():
                calls = self.background.cancel()
                return [*self._cancelled(calls), *builder.cancel("deadline")]
        return None

    async def close(self) -> None:
        if self._loop is not None:
            await self._loop.aclose()
        await self.background.close()

    async def _read(
        self, loop: AsyncGenerator[list[Event], None], deadline: float
    ) -> list[Event] | None:
        """The next batch; at the deadline the last one. None at the end."""
        timer = asyncio.get_running_loop().call_at(
            deadline, self._stop, asyncio.current_task()
        )
        try:
            return await anext(loop, None)
        finally:
            timer.cancel()

    def _stop(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None and not self._is_stopped:
            self._is_stopped = True
            task.cancel()

    async def _wait_for_news(self) -> bool:
        """Wait for a report or the end of a background call. False at the deadline."""
        await self._answer.settle()
        if self._progress:  # a call reported it while the rows were written
            return True
        try:
            async with asyncio.timeout_at(self._deadline):
                await self.background.wait_for_news()
        except TimeoutError:
            return False
        return True

    def _take_progress(self) -> list[Event]:
        reports, self._progress = self._progress, []
        events: list[Event] = []
        for call, text in reports:
            events += self._answer.builder.extension(
                "parley:tool_call.progress",
                call_id=call["call_id"],
                item_id=call["id"],
                message=text,
            )
        return events

    def _cancelled(self, calls: Sequence[Item]) -> Iterator[Event]:
        for call in calls:
            yield from self._answer.builder.extension(
                "parley:tool_call.cancelled",
                call_id=call["call_id"],
                item_id=call["id"],
            )

    def _prepare(self, output: Sequence[Item]) -> Request:
        request = self._answer.request
        if not output:
            return request
        choice = request.tool_choice
        if any(item["type"] == "function_call" for item in output):
            choice = choice_after_calls(choice)
        items = [*request.items, *self._answer.items()]
        return replace(request, items=items, tool_choice=choice)

    # Record

    @property
    def has_new_results(self) -> bool:
        return self.background.has_results

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        await self._answer.settle()
        for call in calls:
            if call["call_id"] in background:
                self.background.start(call)

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        for outcome in outcomes:
            self._tool_seconds += outcome.seconds
            if outcome.accepted is not None:
                call = self._find_call(outcome.call_id)
                self.background.start(call, outcome.accepted)

    async def fetch_results(self) -> Sequence[LateResult]:
        return self.background.take_results()

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        raise AssertionError("no tool of a run needs approval")

    def begin_model_call(self, call: ProviderCall) -> None:
        """Do nothing: that a call began matters only to turns, which may be resumed."""

    def record_model_call(self, call: ProviderCall) -> None:
        self._answer.record_call(call)

    def _find_call(self, call_id: str) -> Item:
        output = self._answer.builder.output
        return next(
            item
            for item in output
            if item["type"] == "function_call" and item["call_id"] == call_id
        )


class SyncRunStream(Iterator[Event]):
    """A `RunStream` for code that cannot await. Close it, or read it to the end.

    Its event loop runs while an event is awaited, in the thread that awaits it. So the
    rows of its calls are written in the caller's transaction.
    """

    def __init__(self, stream: RunStream) -> None:
        self._stream = stream
        self._thread: CallingThread | None = CallingThread()

    @property
    def error(self) -> LLMError | None:
        return self._stream.error

    @property
    def result(self) -> Result:
        return self._stream.result

    def __next__(self) -> Event:
        if self._thread is None:
            raise StopIteration
        try:
            event = self._thread.run(self._read())
        except BaseException:
            self.close()
            raise
        if event is None:
            self.close()
            raise StopIteration
        return event

    def __enter__(self) -> SyncRunStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the run if it is not over."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            thread.run(self._end())
        finally:
            thread.close()

    async def _read(self) -> Event | None:
        return await anext(self._stream, None)

    async def _end(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await client.aclose()  # this event loop ends here
