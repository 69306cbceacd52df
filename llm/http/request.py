"""Construction of HTTP requests: URL, headers and body. No IO.

The parsed URL and the headers, which are the same for all requests of an account, are
cached by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx
import orjson
from django.conf import settings

from llm.errors import BadRequest
from llm.http.addresses import is_public, looks_like_address
from llm.http.connections import private_address_error
from llm.provider import Endpoint
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.request import Request


def build_request(
    endpoint: Endpoint, request: Request, auth_headers: Mapping[str, str]
) -> tuple[httpx.Request, bool]:
    """The HTTP request of a model call, and whether its address may be private.

    `auth_headers` authenticate the account. Raises BadRequest.
    """
    url, allow_private = resolve_url(endpoint, endpoint.url(request))
    method = "GET" if request.resumes else "POST"
    headers = _headers(
        endpoint,
        {**_codec_headers(endpoint, request), **auth_headers},
        streams=request.stream,
    )
    body = b"" if request.resumes else _body(endpoint, request)
    times = {"timeout": timeouts()}
    # As a stream, which httpx uses as it is; for `content` it would add headers that
    # the transport adds as well.
    stream = httpx.ByteStream(body)
    message = httpx.Request(
        method, url, headers=headers, stream=stream, extensions=times
    )
    message.read()
    return message, allow_private


def build_path_request(
    endpoint: Endpoint,
    path: str,
    auth_headers: Mapping[str, str],
    *,
    method: str = "GET",
) -> tuple[httpx.Request, bool]:
    """Like `build_request`, for `path` without a body."""
    url, allow_private = resolve_url(endpoint, endpoint.url_of(path))
    # Some codecs send a version header with every request.
    codec_headers = _codec_headers(endpoint, Request(model="", items=(), stream=False))
    headers = _headers(endpoint, {**codec_headers, **auth_headers}, streams=False)
    times = {"timeout": timeouts()}
    return httpx.Request(method, url, headers=headers, extensions=times), allow_private


def resolve_url(endpoint: Endpoint, text: str) -> tuple[httpx.URL, bool]:
    """`text` as a URL, and whether it may be a private address.

    It may if it is defined in our code, if the staff allow it, and if it is this server
    itself (`self:`, the demo provider).
    """
    is_self = endpoint.provider.base_url.startswith("self:")
    if text.startswith("self:"):
        text = settings.SELF_URL + text.removeprefix("self:")
    allow_private = (
        endpoint.allow_private_network
        or not endpoint.base_url
        or (is_self and text.startswith(f"{settings.SELF_URL}/"))
    )
    return parse_url(text, allow_private=allow_private), allow_private


@lru_cache(maxsize=1_000)
def parse_url(text: str, *, allow_private: bool) -> httpx.URL:
    """Raises BadRequest."""
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as exc:
        raise _invalid_url_error() from exc
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _invalid_url_error()
    # The resolver does not see hosts that look like an address, so check them here.
    is_private = looks_like_address(parsed.host) and not is_public(parsed.host)
    if is_private and not allow_private:
        raise private_address_error()
    return parsed


def timeouts() -> dict[str, float | None]:
    """Only connecting: reads have the time limits of `ResponseTimer`."""
    connect = settings.LLM_CONNECT_TIMEOUT
    return {"connect": connect, "pool": connect, "read": None, "write": None}


def _body(endpoint: Endpoint, request: Request) -> bytes:
    try:
        wire = endpoint.codec.encode(request)
    except DECODE_ERRORS as exc:
        raise BadRequest(
            "The conversation holds something that this model cannot be told.",
            detail=f"{type(exc).__name__} while writing the request.",
        ) from exc
    try:
        # A copy, because the bytes of orjson keep its whole 4 KB buffer alive.
        return bytes(memoryview(orjson.dumps(wire)))
    except orjson.JSONEncodeError as exc:
        raise BadRequest(
            "The request holds something that JSON cannot carry.", detail=str(exc)
        ) from exc


def _headers(
    endpoint: Endpoint, extra: Mapping[str, str], *, streams: bool
) -> httpx.Headers:
    headers = {
        "Accept": "text/event-stream" if streams else "application/json",
        # Compressed streams arrive in larger pieces and cost time to decompress.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "parley",
        **endpoint.provider.headers,
        **extra,
        **endpoint.headers,
    }
    return _to_httpx_headers(tuple(headers.items()))


@lru_cache(maxsize=1_000)
def _to_httpx_headers(headers: tuple[tuple[str, str], ...]) -> httpx.Headers:
    """The result is shared: copy it before changing it."""
    return httpx.Headers(headers)


def _codec_headers(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The headers of the codec: a version, betas. Most codecs have none."""
    build_headers = getattr(endpoint.codec, "headers", None)
    return build_headers(request) if build_headers else {}


def _invalid_url_error() -> BadRequest:
    return BadRequest("The provider's address is not a URL; the staff must correct it.")
