"""Language models for other Django code: generate, stream, get JSON, check access.

    result = await api.generate("fast", "Name three rivers.")
    print(result.text, result.metadata["total_tokens"])

A model is a name that `llm.router` can resolve (None is the default model), a
`LanguageModel` or a `Route`. All errors are an LLMError. `docs/library.md` has the
examples. Each asynchronous function has a synchronous variant whose name ends in
`_sync`.
"""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from asgiref.sync import AsyncToSync, sync_to_async

from llm import policy, router
from llm.errors import BadResponse, ContentPolicy, LLMError
from llm.generation.contexts import Context, Question
from llm.generation.pending_request import (
    Input,
    Model,
    Options,
    PendingRequest,
    RequestOptions,
    echo_of,
)
from llm.generation.result import Metadata, Result, cost_of, metadata_of
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.provider import Route
from llm.structured import (
    OutputFormat,
    SchemaMismatch,
    build_output_format,
    parse_output_format,
)
from llm.sync.probe import Finding, probe
from llm.wire.items import Event, Item, new_id, output_text, text_of
from llm.wire.response import ResponseBuilder

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
P = ParamSpec("P")


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
    output_format = build_output_format(form)
    schema = {
        "type": "json_schema",
        "name": "answer",
        "schema": dict(output_format.schema),
    }
    options["text"] = {**(options.get("text") or {}), "format": schema}
    result = await _read_to_end(
        Stream(model, input, options, output_format=output_format, buffered=True)
    )
    _require_answer(result)
    return result.parsed


async def collect(stream: Stream) -> Result:
    """Read `stream` to its end and return its result. Raises LLMError."""
    return await _read_to_end(stream)


async def check(what: Provider | ApiKey | LanguageModel | str) -> list[Finding]:
    """Check access by a tiny real request with each key concerned.

    A string is the name of a model. The `problem` of a finding distinguishes a bad key,
    an unknown model, an exhausted quota and an unreachable host. Raises LLMError if
    there is no model to ask or no key to ask with.
    """
    return await sync_to_async(_check)(what)


# The stream


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
            raise RuntimeError("The stream is not over.")
        return self._result

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Close the connection if the stream is not over."""
        await self._events.aclose()

    async def _generate_events(self) -> AsyncGenerator[Event, None]:
        pending = self._pending
        routes = await sync_to_async(pending.routes)()
        request = first = await pending.request(routes[0])
        output_format = self._output_format or parse_output_format(request)
        response_id = new_id("resp")
        builder = ResponseBuilder(
            id=response_id, model=routes[0].name, echo=echo_of(request)
        )
        for event in builder.start():
            yield event
        call, calls, final_events = ProviderCall(), list[ProviderCall](), list[Event]()
        files, pauses = FileCache(), _MAX_PAUSES
        try:
            while True:
                builder.begin_call()
                batches = policy.stream(
                    routes,
                    request,
                    call,
                    policy=pending.policy,
                    output_format=output_format,
                    buffered=self._buffered,
                    ignore_invalid=pending.ignore_invalid,
                    files=files,
                    affinity=request.prompt_cache_key or response_id,
                )
                async with aclosing(batches):
                    async for deltas in batches:
                        for event in builder.feed(deltas):
                            yield event
                if not _is_paused(builder) or not pauses:
                    break
                pauses -= 1
                for event in builder.end_call():
                    yield event
                calls += _list_started_calls(call, builder)
                items = _with_proofs(builder, call.route or routes[0])
                request = replace(request, items=[*first.items, *items])
                call = ProviderCall(continues=True)
            final_events = builder.complete(
                "max_steps" if _is_paused(builder) else None
            )
        except LLMError as exc:
            self.error = exc
            final_events = builder.fail(exc)
        finally:
            calls += _list_started_calls(call, builder)
            costs = await sync_to_async(_settle)(
                calls, record=pending.record, cancelled=not builder.ended
            )
        self._result = _result(builder, calls, costs, routes[0], output_format)
        for event in final_events:
            yield event


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text. Only the last chunk, which has no text, has the other fields."""

    text: str
    is_last: bool = False
    status: str = ""  # "completed" or "incomplete"
    usage: Mapping[str, Any] | None = None
    request_id: str | None = None  # the provider's


