"""Stateless responses: streamed from the model to the client, with a row for the call.

All of them use the agent loop. Without server tools it calls the model once; with them
it repeats until the model makes no more calls or the client has calls to answer.
"""

from __future__ import annotations

import time
from collections.abc import (
    AsyncGenerator,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Any

from django.conf import settings

from conversations.gateway.dialects import Writer
from conversations.gateway.exchanges import explanation
from conversations.gateway.gateway_request import GatewayRequest
from conversations.gateway.http import (
    RETRY_WAIT,
    STATUS_WAIT,
    EventStream,
    Exchange,
    queued_status_wait,
)
from conversations.gateway.model_resolution import affinity_of
from conversations.gateway.request_reading import has_untrusted_input
from conversations.gateway.stop_sequences import StopSequenceFilter, stop_at_sequences
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.turns.all_except import AllExcept
from llm.cache.cached_stream import with_cache
from llm.errors import LLMError
from llm.generation import retries
from llm.http.client import ProviderCall, Stream
from llm.http.inline_files import FileCache
from llm.models import ModelCall
from llm.pricing.caller import Caller
from llm.provider import Route
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta
from llm.wire.facades.responses_request import echo_of
from llm.wire.items import Event, Issuer, Item, new_id
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tools.loop.loop import respond
from tools.loop.steps import (
    choice_after_calls,
    is_allowed,
    is_limited,
)
from tools.loop.task import Task, UnstoredRecord
from tools.registry import Context

_ANY_NAME = AllExcept()
_OUTPUT = "response.output"  # the beginning of the types of a model's events
LARGE_TEXT = 1024 * 1024  # characters


class StatelessResponseBuilder(ResponseBuilder):
    """Stores the error of a failed response, and does not merge deltas.

    Clients rely on receiving deltas as the provider cut them. Deltas of one read are
    still written together.
    """

    merges = False
    error: LLMError | None = None

    def fail(self, error: LLMError) -> list[Event]:
        self.error = error
        return super().fail(error)


class StatelessResponse(UnstoredRecord):
    """One response of a model. `builder.error` is set if it failed."""

    def __init__(
        self, gateway_request: GatewayRequest, write_queue: WriteBehindQueue
    ) -> None:
        self._gateway_request = gateway_request
        self._write_queue = write_queue
        self._call: ProviderCall | None = None  # the latest
        self._stop_filter = (
            StopSequenceFilter(gateway_request.request.stop)
            if gateway_request.filters_stop_sequences
            else None
        )
        self._id = new_id("resp")
        self._rows: list[ModelCall] = []  # only for a request that wants them explained
        self._began_at = time.monotonic()
        request = gateway_request.request
        if request.forwarded is None or not request.forwarded.wants_frames:
            echo = None  # other APIs do not repeat the request
            if gateway_request.dialect.is_open_responses:
                echo = echo_of(gateway_request.body, request)
            self.builder = StatelessResponseBuilder(
                id=self._id, model=gateway_request.body["model"], echo=echo
            )

    async def events(self) -> AsyncGenerator[list[Event], None]:
        """All events from `response.created` on; cancelling it ends the response."""
        yield self.builder.start()
        async with aclosing(self.events_after_start()) as batches:
            async for events in batches:
                yield events

    def events_after_start(self) -> AsyncGenerator[list[Event], None]:
        """The events after `builder.start()`.

        With thousands of open streams, this saves the generator of `events`.
        """
        return respond(self._task(), builder=self.builder, record=self)

    @property
    def issuer(self) -> Issuer:
        """The issuer of the model that answers, which may be a fallback."""
        route = (self._call and self._call.route) or self._gateway_request.route
        return route.issuer

    def status_wait(self) -> float:
        """Seconds to wait for an error before the stream starts with status 200."""
        call = self._call
        if call is None:
            return queued_status_wait()
        has_failed = call.error is not None or (call.http_status or 0) >= 400
        is_answered = call.http_status is not None and not has_failed
        if has_failed or (call.attempt > 1 and not is_answered):
            return max(STATUS_WAIT + RETRY_WAIT, queued_status_wait())
        return STATUS_WAIT if call.has_slot else queued_status_wait()

    def headers(self) -> dict[str, str]:
        """The extra headers, complete once the model is called."""
        if self._call is None:
            return self._gateway_request.headers(())
        headers = self._gateway_request.headers(self._call.degraded)
        if cache := self._call.cache:
            headers["x-parley-cache"] = "hit" if cache.is_hit else "miss"
        return headers

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer, if one was found."""
        return self._stop_filter.found if self._stop_filter else None

    def _task(self) -> Task:
        gateway_request = self._gateway_request
        stream: Stream = partial(
            retries.stream,
            gateway_request.chain.routes,
            policy=gateway_request.chain.policy,
            ignore_invalid=(
                gateway_request.route.defaults.get("ignore_invalid_options") is True
                or gateway_request.parley_options.ignore_invalid_options
            ),
            droppable=gateway_request.droppable,
            files=FileCache(),
            admit=gateway_request.meter.admit if gateway_request.meter else None,
            affinity=affinity_of(
                gateway_request.request,
                gateway_request.body,
                gateway_request.token.user_id,
                self._id,
            ),
        )
        if gateway_request.meter:
            stream = gateway_request.meter.meter_stream(stream)
        if gateway_request.cache_seconds:
            scope = gateway_request.cache_scope
            stream = with_cache(stream, gateway_request.route, scope)
        if self._stop_filter:
            stream = stop_at_sequences(stream, self._stop_filter)
        own_tools, choice = (
            gateway_request.own_tools,
            gateway_request.request.tool_choice,
        )
        is_limited_choice = is_limited(choice)
        return Task(
            prepare=self._prepare,
            stream=stream,
            tools={n: own_tools[n] for n in own_tools if is_allowed(n, choice)}
            if is_limited_choice
            else own_tools,
            # Without server tools the client answers all calls, whatever their names.
            client_tools=gateway_request.client_tools
            if own_tools or is_limited_choice
            else _ANY_NAME,
            context=Context(
                user_id=gateway_request.token.user_id,
                sign_ins_of=gateway_request.token.user_id,
                may_read_chats=False,
                access_token_id=gateway_request.token.pk,
            ),
            parallel=gateway_request.request.parallel_tool_calls is not False,
            max_steps=settings.TURN_MAX_STEPS,
            max_tool_calls=gateway_request.max_tool_calls,
            # Of a forwarded body it is read for this: once, not for each call.
            has_untrusted_input=cache(partial(has_untrusted_input, gateway_request))
            if own_tools
            else bool,
        )

    def _prepare(self, answered: Sequence[Item]) -> Request:
        request = self._gateway_request.request
        if not answered:
            return request
        answered = [self._with_proof(item) for item in answered]
        choice = request.tool_choice
        if any(item["type"] == "function_call" for item in answered):
            choice = choice_after_calls(choice)
        if (forwarded := request.forwarded) is not None:
            forwarded = replace(forwarded, answered=answered)
        return replace(
            request,
            items=[*request.items, *answered],
            tool_choice=choice,
            forwarded=forwarded,
        )

    def _with_proof(self, item: Item) -> Item:
        """For the model that has made the item: some refuse a call without it."""
        if (raw := self.builder.proofs.get(item.get("id", ""))) is None:
            return item
        return {**item, "provider_data": {"issuer": self.issuer, "raw": raw}}

    # Record

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        raise AssertionError("server tools that need approval were refused")

    def begin_model_call(self, call: ProviderCall) -> None:
        self._call = call

    def record_model_call(self, call: ProviderCall) -> None:
        builder = self.builder
        self.save_call(
            call,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
        )

    def save_call(
        self,
        call: ProviderCall,
        *,
        start: StartDelta,
        usage: UsageDelta,
        finish: FinishDelta | None,
    ) -> None:
        """Write the rows of a call and its earlier attempts, soon."""
        for made in retries.calls_made(call, start=start, usage=usage, finish=finish):
            if made.started_at:  # otherwise it was refused here and nothing was sent
                route = made.route or self._gateway_request.route
                cancelled = made.error is None and made.finish is None
                caller = self._caller()
                choices = self._gateway_request.choices(route)
                make_row = partial(_row, made, route, cancelled, caller, choices)
                self._write_queue.add_call(make_row)
                if self._gateway_request.parley_options.explain:
                    self._rows.append(make_row())
        if self._gateway_request.parley_options.explain:
            self.builder.set_extension_field(explanation.FIELD, self._explain())

    def _explain(self) -> dict[str, Any]:
        request = self._gateway_request
        last = self._rows[-1].degraded if self._rows else ()
        return explanation.explain(
            self._rows,
            requested_model=request.body["model"],
            request_id=self._caller().request_id,
            losses=request.dropped_names(last),
            seconds=time.monotonic() - self._began_at,
        )

    def explained_error(self, error: LLMError) -> LLMError:
        """`error` as it is raised before the first byte."""
        if self._gateway_request.parley_options.explain:
            return explanation.attach(error, self._explain())
        return error

    def _caller(self) -> Caller:
        """Over a WebSocket a response's own id stands for that of its request."""
        caller = self._gateway_request.caller
        return caller if caller.request_id else replace(caller, request_id=self._id)


def _row(
    call: ProviderCall,
    route: Route,
    cancelled: bool,
    caller: Caller,
    choices: Sequence[Route],
) -> ModelCall:
    return ModelCall.of(
        call,
        route,
        attempt=call.attempt,
        start=call.start,
        usage=call.usage,
        finish=call.finish,
        cancelled=cancelled,
        caller=caller,
        choices=choices,
    )


async def send_whole(
    exchange: Exchange, gateway_request: GatewayRequest, answer: StatelessResponse
) -> None:
    """Send the complete response. Raises LLMError."""
    async with aclosing(answer.events()) as batches:
        async for _ in batches:
            pass
    error = answer.builder.error
    if error and not gateway_request.dialect.returns_failed_output:
        raise answer.explained_error(error)
    body = gateway_request.dialect.response_body(gateway_request, answer)
    if error and not body["output"]:
        raise answer.explained_error(error)
    exchange.has_failed = error is not None
    exchange.response_headers |= answer.headers()
    await exchange.answer(200, body)


async def send_stream(
    exchange: Exchange,
    gateway_request: GatewayRequest,
    answer: StatelessResponse,
    stream: EventStream | None = None,
) -> None:
    """Send the response's events. Raises LLMError if nothing was sent yet.

    `stream` is one that was opened already.
    """
    writer: Writer | None = None

    def encode(events: Sequence[Event]) -> bytes:
        nonlocal writer
        if writer is None:
            dialect = gateway_request.dialect
            writer = dialect.writer(gateway_request, answer, exchange.id)
        return writer.feed_bytes(events)

    builder, has_output = answer.builder, False
    stream = stream or EventStream(exchange, encode, answer.status_wait, answer.headers)
    try:
        stream.buffer(builder.start())
        async with aclosing(answer.events_after_start()) as batches:
            async for events in batches:
                if builder.ended and builder.error and not exchange.started:
                    raise answer.explained_error(builder.error)
                has_output = has_output or events[0]["type"].startswith(_OUTPUT)
                if builder.ended:
                    exchange.has_failed = builder.error is not None
                    await stream.end(events)
                elif has_output or exchange.started:
                    await _write_output(stream, events)
                else:
                    stream.buffer(events)
    finally:
        stream.stop_heartbeats()


async def _write_output(stream: EventStream, events: list[Event]) -> None:
    for portion in _split_large(events):
        await stream.write(portion)


def _split_large(events: list[Event]) -> Iterable[list[Event]]:
    """One event at a time if the events repeat a large text. Each holds all of it, and
    the connection takes one before the next is encoded."""
    is_large = any(len(event.get("text", "")) > LARGE_TEXT for event in events)
    return ([event] for event in events) if is_large else (events,)
