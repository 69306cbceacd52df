"""Language models for other Django code: ask, stream, get JSON, check an access.

    result = await api.generate("fast", "Name three rivers.")
    print(result.text, result.metadata["total_tokens"])

A model is a name as `llm.router` knows it (None is the default one), a `LanguageModel`
or a `Route`. Whatever goes wrong is an LLMError. `docs/library.md` has the examples.
Each function that is awaited has a twin for plain code, whose name ends in `_sync`.
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

from llm import client, policy, router
from llm.asking import Asked, Input, Model, Options, RequestOptions, echo_of
from llm.client import Call
from llm.contexts import Context, Question
from llm.errors import BadResponse, ContentPolicy, LLMError
from llm.inline import Files
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.probe import Finding, probe
from llm.provider import Route
from llm.result import Metadata, Result, cost_of, metadata_of
from llm.retry import Policy
from llm.structured import Form, Misfit, form_for, form_of
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

_MAX_PAUSES = 10  # of one answer, while its provider's own tools run

T = TypeVar("T")
P = ParamSpec("P")


async def generate(model: Model, input: Input, **options: Unpack[Options]) -> Result:
    """The whole answer. Raises LLMError, BadResponse for one that is not what
    `text.format` asks for."""
    return await _whole(Stream(model, input, options, held=True))


def stream(model: Model, input: Input, **options: Unpack[Options]) -> Stream:
    """The answer as it comes, in canonical events. Read it inside `aclosing`."""
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
    """The answer as a value: of `form`, where it is a type, or JSON that fits it.

    `form` is a JSON Schema or whatever pydantic can validate. An answer that does not
    fit is corrected once, in a call of its own. Raises BadResponse where that does not
    fit either or was cut off, ContentPolicy where the model refuses.
    """
    wanted = form_for(form)
    schema = {"type": "json_schema", "name": "answer", "schema": dict(wanted.schema)}
    options["text"] = {**(options.get("text") or {}), "format": schema}
    result = await _whole(Stream(model, input, options, form=wanted, held=True))
    _refuse_unanswered(result)
    return result.parsed


async def collect(stream: Stream) -> Result:
    """All that `stream` has left to say, and what it came to. Raises LLMError."""
    return await _whole(stream)


async def check(what: Provider | ApiKey | LanguageModel | str) -> list[Finding]:
    """Whether an access works, by a tiny real request with each key concerned.

    A text is a model's name. A finding's `problem` tells a bad key, an unknown model,
    used up quota and an unreachable host apart. Raises LLMError where there is nothing
    to ask for or with.
    """
    return await sync_to_async(_check)(what)


# The stream


class Stream(AsyncIterator[Event]):
    """One answer: an iterator of canonical events, and afterwards its `result`.

    Nothing is asked before the first event is. What is wrong with the question raises
    then; what goes wrong later is told by the last event, `response.failed`, and stands
    in `error`.
    """

    def __init__(
        self,
        model: Model,
        input: Input,
        options: Options,
        *,
        form: Form | None = None,
        held: bool = False,
    ) -> None:
        self.error: LLMError | None = None
        self._asked = Asked.of(model, input, options)
        self._form = form
        self._held = held
        self._result: Result | None = None
        self._events = self._told()

    @property
    def result(self) -> Result:
        """Known once the last event has come; before it, a RuntimeError."""
        if self._result is None:
            raise RuntimeError("The stream is not over.")
        return self._result

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def aclose(self) -> None:
        """Hang up, if it is not over."""
        await self._events.aclose()

    async def _told(self) -> AsyncGenerator[Event, None]:
        asked = self._asked
        routes = await sync_to_async(asked.routes)()
        request = first = await asked.request(routes[0])
        form = self._form or form_of(request)
        response_id = new_id("resp")
        builder = ResponseBuilder(
            id=response_id, model=routes[0].name, echo=echo_of(request)
        )
        for event in builder.start():
            yield event
        call, calls, ending = Call(), list[Call](), list[Event]()
        files, pauses = Files(), _MAX_PAUSES
        try:
            while True:
                builder.begin_call()
                batches = policy.stream(
                    routes,
                    request,
                    call,
                    policy=asked.policy,
                    form=form,
                    held=self._held,
                    ignore_invalid=asked.ignore_invalid,
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
                calls += _calls(call, builder)
                said = _with_proofs(builder, call.route or routes[0])
                request = replace(request, items=[*first.items, *said])
                call = Call(continues=True)
            ending = builder.complete("max_steps" if _is_paused(builder) else None)
        except LLMError as exc:
            self.error = exc
            ending = builder.fail(exc)
        finally:
            calls += _calls(call, builder)
            costs = await sync_to_async(_settle)(
                calls, record=asked.record, cancelled=not builder.ended
            )
        self._result = _result(builder, calls, costs, routes[0], form)
        for event in ending:
            yield event


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of text. Only the last one, which has none, tells of the whole."""

    text: str
    is_last: bool = False
    status: str = ""  # "completed" or "incomplete"
    usage: Mapping[str, Any] | None = None
    request_id: str | None = None  # the provider's


