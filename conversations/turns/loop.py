"""The tool loop: items in, one canonical event stream out. No database access.

Each iteration calls `steps.next_step` for the next step and carries it out. Changes
that must be stored before the loop continues go to a `Record`. Cancelling the task that
iterates ends the stream with a proper last event, whatever it awaits at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from conversations.turns.resume import Resumption
from conversations.turns.steps import (
    AwaitApproval,
    CallTools,
    Finish,
    Generate,
    Step,
    is_midway,
    next_step,
    rounds,
)
from llm.errors import CutOff, LLMError
from llm.http.client import ProviderCall
from llm.wire.deltas import Delta
from llm.wire.items import Event, Item, function_call_output
from llm.wire.request import BackgroundResponse, Request
from llm.wire.response import ResponseBuilder
from tools.execute import CallOutcome, CallProgress, check_call, execute, find_tool_name
from tools.registry import Context, RuntimeTool

#: Output that the model receives while a call runs in the background.
PLACEHOLDER = (
    "Accepted: this call goes on in the background. Its result will be told to you in a"
    " message as soon as it is there. Go on meanwhile, and do not call it again."
)
LARGE_ANSWER = 1_000_000  # characters; a longer answer awaits `Task.wait_to_close`
_NO_IDS: frozenset[str] = frozenset()
_EDITED = "Note: a person changed the arguments before the call ran, to {}."
_BEYOND_LIMIT = "the limit of this response is reached: 'max_tool_calls' is {}."

PublishEvents = Callable[[list[Event]], None]
Stream = Callable[[Request, ProviderCall], AsyncGenerator[list[Delta], None]]


class Record(Protocol):
    """Storage of a turn's progress. Each method returns once the change is durable."""

    #: True if results of background calls may have arrived.
    has_new_results: bool

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        """A provider call has ended. `calls` are about to run; those with ids in
        `background` run outside the loop."""

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        """Calls have ended. If `last`, all outputs of the step are in the response."""

    async def fetch_results(self) -> Sequence[Item]:
        """Results of background calls that were not delivered to the model yet, as
        messages. The next `save_outcomes` marks them as delivered."""

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        """Suspend the turn until a user has decided about `calls`. Returns the
        questions for the user."""

    def begin_model_call(self, call: ProviderCall) -> None:
        """A provider call begins; `call` is filled in while it lasts."""

    def record_model_call(self, call: ProviderCall) -> None:
        """A provider call has ended, successfully or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Everything the loop needs to run a turn, without database rows."""

    prepare: Callable[[Sequence[Item]], Request]  # from this turn's items
    #: Reads the turn's context sources, once, before the first provider call.
    gather_context: Callable[[], Awaitable[PreparedContext]] | None = None
    stream: Stream
    tools: Mapping[str, RuntimeTool] = field(default_factory=dict)
    client_tools: Collection[str] = ()
    context: Context = field(default_factory=Context)
    parallel: bool = True
    max_steps: int = 10
    max_tool_calls: int | None = None  # of our tools, over the whole turn
    needs_approval: Callable[[Item], bool] = lambda call: False
    #: Arguments with which a user replaced the model's, as JSON text, by call id.
    arguments: Mapping[str, str] = field(default_factory=dict)
    #: Outcomes that an interrupted run has saved, by call id.
    outcomes: Mapping[str, CallOutcome] = field(default_factory=dict)
    partial: Sequence[Item] = ()
    #: A response that an interrupted run requested; the provider may still have it.
    background_response: BackgroundResponse | None = None
    #: True if the message has reached its cost limit: no further provider calls.
    is_cost_exhausted: Callable[[], bool] = lambda: False
    #: Waits for permission to close a large answer, which puts it in memory whole.
    wait_to_close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class PreparedContext:
    """The result of reading the turn's context sources."""

    prepare: Callable[[Sequence[Item]], Request]  # replaces the task's own
    failed: Sequence[Mapping[str, str]] = ()  # left out: source and reason


