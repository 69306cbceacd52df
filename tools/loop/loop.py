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
    Sequence,
)
from dataclasses import replace
from functools import partial
from typing import Any

from llm.errors import ContextTooLarge, CutOff, LLMError
from llm.http.client import CacheUse, ProviderCall
from llm.wire.deltas import Delta
from llm.wire.items import Event, Item
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tools.loop.late_results import LateResult, SteeringMessage
from tools.loop.resume import Resumption
from tools.loop.steps import (
    AwaitApproval,
    AwaitClient,
    CallTools,
    Finish,
    Generate,
    Step,
    is_midway,
    next_step,
    rounds,
)
from tools.loop.task import PreparedContext, PublishEvents, Record, Task
from tools.loop.tool_calls import ToolCalls

#: Characters; a longer answer awaits `Task.wait_for_room` and `Task.wait_to_close`.
LARGE_ANSWER = 1_000_000
_NO_END_MARKER = "The provider's stream ended without an end marker."


async def respond(
    task: Task,
    *,
    builder: ResponseBuilder,
    record: Record,
    stop_reason: Callable[[], str | None] = lambda: None,
    publish: PublishEvents | None = None,
) -> AsyncGenerator[list[Event], None]:
    """Run the turn and yield its events. The last batch ends the response.

    If `publish` is given, events of provider output are passed to it and not yielded:
    these are nearly all batches, and each would pass through three generators.

    The builder must have been started and contain the items that an earlier run has
    committed. Where a user has to decide first, or the result of a background call is
    awaited, the response is left open; the next call of `respond` continues it.

    `stop_reason` says why the task was cancelled: the response then ends for this
    reason. If it is None, CancelledError is raised.
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
        ending = [*loop.take_last_events(), *builder.complete(loop.reason)]
    except LLMError as exc:
        ending = [*loop.take_last_events(exc.code), *builder.fail(exc)]
    except asyncio.CancelledError:
        if (stopped_for := stop_reason()) is None:
            raise
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        ending = [*loop.take_last_events(stopped_for), *builder.cancel(stopped_for)]
    yield ending


class _Loop:
    """The state of a running turn. `next_action` is called until it returns None."""

    __slots__ = (
        "_background_response",
        "_builder",
        "_cache_hits",
        "_has_compacted",
        "_is_new",
        "_model_call",
        "_pending_events",
        "_prepare",
        "_publish",
        "_record",
        "_refusal",
        "_request_ready",
        "_resumption",
        "_saved_step",
        "_steps",
        "_task",
        "_tool_calls",
        "_was_refused",
        "is_waiting",
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
        self.is_waiting = False  # for a user's decision, or a background call
        self._model_call: ProviderCall | None = None  # the one that is running
        self._pending_events: Sequence[Event] = ()  # built, but not stored yet
        self._is_new = True
        self._cache_hits = 0  # model calls that a stored answer replaced
        self._task = task
        self._prepare = task.prepare
        self._builder = builder
        self._record = record
        self._publish = publish
        self._steps = rounds(builder.output)
        self._tool_calls = ToolCalls(task, builder, record, task.outcomes)
        self._resumption = Resumption(builder, task.partial) if task.partial else None
        self._background_response = task.background_response
        self._request_ready: Request | None = None  # for the next provider call
        self._saved_step: CallTools | None = None  # the next step, if it is known
        self._has_compacted = False  # or has tried to, since the last provider call
        self._refusal: ContextTooLarge | None = None  # to be answered by a compaction
        self._was_refused = False  # by a provider; once in a turn it is tried again

    def next_action(self) -> AsyncGenerator[list[Event], None] | None:
        """The next action, to be iterated to its end before the next call; None at the
        end of the turn."""
        if self._is_new:
            self._is_new = False
            if self._resumption or self._task.gather_context:
                return self._begin()
        if self.is_waiting:
            return None
        step, self._saved_step = self._saved_step or self._next(), None
        if self._record.has_new_results and self._may_deliver(step):
            return self._deliver()
        match step:
            case Generate():
                return self._compact() if self._must_compact() else self._generate()
            case CallTools(calls):
                return self._tool_calls.run(calls)
            case AwaitApproval(calls):
                return self._wait(calls)
            case Finish(None) | AwaitClient() if self._holds_open():
                self.is_waiting = True
            case Finish(reason):
                self.reason = reason
                if self._resumption:  # its partial item will not be continued
                    self._pending_events = self._builder.end_call(whole=False)
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
        task, builder = self._task, self._builder
        reason = None if builder.finish is None else builder.finish.reason
        if reason == "size":
            return Finish("max_answer_size")  # calls before the cut do not run
        step = next_step(
            builder.output,
            ended_output=builder.ended_output,
            client_tools=task.client_tools,
            needs_approval=task.needs_approval,
            steps_left=task.max_steps - self._steps,
        )
        if not isinstance(step, Generate):
            if reason == "content_filter" and not isinstance(step, Finish):
                return Finish(reason)  # the provider has withdrawn the answer
            return step
        if task.is_cost_exhausted():
            return Finish("max_cost")
        if task.are_tokens_used():
            return Finish("max_tokens")
        if task.answer_size and task.answer_size.is_exceeded:
            return Finish("max_answer_size")  # by the items of earlier runs
        return step

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
        if self._task.are_tokens_used():
            return False
        return step in (Generate(), Finish())

    def _holds_open(self) -> bool:
        may_call_again = self._steps < self._task.max_steps
        return may_call_again and self._task.holds_open()

    async def _deliver(self) -> AsyncGenerator[list[Event], None]:
        self._request_ready = None  # it lacks the results
        events = [*self._pending_events]
        for result in await self._record.fetch_results():
            if isinstance(result, SteeringMessage):
                events += self._builder.add(result.item)
            else:
                events += self._result_events(result)
        self._pending_events = events
        await self._record.save_outcomes([], last=True)
        yield self.take_pending_events()

    def _result_events(self, result: LateResult) -> list[Event]:
        builder, item = self._builder, result.item
        about: dict[str, Any] = {"call_id": result.call_id, "name": result.name}
        about["state"] = result.state
        if result.seconds is not None:
            about["seconds"] = round(result.seconds, 3)
        outcome = "completed" if result.state == "completed" else "failed"
        error = {"error": result.error} if result.error else {}
        return [
            *builder.extension("parley:result.arrived", **about),
            *builder.add(item),
            *builder.extension(
                f"parley:background_call.{outcome}",
                item_id=item["id"],
                **about,
                **error,
            ),
        ]

    def take_pending_events(self) -> list[Event]:
        events, self._pending_events = [*self._pending_events], ()
        return events + self._tool_calls.take_pending_events()

    def take_last_events(self, error: str = "") -> list[Event]:
        """The pending events, and those of all that ends with the response. `error` is
        why a running model call ends."""
        events = self.take_pending_events()
        if self._model_call is not None:
            events += self._step_finished(self._model_call, error=error)
        for call in self._task.cancel_background():
            ids = {"call_id": call["call_id"], "item_id": call["id"]}
            events += self._builder.extension("parley:tool_call.cancelled", **ids)
        return events

    def _step_finished(self, call: ProviderCall, **outcome: str) -> list[Event]:
        self._model_call = None
        usage = self._builder.call_usage
        fields: dict[str, Any] = {
            "step": self._steps,
            "kind": "generate",
            "attempts": call.attempt,
            "seconds": None if call.latency is None else round(call.latency, 3),
            "usage": {
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.cached_tokens,
                "output_tokens": usage.output_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
            },
        }
        return self._builder.extension("parley:step.finished", **fields, **outcome)

    async def _wait(self, calls: Sequence[Item]) -> AsyncGenerator[list[Event], None]:
        questions = await self._record.suspend(calls)
        self.is_waiting = True
        builder = self._builder
        events: list[Event] = []
        for question in questions:
            events += builder.extension("parley:approval.requested", question=question)
        yield events + builder.extension("parley:turn.waiting", reason="approval")

    def _must_compact(self) -> bool:
        """Whether a compaction should be tried before the next provider call."""
        compactor = self._task.compactor
        if compactor is None or self._has_compacted:
            return False
        if self._resumption or self._background_response:
            return False  # the answer continues one that had the context as it is
        if self._refusal:
            return True
        try:
            self._request_ready = request = self._request(None)
        except ContextTooLarge as exc:
            self._refusal = exc
            return True
        return compactor.room is not None and compactor.is_due(request)

    async def _compact(self) -> AsyncGenerator[list[Event], None]:
        compactor, builder = self._task.compactor, self._builder
        assert compactor is not None, "otherwise nothing is due"
        request, self._request_ready = self._request_ready, None
        self._has_compacted = True
        refusal, self._refusal = self._refusal, None
        plan = await compactor.plan(None if refusal else request)
        if plan is None:
            if refusal:
                raise refusal
            self._request_ready = request
            return
        yield builder.extension("parley:compaction.started", messages=plan.messages)
        try:
            item = await compactor.summarise(plan, self._record)
        except LLMError as exc:
            if refusal:
                raise refusal from exc
            yield builder.extension("parley:compaction.failed", code=exc.code)
            return
        self._pending_events = [*self._pending_events, *builder.add(item)]
        await self._record.save_calls([], background=())
        await compactor.reload()
        yield self.take_pending_events()

    async def _generate(self) -> AsyncGenerator[list[Event], None]:
        builder, task = self._builder, self._task
        self._steps += 1
        yield builder.extension(
            "parley:step.started", step=self._steps, kind="generate"
        )
        resumption, self._resumption = self._resumption, None
        call = self._model_call = ProviderCall()
        size = task.answer_size
        feed = partial(_feed, resumption, call) if resumption else builder.feed
        publish = self._publish
        # No reference to the request is kept here, so that the stream can free it.
        answer = task.stream(self._request(resumption), call)
        self._has_compacted = False
        self._record.begin_model_call(call)
        builder.begin_call()
        if size:
            size.begin_call()
        begun = len(builder.output)
        try:
            try:
                async for deltas in answer:
                    events = feed(size.take(deltas) if size else deltas)
                    if events and publish:
                        publish(events)
                    elif events:
                        yield events
                    has_grown = bool(events)
                    del deltas, events  # the next batch may take long; free these
                    if size and size.is_exceeded:
                        break
                    if has_grown and task.wait_for_room:
                        await _wait_for_room(task.wait_for_room, builder)
            finally:
                await answer.aclose()
            if builder.finish is None:
                raise CutOff(detail=_NO_END_MARKER)
            if resumption and (rest := [*feed([]), *resumption.end()]):
                yield rest
        except ContextTooLarge as exc:
            if resumption or not self._may_try_shorter(begun):
                raise
            self._refusal, self._was_refused = exc, True
            yield self._step_finished(call, error=exc.code)
            self._steps -= 1
            return
        finally:
            self._record.record_model_call(call)
        if task.wait_to_close is not None and builder.open_length > LARGE_ANSWER:
            await task.wait_to_close()
        yield [*builder.end_call(), *self._generated(call)]
        await self._save_generated()

    def _generated(self, call: ProviderCall) -> list[Event]:
        """The events at the end of a step whose provider call has succeeded."""
        if call.cache:
            self._note_cache(call.cache)
        events = self._step_finished(call)
        if call.degraded:
            events += self._builder.extension(
                "parley:step.degraded", step=self._steps, options=call.degraded
            )
        return events

    async def _save_generated(self) -> None:
        """Save the calls that run next; without calls only what is final already."""
        finish = self._builder.finish
        if isinstance(step := self._next(), CallTools):
            await self._tool_calls.save(step.calls)
            self._saved_step = step
        elif finish and finish.reason == "pause":  # the output so far is final
            await self._record.save_calls([], background=())

    def _note_cache(self, use: CacheUse) -> None:
        if use.is_hit:
            self._cache_hits += 1
        builder = self._builder
        builder.set_extension_field("parley:cache", {"hits": self._cache_hits})

    def _may_try_shorter(self, begun: int) -> bool:
        """Whether a call that the provider refused as too long is made once more, after
        a compaction."""
        builder = self._builder
        has_output = len(builder.output) > begun or bool(builder.partial())
        return not (has_output or self._was_refused or self._task.compactor is None)

    def _request(self, resumption: Resumption | None) -> Request:
        """The next request; it is not stored here any more."""
        ready, self._request_ready = self._request_ready, None
        if ready is not None:
            return ready
        output = self._builder.output
        request = self._prepare(tuple(output))
        if self._background_response:
            request = replace(request, resumes=self._background_response)
            self._background_response = None
        if resumption is None or is_midway(output, self._builder.ended_output):
            return request
        return replace(request, prefill=resumption.prefill)


async def _wait_for_room(
    wait: Callable[[int], Awaitable[None]], builder: ResponseBuilder
) -> None:
    if builder.open_length > LARGE_ANSWER:
        await wait(builder.open_length)


def _feed(
    resumption: Resumption, call: ProviderCall, deltas: list[Delta]
) -> list[Event]:
    if call.prefill and not resumption.is_prefilled:
        resumption.continue_after(call.prefill)
    return resumption.feed(deltas)
