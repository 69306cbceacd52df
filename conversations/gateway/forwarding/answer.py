"""An answer of a host that speaks the client's API: its bytes go to the client.

Of the decoded deltas only the usage and the end count here. If a fallback of another
API answers, or the host in another form than requested, the answer is written as
`stateless` writes all others.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from conversations.gateway import stateless
from conversations.gateway.gateway_request import GatewayRequest, speaks_dialect
from conversations.gateway.http import EventStream, Exchange
from conversations.gateway.stateless import StatelessResponse, StatelessResponseBuilder
from conversations.gateway.write_behind import WriteBehindQueue
from llm.adaptation.adapt import merge_usage
from llm.errors import BadRequest, LLMError
from llm.http.client import ProviderCall
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    FrameDelta,
    StartDelta,
    UsageDelta,
)
from llm.wire.facades import errors
from llm.wire.facades.responses_request import echo_of
from llm.wire.facades.sse_frames import DONE, data_frame, event_frame
from llm.wire.request import Request
from tools.loop.task import Task

_CONTENTLESS = (FrameDelta, StartDelta, UsageDelta, FinishDelta)
_NUMBER = re.compile(rb'"sequence_number":\s*(\d+)')


class ForwardedResponse(StatelessResponse):
    """A response whose provider call is made before it is known in what form the answer
    comes: iterate `frames` first."""

    def __init__(
        self, gateway_request: GatewayRequest, write_queue: WriteBehindQueue
    ) -> None:
        super().__init__(gateway_request, write_queue)
        self.has_content = False  # text or a call has arrived
        self.last_data = b""
        self.start = StartDelta()
        self._opened: AsyncGenerator[list[Delta], None] | None = None
        self._first: list[Delta] = []
        self._usage: UsageDelta | None = None
        self._finish: FinishDelta | None = None

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The answer's bytes, a piece for each read. Raises LLMError.

        Without a piece the answer has another form: `events_after_start` has it.
        """
        call = self._call = ProviderCall()
        batches = self._opened = (
            super()._task().stream(self._gateway_request.request, call)
        )
        is_raw = False
        try:
            async for deltas in batches:
                if not is_raw and not any(type(each) is FrameDelta for each in deltas):
                    self._first = deltas
                    return
                is_raw = True
                if data := self._take(deltas):
                    self.last_data = data
                    yield data
                del deltas
        finally:
            if not self._first:
                await batches.aclose()
                self.save_call(
                    call,
                    start=self.start,
                    usage=self._usage or UsageDelta(),
                    finish=self._finish,
                )

    def _take(self, deltas: Sequence[Delta]) -> bytes:
        data = b""
        for delta in deltas:
            match delta:
                case FrameDelta():
                    data = data + delta.data if data else delta.data
                    if delta.has_content:
                        self.has_content = True
                case UsageDelta():
                    self._usage = merge_usage(self._usage, delta)
                case FinishDelta():
                    self._finish = delta
                case StartDelta():
                    self.start = delta
                case _:
                    self.has_content = True
        return data

    # Another form of answer, which the loop reads

    def convert_request(self) -> GatewayRequest:
        """The request in canonical form, as the answering model got it."""
        gateway_request, call = self._gateway_request, self._call
        route = (call and call.route) or gateway_request.route
        forwarded = gateway_request.request.forwarded
        assert forwarded is not None, "otherwise it is another response"
        try:
            request = forwarded.convert(route)
        except BadRequest:  # of content that only the host understands
            request = gateway_request.request
        self._gateway_request = replace(
            gateway_request,
            request=request,
            host_speaks_dialect=speaks_dialect(gateway_request.dialect, route),
        )
        self.make_builder()
        return self._gateway_request

    def make_builder(self) -> None:
        """For another form of answer, and for an error inside a stream."""
        gateway_request = self._gateway_request
        echo = None
        if gateway_request.dialect.is_open_responses:
            # Nothing has checked a forwarded body, and the host has taken it.
            with suppress(LookupError, TypeError, ValueError, AttributeError):
                echo = echo_of(gateway_request.body, gateway_request.request)
        self.builder = StatelessResponseBuilder(
            id=self._id, model=gateway_request.body["model"], echo=echo
        )

    def _task(self) -> Task:
        """What the loop reads: the rest of the answer that `frames` has begun."""

        async def rest(
            request: Request, call: ProviderCall
        ) -> AsyncGenerator[list[Delta], None]:
            assert self._opened is not None, "`frames` has opened it"
            async with aclosing(self._opened) as batches:
                yield self._first
                async for deltas in batches:
                    yield deltas

        return replace(super()._task(), stream=rest)

    def begin_model_call(self, call: ProviderCall) -> None:
        """Do nothing: `frames` has made the call."""

    def record_model_call(self, call: ProviderCall) -> None:
        assert self._call is not None, "`frames` has made the call"
        super().record_model_call(self._call)


