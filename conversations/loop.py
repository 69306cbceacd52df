"""The tool loop: items in, one canonical event stream out. No database here.

Each turn of the loop asks `steps.next_step` what the items call for and does it. What
must be on record before the loop goes on is handed to a `Record`; cancelling the task
that iterates ends the stream in order, in whatever await it finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from conversations.resume import Resumption
from conversations.steps import AwaitClient, CallTools, Finish, Generate, next_step
from llm.client import Call
from llm.errors import LLMError
from llm.wire.deltas import Delta
from llm.wire.items import Event, Item, function_call_output
from llm.wire.request import Request
from llm.wire.response import ResponseBuilder
from tools.execute import Outcome, Progress, execute
from tools.registry import Context, Tool

Stream = Callable[[Request, Call], AsyncGenerator[list[Delta], None]]


class Record(Protocol):
    """What a turn writes down, and when. Each returns once it is safe."""

    async def called(self, calls: Sequence[Item]) -> None:
        """A provider call is over; `calls` are about to run."""

    async def answered(self, outcomes: Sequence[Outcome], *, last: bool) -> None:
        """Calls have ended; with the `last` one their outputs are in the response."""

    def asked(self, call: Call) -> None:
        """A provider call is over, well or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a turn is to do: everything the loop needs to know, and no row."""

    question: Sequence[Item]  # the turn's own input
    prepare: Callable[[Sequence[Item]], Request]  # this turn's items to a request
    stream: Stream
    tools: Mapping[str, Tool] = field(default_factory=dict)
    client_tools: Collection[str] = ()
    context: Context = field(default_factory=Context)
    parallel: bool = True
    max_steps: int = 10
    #: Outcomes an interrupted run has left, by call id.
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    partial: Sequence[Item] = ()


async def respond(
    task: Task,
    *,
    builder: ResponseBuilder,
    record: Record,
    stop_reason: Callable[[], str] = lambda: "cancelled",
) -> AsyncGenerator[list[Event], None]:
    """Answer the question. The last batch ends the response, and nothing follows it.

    The builder has been started, and holds what an earlier run has committed.
    """
    loop = _Loop(task, builder, record)
    try:
        async with aclosing(loop.run()) as batches:
            async for events in batches:
                yield events
        ending = builder.complete(loop.reason)
    except LLMError as exc:
        ending = builder.fail(exc)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        ending = [*loop.unsaid, *builder.cancel(stop_reason())]
    yield ending


class _Loop:
    def __init__(self, task: Task, builder: ResponseBuilder, record: Record) -> None:
        self.reason: str | None = None  # why the model got no last word
        self.unsaid: list[Event] = []  # made, and waiting for the record
        self._paused = False  # the provider wants to be asked again as things stand
        self._task = task
        self._builder = builder
        self._record = record
        self._steps = 0
        self._outcomes = dict(task.outcomes)
        self._late: set[str] = set()  # ended, and not on record yet
        self._resumption = Resumption(builder, task.partial) if task.partial else None

    async def run(self) -> AsyncGenerator[list[Event], None]:
        if self._resumption:
            yield self._resumption.start()
        while True:
            before = len(self._builder.output)
            match self._next():
                case Generate():
                    step = self._generate()
                case CallTools(calls):
                    step = self._call_tools(calls)
                case Finish(reason):
                    self.reason = reason
                    return
                case AwaitClient():
                    return
            async with aclosing(step):
                async for events in step:
                    yield events
            if len(self._builder.output) == before and not self._paused:
                return  # an empty answer is an answer

    def _next(self) -> Generate | CallTools | AwaitClient | Finish:
        if self._paused:
            left = self._task.max_steps - self._steps
            return Generate() if left > 0 else Finish("max_steps")
        return next_step(
            [*self._task.question, *self._builder.output],
            client_tools=self._task.client_tools,
            steps_left=self._task.max_steps - self._steps,
        )

    async def _generate(self) -> AsyncGenerator[list[Event], None]:
        builder, task = self._builder, self._task
        self._steps += 1
        yield builder.extension(
            "parley:step.started", step=self._steps, kind="generate"
        )
        request = task.prepare(tuple(builder.output))
        resumption, self._resumption = self._resumption, None
        feed = resumption.feed if resumption else builder.feed
        call = Call()
        builder.begin_call()
        try:
            async with aclosing(task.stream(request, call)) as batches:
                async for deltas in batches:
                    if events := feed(deltas):
                        yield events
            if resumption:
                yield resumption.end()
        finally:
            self._record.asked(call)
        yield builder.end_call()
        if call.degraded:
            yield builder.extension(
                "parley:step.degraded", step=self._steps, options=call.degraded
            )
        self._paused = builder.finish is not None and builder.finish.reason == "pause"
        if isinstance(step := self._next(), CallTools):
            await self._record.called(step.calls)

    async def _call_tools(
        self, calls: Sequence[Item]
    ) -> AsyncGenerator[list[Event], None]:
        builder = self._builder
        for call in calls:
            yield builder.extension(
                "parley:tool_call.started", **_address(call), name=call["name"]
            )
        todo = [call for call in calls if call["call_id"] not in self._outcomes]
        for call in calls:
            if call not in todo:  # an interrupted run has left its outcome
                self._late.add(call["call_id"])
        for group in [todo] if self._task.parallel else [[call] for call in todo]:
            happenings = self._call_group(group, last=group[-1:] == todo[-1:])
            async with aclosing(happenings):
                async for events in happenings:
                    yield events
        # The last outcome, the outputs and what comes next are one thing on record.
        late = [
            self._outcomes[c["call_id"]] for c in calls if c["call_id"] in self._late
        ]
        for outcome in late:
            self.unsaid += self._told(_of(calls, outcome.call_id), outcome)
        for call_id in [call["call_id"] for call in calls]:
            output = self._outcomes[call_id].output
            self.unsaid += builder.add(function_call_output(call_id, output))
        await self._record.answered(late, last=True)
        events, self.unsaid = self.unsaid, []
        yield events

    async def _call_group(
        self, calls: Sequence[Item], *, last: bool
    ) -> AsyncGenerator[list[Event], None]:
        waiting = {call["call_id"] for call in calls}
        running = execute(calls, self._task.tools, self._task.context)
        async with aclosing(running):
            async for happening in running:
                call = _of(calls, happening.call_id)
                if isinstance(happening, Progress):
                    yield self._builder.extension(
                        "parley:tool_call.progress",
                        **_address(call),
                        message=happening.message,
                    )
                    continue
                waiting.discard(happening.call_id)
                self._outcomes[happening.call_id] = happening
                if last and not waiting:
                    self._late.add(happening.call_id)
                else:
                    await self._record.answered([happening], last=False)
                    yield self._told(call, happening)

    def _told(self, call: Item, outcome: Outcome) -> list[Event]:
        return self._builder.extension(
            f"parley:tool_call.{outcome.state}",
            **_address(call),
            seconds=round(outcome.seconds, 3),
            **({"error": outcome.error} if outcome.error else {}),
        )


def _address(call: Item) -> dict[str, str]:
    return {"call_id": call["call_id"], "item_id": call["id"]}


def _of(calls: Sequence[Item], call_id: str) -> Item:
    return next(call for call in calls if call["call_id"] == call_id)
