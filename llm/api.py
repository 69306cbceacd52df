"""Language models for other Django code: generate, stream, get JSON, check access.

    result = await api.generate("fast", "Name three rivers.")
    print(result.text, result.metadata["total_tokens"])

A model is a name that `llm.router` can resolve (None is the default model), a
`LanguageModel` or a `Route`. All errors are an LLMError. `docs/library.md` has the
examples. Each asynchronous function has a synchronous variant whose name ends in
`_sync`.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from llm import router
from llm.adaptation.structured import (
    OutputFormat,
    build_output_format,
)
from llm.concurrency.sync_variant import make_sync
from llm.errors import BadResponse, ContentPolicy, LLMError
from llm.generation.answer import Answer
from llm.generation.context_messages import Context, Question
from llm.generation.pending_request import (
    Input,
    Model,
    Options,
    PendingRequest,
    RequestOptions,
)
from llm.generation.result import Metadata, Result
from llm.generation.retry_policy import Policy
from llm.http.client import ProviderCall
from llm.models import ApiKey, LanguageModel, Provider
from llm.sync.key_check import Finding, probe
from llm.wire.deltas import Delta
from llm.wire.items import Event
from llm.wire.response_builder import ResponseBuilder

__all__ = [
    "Chunk",
    "Context",
    "Finding",
    "Metadata",
    "Options",
    "Policy",
    "Question",
    "RequestOptions",
    "Result",
    "Stream",
    "check",
    "check_sync",
    "collect",
    "collect_sync",
    "generate",
    "generate_json",
    "generate_json_sync",
    "generate_sync",
    "stream",
    "text_chunks",
]

_MAX_PAUSES = 10  # of one answer, while the provider's own tools run

T = TypeVar("T")


async def generate(model: Model, input: Input, **options: Unpack[Options]) -> Result:
    """Generate the whole answer. Raises LLMError; BadResponse if the answer does not
    match `text.format`."""
    return await _read_to_end(Stream(model, input, options, buffered=True))


def stream(model: Model, input: Input, **options: Unpack[Options]) -> Stream:
    """Stream the answer as canonical events. Read it inside `aclosing`."""
    return Stream(model, input, options)


@overload
async def generate_json(
    model: Model, input: Input, form: type[T], **options: Unpack[Options]
) -> T: ...
@overload
async def generate_json(
    model: Model, input: Input, form: Any, **options: Unpack[Options]
) -> Any: ...
async def generate_json(
    model: Model, input: Input, form: Any, **options: Unpack[Options]
) -> Any:
    """Generate an answer and return it as a value: an instance of `form` if that is a
    type, otherwise JSON that fits it.

    `form` is a JSON Schema or any type that pydantic can validate. An answer that does
    not fit is corrected once, in a call of its own. Raises BadResponse if the
    correction does not fit either or the answer was cut off, ContentPolicy if the model
    refuses.
    """
    output_format, options["text"] = format_for(form, options.get("text"))
    result = await _read_to_end(
        Stream(model, input, options, output_format=output_format, buffered=True)
    )
    require_answer(result)
    return result.parsed


def format_for(
    form: Any, text: Mapping[str, Any] | None
) -> tuple[OutputFormat, dict[str, Any]]:
    """The format of `form`, and the option `text` with it."""
    output_format = build_output_format(form)
    schema = {
        "type": "json_schema",
        "name": "answer",
        "schema": dict(output_format.schema),
    }
    return output_format, {**(text or {}), "format": schema}


async def collect(stream: AnyStream) -> Result:
    """Read `stream` to its end and return its result. Raises LLMError."""
    return await _read_to_end(stream)


async def check(what: Provider | ApiKey | LanguageModel | str) -> list[Finding]:
    """Check access by a tiny real request with each key concerned.

    A string is the name of a model. The `problem` of a finding distinguishes a bad key,
    an unknown model, an exhausted quota, an outage and an unreachable host. Raises
    LLMError if there is no model to ask or no key to ask with.
    """
    return await sync_to_async(_check)(what)


# The stream


class AnyStream(Protocol):
    """A stream of one call, or of a run of `tools.api`."""

    @property
    def error(self) -> LLMError | None: ...
    @property
    def result(self) -> Result: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...
    async def aclose(self) -> None: ...


class Stream(AsyncIterator[Event]):
    """One answer: an iterator of canonical events, and afterwards its `result`.

    The request is sent when the first event is read. An invalid request raises then; a
    later error ends the stream with the event `response.failed` and is in `error`.
    """

    def __init__(
        self,
        model: Model,
        input: Input,
        options: Options,
        *,
        output_format: OutputFormat | None = None,
        buffered: bool = False,
    ) -> None:
        self.error: LLMError | None = None
        self._pending = PendingRequest.of(model, input, options)
        self._output_format = output_format
        self._buffered = buffered
        self._result: Result | None = None
        self._events = self._generate_events()

    @property
    def result(self) -> Result:
        """The result, available after the last event; RuntimeError before that."""
        if self._result is None:
            raise RuntimeError("The stream has not ended; read it to the end first.")
        return self._result

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Close the connection if the stream is not over."""
        await self._events.aclose()

    async def _generate_events(self) -> AsyncGenerator[Event, None]:
        answer = Answer(
            self._pending,
            output_format=self._output_format,
            buffered=self._buffered,
        )
        for event in await answer.open():
            yield event
        builder, request = answer.builder, answer.request
        call, pauses = ProviderCall(), _MAX_PAUSES
        final_events = list[Event]()
        try:
            while True:
                builder.begin_call()
                batches = answer.call_model(request, call)
                async with aclosing(_feed(builder, batches)) as events:
                    async for event in events:
                        yield event
                if not _is_paused(builder) or not pauses:
                    break
                pauses -= 1
                for event in builder.end_call():
                    yield event
                answer.record_call(call)
                items = [*answer.request.items, *answer.items()]
                request = replace(request, items=items)
                call = ProviderCall(continues=True)
            final_events = builder.complete(
                "max_steps" if _is_paused(builder) else None
            )
        except LLMError as exc:
            final_events = builder.fail(exc)
        finally:
            answer.record_call(call)
            await answer.end()
        self.error, self._result = builder.error, answer.result()
        for event in final_events:
            yield event