async def text_chunks(stream: Stream) -> AsyncGenerator[Chunk, None]:
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


async def _read_to_end(stream: Stream) -> Result:
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


def _list_started_calls(
    call: ProviderCall, builder: ResponseBuilder
) -> list[ProviderCall]:
    calls = policy.calls_made(
        call,
        start=builder.start_delta,
        usage=builder.call_usage,
        finish=builder.finish,
    )
    # Excludes requests that this program refused itself.
    return [each for each in calls if each.started_at]


def _settle(
    calls: Sequence[ProviderCall], *, record: bool, cancelled: bool
) -> list[Decimal | None]:
    """Calculate the cost of each call. Writes ModelCall rows if `record` is set."""
    costs = []
    for call in calls:
        assert call.route is not None
        if not record:
            costs.append(cost_of(call, call.route))
            continue
        row = ModelCall.objects.record(
            call,
            call.route,
            attempt=call.attempt,
            start=call.start,
            usage=call.usage,
            finish=call.finish,
            cancelled=cancelled and call is calls[-1],
        )
        costs.append(row.cost)
    return costs


def _result(
    builder: ResponseBuilder,
    calls: Sequence[ProviderCall],
    costs: Sequence[Decimal | None],
    route: Route,
    output_format: OutputFormat | None,
) -> Result:
    response = builder.response()
    answered_by = (calls[-1].route if calls else None) or route
    items = _with_proofs(builder, answered_by)
    result = Result(
        text=output_text(items),
        items=items,
        metadata=metadata_of(calls, response, route=route, costs=costs),
        response=response,
    )
    return replace(result, parsed=_parse(result, output_format))


def _with_proofs(builder: ResponseBuilder, route: Route) -> list[Item]:
    issuer = route.endpoint.issuer(route.model)
    items = []
    for item in builder.output:
        if (raw := builder.proofs.get(item["id"])) is not None:
            item = {**item, "provider_data": {"issuer": issuer, "raw": raw}}
        items.append(item)
    return items


def _parse(result: Result, output_format: OutputFormat | None) -> Any:
    """The answer in the requested format; None if there is no such answer."""
    is_whole = result.response["status"] == "completed" and not result.refusal
    if output_format is None or not is_whole:
        return None
    items = [item for item in result.items if item.get("phase") != "commentary"]
    try:
        return output_format.parse("".join(map(text_of, items)))
    except SchemaMismatch:
        return None


def _require_answer(result: Result) -> None:
    """Raises ContentPolicy or BadResponse unless the result is a complete answer."""
    if result.refusal:
        raise ContentPolicy("The model refuses to answer this.", detail=result.refusal)
    if result.response["status"] != "completed":
        reason = result.response["incomplete_details"]["reason"]
        raise BadResponse(f"The answer was cut off ({reason}); it is no whole JSON.")
    if result.calls:
        raise BadResponse("The model called a tool where an answer was wanted.")


def _check(what: Provider | ApiKey | LanguageModel | str) -> list[Finding]:
    if isinstance(what, str):
        route = router.resolve(what)
        assert route.model_id is not None, "the router reads rows"
        models = LanguageModel.objects.select_related("provider")
        what = models.get(pk=route.model_id)
    return probe(what)


# Synchronous variants


def _make_sync(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Wrap `function` for code that cannot await. Do not call it in an event loop."""

    async def run_alone(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        finally:
            await client.aclose()  # this event loop ends here and nothing else uses it

    @functools.wraps(function)
    def sync_function(*args: P.args, **kwargs: P.kwargs) -> T:
        # In a new event loop, because closing the connections of a shared one would end
        # the requests of other code.
        return AsyncToSync(run_alone, force_new_loop=True)(*args, **kwargs)

    sync_function.__name__ = f"{function.__name__}_sync"
    sync_function.__doc__ = f"`{function.__name__}` for code that cannot await."
    return sync_function


generate_sync = _make_sync(generate)
generate_json_sync = _make_sync(generate_json)
collect_sync = _make_sync(collect)
check_sync = _make_sync(check)
