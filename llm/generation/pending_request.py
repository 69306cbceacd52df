"""The arguments of `llm.api` before the model is looked up.

In: a model, an input and options, as `llm.api` takes them. Out: the routes to try, and
the `Request` for the first of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from llm import router
from llm.errors import BadRequest, InvalidKey
from llm.generation.context_messages import Context, Question, Source, load_contexts
from llm.generation.input_items import as_items
from llm.generation.request_builder import RequestBuilder
from llm.generation.retry_policy import Policy
from llm.models import LanguageModel
from llm.pricing.caller import Caller, cut_name, join_tags
from llm.provider import Route
from llm.wire.items import Item
from llm.wire.request import Request

Model = str | LanguageModel | Route | None
Input = str | Mapping[str, Any] | Iterable[str | Mapping[str, Any]]


class _SharedOptions(TypedDict, total=False):
    """Options of the request but `tools`, which are more in a run."""

    instructions: str
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


class RequestOptions(_SharedOptions, total=False):
    """Options of the request; names and types are those of `POST /responses`."""

    tools: Sequence[dict[str, Any]]


class CallOptions(_SharedOptions, total=False):
    """Options of the request but `tools`, and of the call."""

    contexts: Iterable[Context | Source]  # placed before the input
    user: Any  # only models that this user may use
    policy: Policy | None  # None uses the model's own
    ignore_invalid_options: bool  # leave out what the model does not take
    tags: Iterable[str]  # of the rows of the calls, to sum up usage by
    record: bool  # write a ModelCall row for each call; default True
    api_key: str  # used instead of the provider's stored keys, and never stored
    #: Returns such a key for `user`, called once for each request.
    get_access_token: Callable[[Any], str | Awaitable[str]]


class Options(CallOptions, total=False):
    """Options of the request and of the call."""

    tools: Sequence[dict[str, Any]]


_REQUEST_OPTIONS = RequestOptions.__optional_keys__
_CONTENT = ("instructions", "tools")
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
    tags: str = ""
    access_token: Callable[[Any], str | Awaitable[str]] | None = None
    is_token: bool = False  # whether `get_access_token` gives the key

    @classmethod
    def of(cls, model: Model, input: Input, options: Options) -> PendingRequest:
        if unknown := options.keys() - _REQUEST_OPTIONS - _OTHER_OPTIONS:
            names = ", ".join(sorted(Options.__optional_keys__))
            raise TypeError(f"There is no option {min(unknown)!r}; use {names}.")
        return cls(
            model=model,
            items=as_items(input),
            options={k: v for k, v in options.items() if k in _REQUEST_OPTIONS},
            contexts=tuple(options.get("contexts", ())),
            user=options.get("user"),
            policy=options.get("policy"),
            ignore_invalid=options.get("ignore_invalid_options", False),
            record=options.get("record", True),
            tags=join_tags(options.get("tags", ())),
            access_token=_access_token(options),
            is_token=options.get("get_access_token") is not None,
        )

    @property
    def caller(self) -> Caller:
        return Caller(
            user_id=getattr(self.user, "pk", None),
            end_user=cut_name(self.options.get("safety_identifier")),
            tags=self.tags,
        )

    def routes(self) -> list[Route]:
        """Reads rows. Raises ModelNotAvailable, InvalidKey."""
        match self.model:
            case Route():
                route = self.model
            case LanguageModel():
                route = self._route_of(self.model)
            case name:
                route = self._route_of(router.find_model(name, user=self.user))
        keyless_for = route.provider_id if self.access_token else None
        return router.routes_of(route, user=self.user, keyless_for=keyless_for)

    def _route_of(self, model: LanguageModel) -> Route:
        if self.access_token:  # the provider's own keys are not needed
            return router.keyless_route_of(model)
        return router.route_of(model, user=self.user)

    async def add_key(self, routes: Sequence[Route]) -> Sequence[Route]:
        """The routes with the key that came with the call, for its provider only.

        Raises InvalidKey, and any exception of `get_access_token`.
        """
        if self.access_token is None:
            return routes
        token = self.access_token(self.user)
        if inspect.isawaitable(token):
            token = await token
        if not isinstance(token, str) or not token:
            name = "get_access_token" if self.is_token else "api_key"
            raise InvalidKey(
                f"{name} gave no key; it must be a text that is not empty."
            )
        first = routes[0]
        return [
            router.with_call_key(route, token, is_token=self.is_token)
            if route.provider_id == first.provider_id
            else route
            for route in routes
        ]

    async def request(self, route: Route) -> Request:
        """Raises any exception of a context function."""
        question = Question(route.name, self.items)
        before = await load_contexts(self.contexts, question)
        if not before and not self.items:
            raise BadRequest("The request has no message to answer.", param="input")
        content = {n: self.options[n] for n in _CONTENT if self.options.get(n)}
        request = Request(model="", items=[*before, *self.items], **content)
        return RequestBuilder(route).build(request, self.options)


def _access_token(
    options: Options,
) -> Callable[[Any], str | Awaitable[str]] | None:
    """Raises TypeError if both options are set."""
    key, get_token = options.get("api_key"), options.get("get_access_token")
    if key is None:
        return get_token
    if get_token is not None:
        raise TypeError("Set api_key or get_access_token, not both.")
    return lambda user: key


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
