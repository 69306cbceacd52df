"""Stateless responses: streamed from the model to the client, with a row for the call.

All of them use the agent loop. Without server tools it calls the model once; with them
it repeats until the model makes no more calls or the client has calls to answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings

from conversations.gateway.http import (
    RETRY_WAIT,
    STATUS_WAIT,
    EventStream,
    Exchange,
    queued_status_wait,
)
from conversations.gateway.request import GatewayRequest
from conversations.gateway.stop_sequences import StopSequenceFilter, stop_at_sequences
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.turns.loop import Task, respond
from conversations.turns.name_sets import AllExcept
from conversations.turns.steps import (
    choice_after_calls,
    is_allowed,
    is_limited,
)
from llm import policy
from llm.errors import LLMError
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.deltas import Delta
from llm.wire.items import Event, Issuer, Item, new_id
from llm.wire.request import Request
from llm.wire.response import ResponseBuilder
from tools.execute import CallOutcome
from tools.registry import Context

_ANY_NAME = AllExcept()
_PREFIX_LENGTH = 500  # characters


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


class StatelessResponse:
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
        self.builder = StatelessResponseBuilder(
            id=self._id,
            model=gateway_request.body["model"],
            echo=gateway_request.dialect.echo(
                gateway_request.body, gateway_request.request
            ),
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
        return route.endpoint.issuer(route.model)

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

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer, if one was found."""
        return self._stop_filter.found if self._stop_filter else None

    def _task(self) -> Task:
        gateway_request = self._gateway_request
        stream = partial(
            policy.stream,
            gateway_request.chain.routes,
            policy=gateway_request.chain.policy,
            ignore_invalid=_ignores_invalid_options(gateway_request),
            files=FileCache(),
            admit=gateway_request.meter.admit if gateway_request.meter else None,
            affinity=_affinity(gateway_request, self._id),
        )
        counted = (
            gateway_request.meter.meter_stream(stream)
            if gateway_request.meter
            else stream
        )

        def stream_call(
            request: Request, call: ProviderCall
        ) -> AsyncGenerator[list[Delta], None]:
            self._call = call
            return counted(request, call)

        own_tools, choice = (
            gateway_request.own_tools,
            gateway_request.request.tool_choice,
        )
        is_limited_choice = is_limited(choice)
        return Task(
            prepare=self._prepare,
            stream=stop_at_sequences(stream_call, self._stop_filter)
            if self._stop_filter
            else stream_call,
            tools={n: own_tools[n] for n in own_tools if is_allowed(n, choice)}
            if is_limited_choice
            else own_tools,
            # Without server tools the client answers all calls, whatever their names.
            client_tools=gateway_request.client_tools
            if own_tools or is_limited_choice
            else _ANY_NAME,
            context=Context(
                user_id=gateway_request.token.user_id, may_read_chats=False
            ),
            parallel=gateway_request.request.parallel_tool_calls is not False,
            max_steps=settings.TURN_MAX_STEPS,
            max_tool_calls=gateway_request.max_tool_calls,
        )

    def _prepare(self, answered: Sequence[Item]) -> Request:
        request = self._gateway_request.request
        if not answered:
            return request
        choice = request.tool_choice
        if any(item["type"] == "function_call" for item in answered):
            choice = choice_after_calls(choice)
        return replace(request, items=[*request.items, *answered], tool_choice=choice)

    # Record

    has_new_results = False

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        """Do nothing: a stateless response is never resumed."""

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        """Do nothing, as `save_calls`."""

    async def fetch_results(self) -> Sequence[Item]:
        return ()

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        raise AssertionError("no tool of ours asks for approval here")

    def begin_model_call(self, call: ProviderCall) -> None:
        """Do nothing, as `save_calls`."""

    def record_model_call(self, call: ProviderCall) -> None:
        builder = self.builder
        for made in policy.calls_made(
            call,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
        ):
            if made.started_at:  # otherwise it was refused here and nothing was sent
                route = made.route or self._gateway_request.route
                cancelled = made.error is None and made.finish is None
                self._write_queue.add_call(partial(_row, made, route, cancelled))


def _row(call: ProviderCall, route: Route, cancelled: bool) -> ModelCall:
    return ModelCall.of(
        call,
        route,
        attempt=call.attempt,
        start=call.start,
        usage=call.usage,
        finish=call.finish,
        cancelled=cancelled,
    )


def _affinity(gateway_request: GatewayRequest, answer_id: str) -> str:
    """A key that all requests of one conversation share, to select the same API key.

    It is the client's `prompt_cache_key`, or the beginning of the conversation. Before
    the first answer it is random.
    """
    request = gateway_request.request
    if request.prompt_cache_key:
        return f"{gateway_request.token.user_id} {request.prompt_cache_key}"
    first_output = next(
        (item for item in request.items if _is_model_output(item)), None
    )
    if first_output is None:
        return answer_id
    user_id = gateway_request.token.user_id
    return f"{user_id} {_text(request.items[0])} {_text(first_output)}"


def _is_model_output(item: Item) -> bool:
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _text(item: Item) -> str:
    """The beginning of an item's text, or its `call_id`."""
    if item.get("call_id"):
        return str(item["call_id"])
    parts = item.get("content")
    if isinstance(parts, str):
        return parts[:_PREFIX_LENGTH]
    texts = [part.get("text") for part in parts or () if isinstance(part, dict)]
    return next((text[:_PREFIX_LENGTH] for text in texts if isinstance(text, str)), "")


def _ignores_invalid_options(gateway_request: GatewayRequest) -> bool:
    set_by_staff = gateway_request.route.defaults.get("ignore_invalid_options") is True
    return set_by_staff or gateway_request.parley_options.ignore_invalid_options


def answer(
    exchange: Exchange, gateway_request: GatewayRequest, write_queue: WriteBehindQueue
) -> Awaitable[None]:
    """Send the response. Raises LLMError if nothing was sent yet."""
    reply = _send_stream if gateway_request.request.stream else _send_whole
    return reply(
        exchange, gateway_request, StatelessResponse(gateway_request, write_queue)
    )


async def _send_whole(
    exchange: Exchange, gateway_request: GatewayRequest, answer: StatelessResponse
) -> None:
    async with aclosing(answer.events()) as batches:
        async for _ in batches:
            pass
    error = answer.builder.error
    if error and not gateway_request.dialect.returns_failed_output:
        raise error
    body = gateway_request.dialect.response_body(gateway_request, answer)
    if error and not body["output"]:
        raise error
    await exchange.answer(200, body)


async def _send_stream(
    exchange: Exchange, gateway_request: GatewayRequest, answer: StatelessResponse
) -> None:
    writer = gateway_request.dialect.writer(gateway_request, answer, exchange.id)
    builder, has_output = answer.builder, False
    stream = EventStream(exchange, answer.status_wait)
    try:
        stream.buffer(writer.feed_bytes(builder.start()))
        async with aclosing(answer.events_after_start()) as batches:
            async for events in batches:
                if builder.ended:
                    if builder.error and not stream.has_begun:
                        raise builder.error
                    await stream.end(writer.feed_bytes(events))
                elif has_output or stream.has_begun or _comes_from_the_model(events):
                    has_output = True
                    await stream.write(writer.feed_bytes(events))
                else:
                    stream.buffer(writer.feed_bytes(events))
    finally:
        stream.stop_heartbeats()


def _comes_from_the_model(events: Sequence[Event]) -> bool:
    kind: str = events[0]["type"]
    return kind.startswith("response.output")