async def send_whole(
    exchange: Exchange, gateway_request: GatewayRequest, answer: ForwardedResponse
) -> None:
    """Send the host's body. Raises LLMError."""
    pieces: list[bytes] = []
    async with aclosing(answer.frames()) as frames:
        async for data in frames:
            pieces.append(data)
    if pieces:
        exchange.response_headers |= answer.headers()
        await exchange.answer_bytes(200, b"".join(pieces))
    else:
        await stateless.send_whole(exchange, answer.convert_request(), answer)


async def send_stream(
    exchange: Exchange, gateway_request: GatewayRequest, answer: ForwardedResponse
) -> None:
    """Send the host's frames. Raises LLMError if nothing was sent yet."""
    encode: Any = b"".join
    stream = EventStream(
        exchange, lambda events: encode(events), answer.status_wait, answer.headers
    )
    try:
        try:
            await _write_frames(stream, answer)
        except LLMError as exc:
            if not exchange.started:
                raise
            exchange.has_failed = True
            await stream.end(
                _as_events(_error_frames(exc, gateway_request, answer, exchange.id))
            )
            return
        if answer.last_data:
            await stream.end(_as_events(_end_marker(gateway_request, answer)))
            return
        request = answer.convert_request()
        writer = request.dialect.writer(request, answer, exchange.id)
        encode = writer.feed_bytes
        await stateless.send_stream(exchange, request, answer, stream)
    finally:
        stream.stop_heartbeats()


async def _write_frames(stream: EventStream, answer: ForwardedResponse) -> None:
    """Raises LLMError."""
    async with aclosing(answer.frames()) as frames:
        async for data in frames:
            if answer.has_content or stream.exchange.started:
                await stream.write(_as_events(data))
            else:
                stream.buffer(_as_events(data))


def _as_events(data: bytes) -> Any:
    """For a stream whose `encode` joins bytes."""
    return (data,)


def _end_marker(gateway_request: GatewayRequest, answer: ForwardedResponse) -> bytes:
    """What Open Responses ends a stream with, and OpenAI does not."""
    is_open = gateway_request.dialect.is_open_responses
    return DONE if is_open and not answer.last_data.endswith(DONE) else b""


def _error_frames(
    error: LLMError,
    gateway_request: GatewayRequest,
    answer: ForwardedResponse,
    request_id: str,
) -> bytes:
    """The end of a stream that has failed, in the client's API."""
    dialect = gateway_request.dialect
    if dialect.errors == "anthropic":
        return event_frame(errors.body_of(error, "anthropic", request_id))
    if not dialect.is_open_responses:
        return data_frame(errors.body_of(error, "openai")) + DONE
    number = max((int(n) for n in _NUMBER.findall(answer.last_data)), default=-1)
    frames: list[bytes] = []
    answer.make_builder()
    for event in answer.builder.fail(error):
        number += 1
        event = {**event, "sequence_number": number}
        if "response" in event and answer.start.response_id:
            named = {"id": answer.start.response_id, "model": answer.start.model}
            event["response"] = {**event["response"], **named}
        frames.append(event_frame(event))
    return b"".join(frames) + DONE
