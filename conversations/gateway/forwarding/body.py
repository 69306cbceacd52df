"""The client's own body, for a host that speaks the client's API.

The fields that this server serves itself are left out; all others are the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conversations.gateway.dialects import Dialect
from llm.adaptation.forwarding import default_options, forwards
from llm.errors import BadRequest
from llm.provider import Route
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.header_syntax import HEADER_VALUE
from llm.wire.request import Request

#: Headers of a client that the host gets, by the API.
_HEADERS = {
    "chat": (b"openai-beta", b"x-grok-conv-id"),
    "messages": (b"anthropic-beta", b"anthropic-version"),
    "responses": (b"openai-beta", b"x-grok-conv-id"),
}
_BETAS = "anthropic-beta"


def forwarded_body(
    body: Mapping[str, Any],
    dialect: Dialect,
    route: Route,
    headers: Mapping[bytes, bytes],
    convert: Callable[[Route], Request],
) -> ForwardedBody | None:
    """The client's own `body`; None if the model's host does not take it. `convert`
    makes the request in canonical form. Raises BadRequest."""
    if not forwards(dialect.codec_prefix, body, route):
        return None
    streams = body.get("stream") is True
    return ForwardedBody(
        api=dialect.codec_prefix,
        fields=body,
        headers=_headers(dialect, body, headers),
        convert=convert,
        defaults=default_options(route, body),
        hides_usage=dialect.name == "chat" and streams and not _wants_usage(body),
    )


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _headers(
    dialect: Dialect, body: Mapping[str, Any], headers: Mapping[bytes, bytes]
) -> dict[str, str]:
    found = {
        name.decode(): headers[name].decode("latin-1")
        for name in _HEADERS[dialect.name]
        if name in headers
    }
    if dialect.name == "messages" and isinstance(betas := body.get("betas"), list):
        named = [found[_BETAS]] if _BETAS in found else []
        found[_BETAS] = ",".join([*named, *(b for b in betas if isinstance(b, str))])
    for name, value in found.items():
        if not HEADER_VALUE.fullmatch(value):
            text = f"{name}: a header is one line of plain ASCII text."
            raise BadRequest(text, param=name)
    return {name: value for name, value in found.items() if value}
