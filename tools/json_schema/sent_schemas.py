"""What becomes of a tool's schema in each wire format: the codecs' own encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.utils.translation import gettext as _

from llm.errors import BadRequest
from llm.providers import all_providers
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.items import user_message
from llm.wire.request import Request
from tools.text_diff import DiffLine, diff_lines

#: A host of each wire format; xAI's shares one and has limits of its own.
HOSTS = ("openai", "openai_compatible", "anthropic", "gemini", "xai")
_NAME = "tool_of_this_page"
_SCHEMA_FIELDS = ("parameters", "input_schema", "parametersJsonSchema")


@dataclass(frozen=True, slots=True)
class SentSchema:
    wire: str
    host: str
    lines: Sequence[DiffLine]  # what differs; empty if nothing does
    why_refused: str = ""  # by the codec, before anything is sent


def find_sent_schemas(parameters: Mapping[str, Any]) -> list[SentSchema]:
    """For one host of each wire format. Sends nothing."""
    providers = all_providers()
    return [_encode(providers[name], parameters) for name in HOSTS if name in providers]


def _encode(provider: Any, parameters: Mapping[str, Any]) -> SentSchema:
    codec = provider.codec()
    tool = {"type": "function", "name": _NAME, "description": "", "strict": False}
    request = Request(
        model=provider.default_model or "any",
        items=[user_message("Hello")],
        tools=[{**tool, "parameters": dict(parameters)}],
    )
    try:
        body = codec.encode(request)
    except BadRequest as exc:
        return SentSchema(codec.name, provider.label, (), str(exc))
    except DECODE_ERRORS as exc:  # the schema is of a shape that no codec expects
        why = _("Its schema cannot be sent: %(error)s") % {"error": type(exc).__name__}
        return SentSchema(codec.name, provider.label, (), why)
    sent = next(_schemas_in(body), None)
    lines = diff_lines(_text(parameters), _text(sent))
    return SentSchema(codec.name, provider.label, lines)


def _schemas_in(body: Any) -> Iterator[Any]:
    """The schema of the one function in a request's body."""
    if isinstance(body, list):
        for each in body:
            yield from _schemas_in(each)
    elif isinstance(body, Mapping):
        if body.get("name") == _NAME:
            yield from (body[field] for field in _SCHEMA_FIELDS if field in body)
        for each in body.values():
            yield from _schemas_in(each)


def _text(schema: Any) -> str:
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    return orjson.dumps(schema, option=options, default=dict).decode()