async def respond(
    task: Task,
    *,
    builder: ResponseBuilder,
    record: Record,
    stop_reason: Callable[[], str] = lambda: "cancelled",
    publish: PublishEvents | None = None,
) -> AsyncGenerator[list[Event], None]:
    """Run the turn and yield its events. The last batch ends the response.

    If `publish` is given, events of provider output are passed to it and not yielded:
    these are nearly all batches, and each would pass through three generators.

    The builder must have been started and contain the items that an earlier run has
    committed. Where a user has to decide first, the response is left open; the next
    call of `respond` continues it.
    """
    loop = _Loop(task, builder, record, publish)
    try:
        while (action := loop.next_action()) is not None:
            try:  # `aclosing` would need more memory with thousands of open streams
                async for events in action:
                    yield events
            finally:
                await action.aclose()
        if loop.is_waiting:
            return
        ending = [*loop.pending_events, *builder.complete(loop.reason)]
    except LLMError as exc:
        ending = builder.fail(exc)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        ending = [*loop.pending_events, *builder.cancel(stop_reason())]
    yield ending


class _Loop:
    """The state of a running turn. `next_action` is called until it returns None."""

    __slots__ = (
        "_background_response",
        "_builder",
        "_is_new",
        "_outcomes",
        "_prepare",
        "_publish",
        "_record",
        "_resumption",
        "_saved_calls",
        "_steps",
        "_task",
        "_unsaved",
        "is_waiting",
        "pending_events",
        "reason",
    )

    def __init__(
        self,
        task: Task,
        builder: ResponseBuilder,
        record: Record,
        publish: PublishEvents | None,
    ) -> None:
        self.reason: str | None = None  # why the response is incomplete
        self.is_waiting = False  # for a user's decision
        self.pending_events: Sequence[Event] = ()  # built, but not stored yet
        self._is_new = True
        self._task = task
        self._prepare = task.prepare
        self._builder = builder
        self._record = record
        self._publish = publish
        self._steps = rounds(builder.output)
        # Most turns call no tools and thousands may be open: they share empty sets.
        self._saved_calls: frozenset[str] = _NO_IDS  # calls that are saved and may run
        self._outcomes = task.outcomes
        self._unsaved: frozenset[str] = (
            _NO_IDS  # calls that ended and are not saved yet
        )
        self._resumption = Resumption(builder, task.partial) if task.partial else None
        self._background_response = task.background_response

    def next_action(self) -> AsyncGenerator[list[Event], None] | None:
        """The next action, to be iterated to its end before the next call; None at the
        end of the turn."""
        if self._is_new:
            self._is_new = False
            if self._resumption or self._task.gather_context:
                return self._begin()
        if self.is_waiting:
            return None
        step = self._next()
        if self._record.has_new_results and self._may_deliver(step):
            return self._deliver()
        match step:
            case Generate():
                return self._generate()
            case CallTools(calls):
                return self._call_tools(calls)
            case AwaitApproval(calls):
                return self._wait(calls)
            case Finish(reason):
                self.reason = reason
                if self._resumption:  # its partial item will not be continued
                    self.pending_events = self._builder.end_call(whole=False)
        return None

    async def _begin(self) -> AsyncGenerator[list[Event], None]:
        if self._resumption:
            yield self._resumption.start()
        if self._task.gather_context and (
            events := await self._gather(self._task.gather_context)
        ):
            yield events

    async def _gather(
        self, gather: Callable[[], Awaitable[PreparedContext]]
    ) -> list[Event]:
        gathered = await gather()
        self._prepare = gathered.prepare
        events: list[Event] = []
        for failed in gathered.failed:
            events += self._builder.extension("parley:context.failed", **failed)
        return events

    def _next(self) -> Step:
        step = self._choose_step()
        if isinstance(step, Generate) and self._task.is_cost_exhausted():
            return Finish("max_cost")
        return step

    def _choose_step(self) -> Step:
        finish = self._builder.finish
        if finish is not None and finish.reason == "size":
            return Finish("max_answer_size")  # calls before the cut do not run
        return next_step(
            self._builder.output,
            ended_output=self._builder.ended_output,
            client_tools=self._task.client_tools,
            needs_approval=self._task.needs_approval,
            steps_left=self._task.max_steps - self._steps,
        )

    def _may_deliver(self, step: Step) -> bool:
        """True if every call has its output, another provider call is allowed, and no
        answer is half done: an item added after an open item is not in the output."""
        builder = self._builder
        if self._background_response or self._resumption:
            return False
        if is_midway(builder.output, builder.ended_output):
            return False
        # Delivered now, the result would get no answer; a new turn can answer it.
        if self._steps >= self._task.max_steps or self._task.is_cost_exhausted():
            return False
        return step in (Generate(), Finish())

    async def _deliver(self) -> AsyncGenerator[list[Event], None]:
        for item in await self._record.fetch_results():
            self.pending_events = [*self.pending_events, *self._builder.add(item)]
        await self._record.save_outcomes([], last=True)
        yield self._take_pending_events()

    def _take_pending_events(self) -> list[Event]:
        events, self.pending_events = [*self.pending_events], ()
        return events

    async def _wait(self, calls: Sequence[Item]) -> AsyncGenerator[list[Event], None]:
        questions = await self._record.suspend(calls)
        self.is_waiting = True
        builder = self._builder
        events: list[Event] = []
        for question in questions:
            events += builder.extension("parley:approval.requested", question=question)
        yield events + builder.extension("parley:turn.waiting", reason="approval")

    async def _generate(self) -> AsyncGenerator[list[Event], None]:
        builder, task = self._builder, self._task
        self._steps += 1
        yield builder.extension(
            "parley:step.started", step=self._steps, kind="generate"
        )
        resumption, self._resumption = self._resumption, None
        call = ProviderCall()
        feed = partial(_feed, resumption, call) if resumption else builder.feed
        publish = self._publish
        # No reference to the request is kept here, so that the stream can free it.
        answer = task.stream(self._request(resumption), call)
        self._record.begin_model_call(call)
        builder.begin_call()
        try:
            try:
                async for deltas in answer:
                    if not (events := feed(deltas)):
                        continue
                    if publish:
                        publish(events)
                    else:
                        yield events
                    del deltas, events  # the next batch may take long; free these
            finally:
                await answer.aclose()
            if builder.finish is None:
                raise CutOff(
                    detail="The provider's stream ended without an end marker."
                )
            if resumption and (rest := [*feed([]), *resumption.end()]):
                yield rest
        finally:
            self._record.record_model_call(call)
        if task.wait_to_close is not None and builder.open_length > LARGE_ANSWER:
            await task.wait_to_close()
        if events_at_end := builder.end_call():
            yield events_at_end
        if call.degraded:
            yield builder.extension(
                "parley:step.degraded", step=self._steps, options=call.degraded
            )
        if isinstance(step := self._next(), CallTools):
            await self._save_calls(step.calls)
        elif builder.finish.reason == "pause":  # the output so far is final
            await self._record.save_calls([], background=())

    def _request(self, resumption: Resumption | None) -> Request:
        output = self._builder.output
        request = self._prepare(tuple(output))
        if self._background_response:
            request = replace(request, resumes=self._background_response)
            self._background_response = None
        if resumption is None or is_midway(output, self._builder.ended_output):
            return request
        return replace(request, prefill=resumption.prefill)

    async def _save_calls(self, calls: Sequence[Item]) -> None:
        """Save the calls before any of them runs."""
        self._saved_calls |= {call["call_id"] for call in calls}
        background = [c["call_id"] for c in calls if self._is_background(c)]
        await self._record.save_calls(calls, background=background)
        accepted = {
            call_id: CallOutcome(call_id, "background", PLACEHOLDER, "", 0.0)
            for call_id in background
        }
        self._outcomes = {**self._outcomes, **accepted}

    def _is_background(self, call: Item) -> bool:
        if call["call_id"] in self._beyond_limit():
            return False
        tools = self._task.tools
        tool = tools.get(find_tool_name(call["name"], tools))
        return (
            tool is not None and not tool.blocking and check_call(call, tools) is None
        )

    async def _call_tools(
        self, calls: Sequence[Item]
    ) -> AsyncGenerator[list[Event], None]:
        builder = self._builder
        for call in calls:
            yield builder.extension(
                "parley:tool_call.started", **_ids_of(call), name=call["name"]
            )
        known = {call["call_id"] for call in calls} & self._outcomes.keys()
        todo = [call for call in calls if call["call_id"] not in known]
        if fresh := [call for call in todo if call["call_id"] not in self._saved_calls]:
            await self._save_calls(fresh)
        # These have outcomes of an interrupted run, or run in the background.
        self._unsaved |= {c["call_id"] for c in calls} & self._outcomes.keys()
        todo = [call for call in todo if call["call_id"] not in self._outcomes]
        for group in self._groups(todo):
            updates = self._call_group(group, last=group[-1:] == todo[-1:])
            async with aclosing(updates):
                async for events in updates:
                    yield events
        # The last outcomes and the outputs are saved in one transaction.
        unsaved = [
            self._outcomes[c["call_id"]] for c in calls if c["call_id"] in self._unsaved
        ]
        events_to_save: list[Event] = []
        for outcome in unsaved:
            events_to_save += self._call_ended(
                _find_call(calls, outcome.call_id), outcome
            )
        for call in calls:
            events_to_save += builder.add(self._output(call["call_id"]))
        self.pending_events = events_to_save
        await self._record.save_outcomes(unsaved, last=True)
        yield self._take_pending_events()

    def _groups(self, calls: Sequence[Item]) -> list[list[Item]]:
        """Groups of calls that run concurrently; those beyond the limit come last."""
        beyond = self._beyond_limit()
        within = [call for call in calls if call["call_id"] not in beyond]
        rest = [call for call in calls if call["call_id"] in beyond]
        groups = [within] if self._task.parallel else [[call] for call in within]
        return [group for group in [*groups, rest] if group]

    def _beyond_limit(self) -> frozenset[str]:
        """Ids of calls of our tools that exceed the request's `max_tool_calls`."""
        if (most := self._task.max_tool_calls) is None:
            return frozenset()
        calls = [
            item["call_id"]
            for item in self._builder.output
            if item["type"] == "function_call"
            and item["name"] not in self._task.client_tools
        ]
        return frozenset(calls[most:])

    def _output(self, call_id: str) -> Item:
        outcome = self._outcomes[call_id]
        output = PLACEHOLDER if outcome.state == "accepted" else outcome.output
        if (edited := self._task.arguments.get(call_id)) is not None:
            note = _EDITED.format(edited)
            if isinstance(output, str):
                output = f"{note}\n\n{output}"
            else:
                output = [{"type": "input_text", "text": note}, *output]
        return function_call_output(call_id, output)

    def _with_edited_arguments(self, call: Item) -> Item:
        edited = self._task.arguments.get(call["call_id"])
        return call if edited is None else {**call, "arguments": edited}

    async def _call_group(
        self, calls: Sequence[Item], *, last: bool
    ) -> AsyncGenerator[list[Event], None]:
        waiting = {call["call_id"] for call in calls}
        is_beyond = calls[0]["call_id"] in self._beyond_limit()
        refusal = _BEYOND_LIMIT.format(self._task.max_tool_calls) if is_beyond else ""
        running = execute(
            [self._with_edited_arguments(call) for call in calls],
            self._task.tools,
            self._task.context,
            client_tools=self._task.client_tools,
            refusal=refusal,
        )
        async with aclosing(running):
            async for update in running:
                call = _find_call(calls, update.call_id)
                if isinstance(update, CallProgress):
                    yield self._builder.extension(
                        "parley:tool_call.progress",
                        **_ids_of(call),
                        message=update.message,
                    )
                    continue
                waiting.discard(update.call_id)
                self._outcomes = {**self._outcomes, update.call_id: update}
                if last and not waiting:
                    self._unsaved |= {update.call_id}
                else:
                    await self._record.save_outcomes([update], last=False)
                    yield self._call_ended(call, update)

    def _call_ended(self, call: Item, outcome: CallOutcome) -> list[Event]:
        state = "accepted" if outcome.state == "background" else outcome.state
        return self._builder.extension(
            f"parley:tool_call.{state}",
            **_ids_of(call),
            seconds=round(outcome.seconds, 3),
            **({"error": outcome.error} if outcome.error else {}),
        )


def _feed(
    resumption: Resumption, call: ProviderCall, deltas: list[Delta]
) -> list[Event]:
    if call.prefill and not resumption.is_prefilled:
        resumption.continue_after(call.prefill)
    return resumption.feed(deltas)


def _ids_of(call: Item) -> dict[str, str]:
    return {"call_id": call["call_id"], "item_id": call["id"]}


def _find_call(calls: Sequence[Item], call_id: str) -> Item:
    return next(call for call in calls if call["call_id"] == call_id)
