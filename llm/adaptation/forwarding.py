"""Whether a model's host takes a client's own body, and what it is asked otherwise.

A body is forwarded if the host speaks the client's API and nothing in it has to be
emulated for the model. All else goes to the host in canonical form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from llm.capabilities import Capabilities
from llm.generation.request_builder import RequestBuilder
from llm.provider import Route
from llm.wire.codecs.anthropic.forwarding import has_lost_thinking
from llm.wire.codecs.openai_chat.forwarding import is_refused
from llm.wire.codecs.openai_chat.host_options import HostOptions
from llm.wire.codecs.openai_responses.forwarding import has_own_items
from llm.wire.forwarding.forwarded_body import OUTPUT_LIMITS, ForwardedBody
from llm.wire.request import Request

_STOPS = ("stop", "stop_sequences")
_IMAGES = frozenset({"image", "image_url", "input_image"})
_FILES = frozenset({"document", "file", "input_file"})


def forwards(api: str, fields: Mapping[str, Any], route: Route) -> bool:
    """Whether the host of `route` gets a body of the API `api` as it is.

    `api` is the beginning of the names of the API's codecs.
    """
    codec, can = route.endpoint.codec, route.capabilities
    if not codec.name.startswith(api) or not hasattr(codec, "forward"):
        return False
    if route.defaults.get("ignore_invalid_options") is True:
        return False
    if api == "openai_responses" and has_own_items(fields):
        return False
    if isinstance(codec, HostOptions) and codec.switched and is_refused(fields, codec):
        return False
    if api == "anthropic" and has_lost_thinking(fields):
        return False
    return not (_is_beyond_limits(fields, route) or _is_emulated(fields, can))


def address(request: Request, primary: Route, route: Route) -> Request:
    """`request`, made for `primary`, for the model of `route`: with the client's own
    body, if its host takes that. Raises BadRequest."""
    body = request.forwarded
    if body is None or route is primary:
        return RequestBuilder(route).retarget(request, primary)
    if not forwards(body.api, body.fields, route):
        return convert(body, route)
    addressed = replace(body, defaults=default_options(route, body.fields))
    return replace(request, model=route.model, issuer=route.issuer, forwarded=addressed)


def convert(body: ForwardedBody, route: Route) -> Request:
    """The request in canonical form, for the model of `route`. Raises BadRequest."""
    request: Request = body.convert(route)
    if not (body.own_tools or body.answered):
        return request
    tools = [*request.tools, *body.own_tools]
    return replace(request, tools=tools, items=[*request.items, *body.answered])


def default_options(route: Route, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The options that staff have set for the model, its limit of output included, as
    a body with these fields needs them."""
    if not route.defaults and route.max_output_tokens is None:
        return {}
    return RequestBuilder(route).defaults_beside(_reasoning_of(fields), fields)


def _is_beyond_limits(fields: Mapping[str, Any], route: Route) -> bool:
    """Whether the body asks for more than staff allow for the model."""
    limit, efforts = route.max_output_tokens, route.capabilities.efforts
    wanted = [fields[name] for name in OUTPUT_LIMITS if fields.get(name) is not None]
    if not all(isinstance(each, int) for each in wanted):
        return True  # some hosts read 1e6 and "1000000" as numbers
    if limit is not None and any(each > limit for each in wanted):
        return True
    if efforts is None:
        return False
    return any(effort not in efforts for effort in _efforts(fields))


def _efforts(fields: Mapping[str, Any]) -> list[Any]:
    """The reasoning effort that the body asks for, in the words of its API."""
    asked = (
        {"effort": fields.get("reasoning_effort")},
        fields.get("reasoning"),
        fields.get("output_config"),
    )
    found = [each.get("effort") for each in asked if isinstance(each, dict)]
    return [effort for effort in found if effort is not None]


def _reasoning_of(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the body says of reasoning; None if it says nothing."""
    if efforts := _efforts(fields):
        return {"effort": efforts[0]}
    thinking = fields.get("thinking")
    if not isinstance(thinking, dict):
        return None
    return {"effort": "none" if thinking.get("type") == "disabled" else "medium"}


def _is_emulated(fields: Mapping[str, Any], can: Capabilities) -> bool:
    if can.tools is False and fields.get("tools"):
        return True
    if can.stop is False and any(fields.get(name) for name in _STOPS):
        return True
    if (can.json_mode is False or can.json_schema is False) and _is_form_lacking(
        fields, can
    ):
        return True
    if can.vision is False or can.files is False:
        kinds = frozenset(_part_types(fields))
        lacks_image = can.vision is False and not _IMAGES.isdisjoint(kinds)
        return lacks_image or (can.files is False and not _FILES.isdisjoint(kinds))
    return False


def _is_form_lacking(fields: Mapping[str, Any], can: Capabilities) -> bool:
    parents = (
        {"format": fields.get("response_format")},
        fields.get("text"),
        fields.get("output_config"),
    )
    forms = [p.get("format") for p in parents if isinstance(p, dict)]
    kinds = [form.get("type") for form in forms if isinstance(form, dict)]
    return (can.json_mode is False and "json_object" in kinds) or (
        can.json_schema is False and "json_schema" in kinds
    )


def _part_types(fields: Mapping[str, Any]) -> Iterator[str]:
    """The types of all parts of messages, and of the results of tools in them."""
    for entry in _objects(fields.get("messages", fields.get("input"))):
        for name in ("content", "output"):
            for part in _objects(entry.get(name)):
                yield str(part.get("type"))
                yield from (str(p.get("type")) for p in _objects(part.get("content")))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