async def _feed(
    builder: ResponseBuilder, batches: AsyncGenerator[list[Delta], None]
) -> AsyncGenerator[Event, None]:
    """The events of one provider call."""
    async with aclosing(batches):
        async for deltas in batches:
            for event in builder.feed(deltas):
                yield event


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text. Only the last chunk, which has no text, has the other fields."""

    text: str
    is_last: bool = False
    status: str = ""  # "completed" or "incomplete"
    usage: Mapping[str, Any] | None = None
    request_id: str | None = None  # the provider's


async def text_chunks(stream: AnyStream) -> AsyncGenerator[Chunk, None]:
    """Iterate over the visible text of `stream`, refusals included. Raises LLMError
    after the text that was received."""
    async with aclosing(stream):
        async for event in stream:
            if event["type"] in _TEXT_EVENTS:
                yield Chunk(event["delta"])
    if stream.error:
        raise stream.error
    result = stream.result
    yield Chunk(
        "",
        is_last=True,
        status=result.response["status"],
        usage=result.response["usage"],
        request_id=result.metadata["provider_request_id"],
    )


_TEXT_EVENTS = frozenset({"response.output_text.delta", "response.refusal.delta"})


async def _read_to_end(stream: AnyStream) -> Result:
    async with aclosing(stream):
        async for _ in stream:
            pass
    if stream.error:
        raise stream.error
    return stream.result


# The result


def _is_paused(builder: ResponseBuilder) -> bool:
    """True if the provider paused its answer and expects another request."""
    return builder.finish is not None and builder.finish.reason == "pause"


def require_answer(result: Result) -> None:
    """Raises ContentPolicy or BadResponse unless the result is a complete answer."""
    if result.refusal:
        raise ContentPolicy("The model refused to answer.", detail=result.refusal)
    if result.response["status"] != "completed":
        reason = result.response["incomplete_details"]["reason"]
        raise BadResponse(f"The answer was cut off ({reason}); its JSON is incomplete.")
    if result.calls:
        raise BadResponse("The model called a tool instead of answering.")


def _check(what: Provider | ApiKey | LanguageModel | str) -> list[Finding]:
    if isinstance(what, str):
        route = router.resolve(what)
        assert route.model_id is not None, "the router reads rows"
        models = LanguageModel.objects.select_related("provider")
        what = models.get(pk=route.model_id)
    return probe(what)


# Synchronous variants

generate_sync = make_sync(generate)
generate_json_sync = make_sync(generate_json)
collect_sync = make_sync(collect)
check_sync = make_sync(check)