async def text_chunks(stream: Stream) -> AsyncGenerator[Chunk, None]:
    """The visible text of `stream`, refusals included. Raises LLMError where it fails,
    after the text that came."""
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


async def _whole(stream: Stream) -> Result:
    async with aclosing(stream):
        async for _ in stream:
            pass
    if stream.error:
        raise stream.error
    return stream.result


# What it came to


def _is_paused(builder: ResponseBuilder) -> bool:
    """True where its provider wants to be asked again, as things stand."""
    return builder.finish is not None and builder.finish.reason == "pause"


def _calls(call: Call, builder: ResponseBuilder) -> list[Call]:
    made = policy.calls_made(
        call,
        start=builder.start_delta,
        usage=builder.call_usage,
        finish=builder.finish,
    )
    return [each for each in made if each.started_at]  # not one refused by ourselves


def _settle(
    calls: Sequence[Call], *, record: bool, cancelled: bool
) -> list[Decimal | None]:
    """What each call cost. Writes rows, if asked to."""
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
    calls: Sequence[Call],
    costs: Sequence[Decimal | None],
    route: Route,
    form: Form | None,
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
    return replace(result, parsed=_parsed(result, form))


def _with_proofs(builder: ResponseBuilder, route: Route) -> list[Item]:
    issuer = route.endpoint.issuer(route.model)
    items = []
    for item in builder.output:
        if (raw := builder.proofs.get(item["id"])) is not None:
            item = {**item, "provider_data": {"issuer": issuer, "raw": raw}}
        items.append(item)
    return items


def _parsed(result: Result, form: Form | None) -> Any:
    """None where there is no answer in the form asked for."""
    is_whole = result.response["status"] == "completed" and not result.refusal
    if form is None or not is_whole:
        return None
    said = [item for item in result.items if item.get("phase") != "commentary"]
    try:
        return form.read("".join(map(text_of, said)))
    except Misfit:
        return None


def _refuse_unanswered(result: Result) -> None:
    """Raises where a whole answer was wanted and something else came."""
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


# For plain code


def _twin(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """`function` for code that cannot await; not to be called in an event loop."""

    async def alone(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        finally:
            await client.aclose()  # the loop ends here, and is nobody else's

    @functools.wraps(function)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        # A loop of its own, as shutting another one's connections hangs up on others.
        return AsyncToSync(alone, force_new_loop=True)(*args, **kwargs)

    twin.__name__ = f"{function.__name__}_sync"
    twin.__doc__ = f"`{function.__name__}` for code that cannot await."
    return twin


generate_sync = _twin(generate)
generate_json_sync = _twin(generate_json)
collect_sync = _twin(collect)
check_sync = _twin(check)
