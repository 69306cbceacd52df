"""The arguments of `llm.api` before the model is looked up.

In: a model, an input and options, as `llm.api` takes them. Out: the routes to try, and
the `Request` for the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from llm import policy, router
from llm.errors import BadRequest
from llm.generation.contexts import Context, Question, Source, as_items, load_contexts
from llm.generation.retry_policy import Policy
from llm.models import LanguageModel
from llm.provider import Route
from llm.wire.items import Item
from llm.wire.request import Request

Model = str | LanguageModel | Route | None
Input = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]


class RequestOptions(TypedDict, total=False):
    """Options of the request; names and types are those of `POST /responses`."""

    instructions: str
    tools: Sequence[dict[str, Any]]
    tool_choice: str | dict[str, Any] | None
    parallel_tool_calls: bool | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    reasoning: Mapping[str, Any] | None
    text: Mapping[str, Any] | None
    stop: Sequence[str]
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    top_logprobs: int | None
    metadata: Mapping[str, str] | None
    service_tier: str | None
    prompt_cache_key: str | None
    safety_identifier: str | None
    extra: Mapping[str, Any]


class Options(RequestOptions, total=False):
    """Options of the request and of the call."""

    contexts: Iterable[Context | Source]  # placed before the input
    user: Any  # only models that this user may use
    policy: Policy | None  # None uses the model's own
    ignore_invalid_options: bool  # leave out what the model does not take
    record: bool  # write a ModelCall row for each call; default True


_REQUEST_OPTIONS = RequestOptions.__optional_keys__
_OTHER_OPTIONS = Options.__optional_keys__ - _REQUEST_OPTIONS
#: Fields of the request that the response repeats.
_ECHOED_FIELDS = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "max_output_tokens",
    "tool_choice",
    "parallel_tool_calls",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request whose model is not looked up yet."""

    model: Model
    items: Sequence[Item]
    options: Mapping[str, Any]  # of the request
    contexts: Sequence[Context | Source]
    user: Any
    policy: Policy | None
    ignore_invalid: bool
    record: bool

    @classmethod
    def of(cls, model: Model, input: Input, options: Options) -> PendingRequest:
        if unknown := options.keys() - _REQUEST_OPTIONS - _OTHER_OPTIONS:
            names = ", ".join(sorted(Options.__optional_keys__))
            raise TypeError(f"There is no option {min(unknown)!r}; there are {names}.")
        return cls(
            model=model,
            items=as_items(input),
            options={k: v for k, v in options.items() if k in _REQUEST_OPTIONS},
            contexts=tuple(options.get("contexts", ())),
            user=options.get("user"),
            policy=options.get("policy"),
            ignore_invalid=options.get("ignore_invalid_options", False),
            record=options.get("record", True),
        )

    def routes(self) -> list[Route]:
        """Reads rows. Raises ModelNotAvailable, InvalidKey."""
        match self.model:
            case Route():
                route = self.model
            case LanguageModel():
                route = router.route_of(self.model)
            case name:
                route = router.resolve(name, user=self.user)
        return policy.routes_of(route, user=self.user)

    async def request(self, route: Route) -> Request:
        """Raises any exception of a context function."""
        question = Question(route.name, self.items)
        before = await load_contexts(self.contexts, question)
        if not before and not self.items:
            raise BadRequest("There is nothing to answer.", param="input")
        defaults = {k: v for k, v in route.defaults.items() if k in _REQUEST_OPTIONS}
        limit = {"max_output_tokens": route.max_output_tokens}
        chosen = {**limit, **defaults, **self.options}
        request = Request(
            model=route.model,
            items=[*before, *self.items],
            issuer=route.endpoint.issuer(route.model),
        )
        known = {name: value for name, value in chosen.items() if value is not None}
        return replace(request, **known)


def echo_of(request: Request) -> dict[str, Any]:
    echo = {name: getattr(request, name) for name in _ECHOED_FIELDS}
    echo = {name: value for name, value in echo.items() if value is not None}
    echo["tools"] = list(request.tools)
    if request.instructions:
        echo["instructions"] = request.instructions
    if request.reasoning:
        echo["reasoning"] = {"effort": None, "summary": None, **request.reasoning}
    if request.text:
        echo["text"] = {"format": {"type": "text"}, **request.text}
    return echo
