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

from conversations.gateway.asked import Asked
from conversations.gateway.http import (
    PATIENCE,
    RETRIES,
    EventStream,
    Exchange,
    queue_patience,
)
from conversations.gateway.records import Records
from conversations.gateway.stops import Stops, stopping
from conversations.loop import Task, respond
from conversations.names import AllBut
from conversations.steps import (
    choice_after_calls,
    is_allowed,
    is_limited,
)
from llm import policy
from llm.client import Call
from llm.errors import LLMError
from llm.inline import Files
from llm.models import ModelCall
from llm.provider import Route
from llm.wire.deltas import Delta
from llm.wire.items import Event, Issuer, Item, new_id
from llm.wire.request import Request
from llm.wire.response import ResponseBuilder
from tools.execute import Outcome
from tools.registry import Context

_ANY_NAME = AllBut()
_BEGINNING = 500  # characters


class Builder(ResponseBuilder):
    """Stores the error of a failed response, and does not merge deltas.

    Clients rely on receiving deltas as the provider cut them. Deltas of one read are
    still written together.
    """

    merges = False
    error: LLMError | None = None

    def fail(self, error: LLMError) -> list[Event]:
        self.error = error
        return super().fail(error)


class Answer:
    """One response of a model. `builder.error` is set if it failed."""

    def __init__(self, asked: Asked, records: Records) -> None:
        self._asked = asked
        self._records = records
        self._call: Call | None = None  # the latest
        self._stops = Stops(asked.request.stop) if asked.stops_here else None
        self._id = new_id("resp")
        self.builder = Builder(
            id=self._id,
            model=asked.body["model"],
            echo=asked.dialect.echo(asked.body, asked.request),
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
        route = (self._call and self._call.route) or self._asked.route
        return route.endpoint.issuer(route.model)

    def patience(self) -> float:
        """Seconds to wait for an error before the stream starts with status 200."""
        call = self._call
        if call is None:
            return queue_patience()
        has_failed = call.error is not None or (call.http_status or 0) >= 400
        is_answered = call.http_status is not None and not has_failed
        if has_failed or (call.attempt > 1 and not is_answered):
            return max(PATIENCE + RETRIES, queue_patience())
        return PATIENCE if call.has_slot else queue_patience()

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer, if one was found."""
        return self._stops.found if self._stops else None

    def _task(self) -> Task:
        asked = self._asked
        stream = partial(
            policy.stream,
            asked.way.routes,
            policy=asked.way.policy,
            ignore_invalid=_ignores(asked),
            files=Files(),
            admit=asked.meter.admit if asked.meter else None,
            affinity=_affinity(asked, self._id),
        )
        counted = asked.meter.counting(stream) if asked.meter else stream

        def begun(request: Request, call: Call) -> AsyncGenerator[list[Delta], None]:
            self._call = call
            return counted(request, call)

        own, choice = asked.own_tools, asked.request.tool_choice
        limited = is_limited(choice)
        return Task(
            prepare=self._prepare,
            stream=stopping(begun, self._stops) if self._stops else begun,
            tools={n: own[n] for n in own if is_allowed(n, choice)} if limited else own,
            # Without server tools the client answers all calls, whatever their names.
            client_tools=asked.client_tools if own or limited else _ANY_NAME,
            context=Context(user_id=asked.token.user_id, may_read_chats=False),
            parallel=asked.request.parallel_tool_calls is not False,
            max_steps=settings.TURN_MAX_STEPS,
            max_tool_calls=asked.max_tool_calls,
        )

    def _prepare(self, answered: Sequence[Item]) -> Request:
        request = self._asked.request
        if not answered:
            return request
        choice = request.tool_choice
        if any(item["type"] == "function_call" for item in answered):
            choice = choice_after_calls(choice)
        return replace(request, items=[*request.items, *answered], tool_choice=choice)

    # Record

    has_news = False

    async def called(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        """Do nothing: a stateless response is never resumed."""

    async def answered(self, outcomes: Sequence[Outcome], *, last: bool) -> None:
        """Do nothing, as `save_calls`."""

    async def arrived(self) -> Sequence[Item]:
        return ()

    async def waits(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        raise AssertionError("no tool of ours asks for approval here")

    def asks(self, call: Call) -> None:
        """Do nothing, as `save_calls`."""

    def asked(self, call: Call) -> None:
        builder = self.builder
        for made in policy.calls_made(
            call,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
        ):
            if made.started_at:  # otherwise it was refused here and nothing was sent
                route = made.route or self._asked.route
                cancelled = made.error is None and made.finish is None
                self._records.add_call(partial(_row, made, route, cancelled))


def _row(call: Call, route: Route, cancelled: bool) -> ModelCall:
    return ModelCall.of(
        call,
        route,
        attempt=call.attempt,
        start=call.start,
        usage=call.usage,
        finish=call.finish,
        cancelled=cancelled,
    )


def _affinity(asked: Asked, answer_id: str) -> str:
    """A key that all requests of one conversation share, to select the same API key.

    It is the client's `prompt_cache_key`, or the beginning of the conversation. Before
    the first answer it is random.
    """
    request = asked.request
    if request.prompt_cache_key:
        return f"{asked.token.user_id} {request.prompt_cache_key}"
    said = next((item for item in request.items if _is_said(item)), None)
    if said is None:
        return answer_id
    return f"{asked.token.user_id} {_text(request.items[0])} {_text(said)}"


def _is_said(item: Item) -> bool:
    return item.get("role") == "assistant" or item.get("type") == "function_call"


def _text(item: Item) -> str:
    """The beginning of an item's text, or its `call_id`."""
    if item.get("call_id"):
        return str(item["call_id"])
    parts = item.get("content")
    if isinstance(parts, str):
        return parts[:_BEGINNING]
    texts = [part.get("text") for part in parts or () if isinstance(part, dict)]
    return next((text[:_BEGINNING] for text in texts if isinstance(text, str)), "")


def _ignores(asked: Asked) -> bool:
    ours = asked.route.defaults.get("ignore_invalid_options") is True
    return ours or asked.wishes.ignore_invalid_options


def answer(exchange: Exchange, asked: Asked, records: Records) -> Awaitable[None]:
    """Send the response. Raises LLMError if nothing was sent yet."""
    reply = _stream if asked.request.stream else _whole
    return reply(exchange, asked, Answer(asked, records))


async def _whole(exchange: Exchange, asked: Asked, answer: Answer) -> None:
    async with aclosing(answer.events()) as batches:
        async for _ in batches:
            pass
    error = answer.builder.error
    if error and not asked.dialect.tells_failures:
        raise error
    told = asked.dialect.whole(asked, answer)
    if error and not told["output"]:
        raise error
    await exchange.answer(200, told)


async def _stream(exchange: Exchange, asked: Asked, answer: Answer) -> None:
    writer = asked.dialect.writer(asked, answer, exchange.id)
    builder, told = answer.builder, False
    stream = EventStream(exchange, answer.patience)
    try:
        stream.hold(writer.feed_bytes(builder.start()))
        async with aclosing(answer.events_after_start()) as batches:
            async for events in batches:
                if builder.ended:
                    if builder.error and not stream.begun:
                        raise builder.error
                    await stream.end(writer.feed_bytes(events))
                elif told or stream.begun or _comes_from_the_model(events):
                    told = True
                    await stream.write(writer.feed_bytes(events))
                else:
                    stream.hold(writer.feed_bytes(events))
    finally:
        stream.stop()


def _comes_from_the_model(events: Sequence[Event]) -> bool:
    kind: str = events[0]["type"]
    return kind.startswith("response.output")
