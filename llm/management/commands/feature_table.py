"""Print the table of providers and features for docs/fidelity.md.

For each feature a request with it and one without it are encoded like any request:
adapted to the model's capabilities, then written in its wire format. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from django.core.management.base import BaseCommand

from llm.adaptation.adapt import Adaptation
from llm.adaptation.structured import parse_output_format
from llm.capabilities import capabilities_of
from llm.errors import BadRequest
from llm.http.inline_files import provider_fetches
from llm.provider import Endpoint, Provider, Route
from llm.providers import all_providers
from llm.wire.items import Item, message, user_message
from llm.wire.request import Request

YES, NEAR, DROPPED, REFUSED, SILENT = "yes", "near", "dropped", "no", "?"
FETCHED, UNNEEDED = "fetched", "–"
MEANING = (
    "`yes`: sent as requested. `near`: approximated, and reported as degraded."
    " `dropped`: left out, and reported. `no`: refused with an error that names it,"
    " or left out and reported if the caller allows that. `fetched`: Parley downloads"
    " the image and sends it. `–`: the host has no such field, and no answer depends"
    " on it."
)

_TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "strict": False,
}
_OTHER = {**_TOOL, "name": "hear"}
_TOOLS = {"tools": [_TOOL, _OTHER]}
_ALLOWED = {
    "type": "allowed_tools",
    "mode": "auto",
    "tools": [{"type": "function", "name": "look"}],
}
_FORM = {"type": "json_schema", "name": "it", "schema": _TOOL["parameters"]}
_URL = "https://pictures.example/cat.png"


def _user_part(**part: Any) -> Item:
    return {"type": "message", "role": "user", "content": [part]}


_IMAGE_URL = _user_part(type="input_image", image_url=_URL)
_IMAGE = _user_part(type="input_image", image_url="data:image/png;base64,iVBORw0KGgo=")
_DETAIL = _user_part(**_IMAGE["content"][0], detail="high")
_PDF = _user_part(
    type="input_file",
    filename="a.pdf",
    file_data="data:application/pdf;base64,JVBERi0xLjc=",
)
_QUESTION = user_message("Hello")
_LATE = [_QUESTION, message("assistant", "Hi."), message("developer", "Be brief.")]

#: By name: the request fields of the feature, and the other fields that it needs.
FEATURES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "tools": (_TOOLS, {}),
    "must call": ({"tool_choice": "required"}, _TOOLS),
    "must call one": ({"tool_choice": {"type": "function", "name": "look"}}, _TOOLS),
    "may call some": ({"tool_choice": _ALLOWED}, _TOOLS),
    "one at a time": ({"parallel_tool_calls": False}, _TOOLS),
    "image by URL": ({"items": [_IMAGE_URL]}, {}),
    "image": ({"items": [_IMAGE]}, {}),
    "its detail": ({"items": [_DETAIL]}, {"items": [_IMAGE]}),
    "PDF": ({"items": [_PDF]}, {}),
    "late instructions": ({"items": _LATE}, {"items": _LATE[:2]}),
    "JSON Schema": ({"text": {"format": _FORM}}, {}),
    "JSON": ({"text": {"format": {"type": "json_object"}}}, {}),
    "effort high": ({"reasoning": {"effort": "high"}}, {}),
    "effort none": ({"reasoning": {"effort": "none"}}, {}),
    "verbosity": ({"text": {"verbosity": "low"}}, {}),
    "temperature": ({"temperature": 0.5}, {}),
    "stop": ({"stop": ["END"]}, {}),
    "seed": ({"seed": 7}, {}),
    "penalties": ({"presence_penalty": 0.5}, {}),
    "logprobs": ({"top_logprobs": 2}, {}),
    "metadata": ({"metadata": {"a": "b"}}, {}),
    "service tier": ({"service_tier": "flex"}, {}),
    "cache key": ({"prompt_cache_key": "k"}, {}),
    "user id": ({"safety_identifier": "u"}, {}),
}
#: Hints that do not change the answer, so a provider without them loses nothing.
HINTS = frozenset({"cache key", "user id"})
_IN_FIRST_TABLE = 13


class Command(BaseCommand):
    help = "Print the table of providers and features that docs/fidelity.md holds."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(tables())


def tables() -> str:
    """Two Markdown tables: a row per provider and wire format, a column per feature."""
    routes, names = list(feature_routes()), list(FEATURES)
    halves = names[:_IN_FIRST_TABLE], names[_IN_FIRST_TABLE:]
    return "\n\n".join([_table(routes, half) for half in halves] + [MEANING])


def _table(routes: Sequence[tuple[str, Route]], features: Sequence[str]) -> str:
    rows = [["", *features], ["---"] * (len(features) + 1)]
    for label, route in routes:
        rows.append([label, *(support_level(route, feature) for feature in features)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def feature_routes() -> Iterator[tuple[str, Route]]:
    """Each provider with its default wire format and with its other formats, except
    for variants of the same format."""
    for provider in all_providers().values():
        if provider.base_url.startswith("self:"):
            continue  # the demo accepts every option
        usual = next(iter(provider.codecs))
        for name in provider.codecs:
            if name == usual or name in ("openai_chat", "openai_responses"):
                wire = "" if name == usual else f" {name.removeprefix('openai_')}"
                yield f"{provider.name}{wire}", _route(provider, name)


def _route(provider: Provider, codec_name: str) -> Route:
    codec = provider.codecs[codec_name]
    model = provider.default_model or "some-model"
    # The capabilities of the host and its wire format, not of a single model.
    capabilities = capabilities_of(provider.name, "", wire=codec.name)
    endpoint = Endpoint(provider=provider, codec=codec, route="1:1")
    return Route(endpoint=endpoint, model=model, name=model, capabilities=capabilities)


def support_level(route: Route, feature: str) -> str:
    """How this route handles `feature`: one of the constants above, such as NEAR."""
    fields, context = FEATURES[feature]
    if feature == "image by URL" and not _follows(route):
        return FETCHED
    items = {"items": [_QUESTION]}
    try:
        body, lost = _encode(route, {**items, **context, **fields})
    except BadRequest:
        return REFUSED
    plain, known = _encode(route, {**items, **context}, ignore_invalid=True)
    lost = [what for what in lost if what not in known]
    if body == plain:
        if feature == "effort none" and route.capabilities.reasoning is False:
            return YES  # a model without reasoning
        if lost:
            return DROPPED
        return UNNEEDED if feature in HINTS else SILENT
    return NEAR if lost else YES


def _encode(
    route: Route, fields: Mapping[str, Any], *, ignore_invalid: bool = False
) -> tuple[bytes, Sequence[str]]:
    """The encoded body and the degraded options. Raises BadRequest."""
    request = Request(model=route.model, **fields)
    adaptation = Adaptation(
        request,
        route,
        output_format=parse_output_format(request),
        ignore_invalid=ignore_invalid,
    )
    body = route.endpoint.codec.encode(adaptation.request)
    return orjson.dumps(body), adaptation.degraded


def _follows(route: Route) -> bool:
    (part,) = _IMAGE_URL["content"]
    return provider_fetches(route.endpoint, part, _URL)
