"""One tiny request of a probe and what came back: bounded in time, tokens and size."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llm.adaptation import request_repairs
from llm.errors import LLMError, ProviderTimeout
from llm.generation.request_builder import RequestBuilder
from llm.http import client
from llm.http.client import ProviderCall
from llm.http.connection_problems import NOT_FINISHED, SILENT
from llm.provider import Route
from llm.wire.deltas import Delta, TextDelta
from llm.wire.items import Item, new_id, output_text
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder

SILENCE = 30.0  # seconds without output after which a request is given up
ANSWER_TIME = 120.0  # seconds of a whole answer: slow hosts write ten tokens a second
MAX_OUTPUT_TOKENS = 1024  # models that reason need some hundred before they answer
MAX_DELTAS = 20_000  # of a host that ignores the limit of tokens
#: OpenAI's error where a model's thoughts used up the limit.
_CUT = re.compile(r"max_tokens or model output limit was reached", re.IGNORECASE)


@dataclass(slots=True)
class Reply:
    """An answer, or the error instead of one; `builder` has what arrived until then."""

    route: Route
    builder: ResponseBuilder
    call: ProviderCall = field(default_factory=lambda: ProviderCall(purpose="probe"))
    text_pieces: int = 0
    is_stopped: bool = False  # we have ended it
    has_timed_out: bool = False  # it took longer than the probe waits
    request: Request | None = None  # what was sent

    @property
    def error(self) -> LLMError | None:
        return self.call.error

    @property
    def text(self) -> str:
        return output_text(self.builder.output).strip()

    @property
    def calls(self) -> list[Item]:
        """The tool calls."""
        return [i for i in self.builder.output if i["type"] == "function_call"]

    @property
    def has_reasoning(self) -> bool:
        return any(item["type"] == "reasoning" for item in self.builder.output)

    @property
    def is_cut(self) -> bool:
        """Whether the limit of tokens ended the answer."""
        finish = self.builder.finish
        if self.error is not None:
            return _CUT.search(self.error.detail) is not None
        return finish is not None and finish.reason == "length"

    @property
    def repaired_route(self) -> Route | None:
        if self.error is None or self.request is None:
            return None
        return request_repairs.repaired_route(self.route, self.request, self.error)

    @property
    def items(self) -> list[Item]:
        """The output with its proofs, as a conversation sends it back."""
        issuer = self.route.endpoint.issuer(self.route.model)
        return [
            {**item, "provider_data": {"issuer": issuer, "raw": proof}}
            if (proof := self.builder.proofs.get(item["id"])) is not None
            else item
            for item in self.builder.output
        ]


def begin_reply(route: Route, *, purpose: Literal["probe", "test"] = "probe") -> Reply:
    """An empty reply, which `ask` fills while the host answers."""
    builder = ResponseBuilder(id=new_id("resp"), model=route.name)
    return Reply(route, builder, ProviderCall(purpose=purpose))


async def ask(
    route: Route,
    items: Sequence[Item],
    *,
    reply: Reply | None = None,
    stream: bool = True,
    time_limit: float | None = None,
    silence: float | None = None,
    stop_after: int | None = None,
    **options: Any,
) -> Reply:
    """Send one request without retries or repairs. Raises nothing: see `Reply.error`.

    `time_limit`: seconds of the whole answer; `silence`: seconds without output,
    in a stream.
    `stop_after`: hang up after so many pieces of text.
    """
    reply = reply or begin_reply(route)
    wanted = options.pop("max_output_tokens", MAX_OUTPUT_TOKENS)
    options["max_output_tokens"] = min(wanted, route.max_output_tokens or wanted)
    tools = options.pop("tools", ())
    request = Request(model=route.model, items=items, tools=tools, stream=stream)
    request = RequestBuilder(route).build(request, options)
    reply.request = request = replace(request, stream=stream)
    reply.builder.begin_call()
    time_limit = time_limit or ANSWER_TIME
    silence = min(silence or SILENCE, time_limit) if stream else time_limit
    answer = client.stream(route.endpoint, request, reply.call)
    try:
        async with asyncio.timeout(time_limit):
            await _read(answer, reply, stop_after, silence)
    except TimeoutError:
        reply.has_timed_out = True
        seconds = reply.call.latency or 0.0
        is_silent = silence < time_limit and seconds < time_limit
        sentence = SILENT if is_silent else NOT_FINISHED
        limit = silence if is_silent else time_limit
        reply.call.error = ProviderTimeout(detail=sentence.format(seconds=limit))
    except LLMError as exc:
        reply.call.error = exc
    except asyncio.CancelledError:
        reply.is_stopped = True
        raise
    finally:
        is_whole = reply.error is None and not reply.is_stopped
        reply.builder.end_call(whole=is_whole)
    return reply


async def _read(
    answer: AsyncGenerator[list[Delta], None],
    reply: Reply,
    stop_after: int | None,
    silence: float,
) -> None:
    """Raises TimeoutError after `silence` seconds without a delta."""
    count = 0
    loop = asyncio.get_running_loop()
    async with aclosing(answer), asyncio.timeout(silence) as timer:
        async for deltas in answer:
            timer.reschedule(loop.time() + silence)
            count += len(deltas)
            reply.builder.feed(deltas)
            texts = [each for each in deltas if isinstance(each, TextDelta)]
            reply.text_pieces += sum(bool(each.text) for each in texts)
            is_enough = stop_after is not None and reply.text_pieces >= stop_after
            if (is_enough and reply.builder.finish is None) or count > MAX_DELTAS:
                reply.is_stopped = True
                return
