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

from llm.addresses import is_public, looks_like_address
from llm.connections import private_address
from llm.errors import BadRequest
from llm.provider import Endpoint
from llm.wire.reading import STUMBLES
from llm.wire.request import Request


def question(
    endpoint: Endpoint, request: Request, proof: Mapping[str, str]
) -> tuple[httpx.Request, bool]:
    """The HTTP request of a model call, and whether its address may be private.

    `auth_headers` authenticate the account. Raises BadRequest.
    """
    address, ours = address_of(endpoint, endpoint.url(request))
    method = "GET" if request.resumes else "POST"
    headers = _headers(
        endpoint, {**_told(endpoint, request), **proof}, streams=request.stream
    )
    body = b"" if request.resumes else _body(endpoint, request)
    times = {"timeout": timeouts()}
    # As a stream, which httpx uses as it is; for `content` it would add headers that
    # the transport adds as well.
    sent = httpx.ByteStream(body)
    message = httpx.Request(
        method, address, headers=headers, stream=sent, extensions=times
    )
    message.read()
    return message, ours


def look(
    endpoint: Endpoint, path: str, proof: Mapping[str, str], *, method: str = "GET"
) -> tuple[httpx.Request, bool]:
    """Like `build_request`, for `path` without a body."""
    address, ours = address_of(endpoint, endpoint.at(path))
    # Some codecs send a version header with every request.
    told = _told(endpoint, Request(model="", items=(), stream=False))
    headers = _headers(endpoint, {**told, **proof}, streams=False)
    times = {"timeout": timeouts()}
    return httpx.Request(method, address, headers=headers, extensions=times), ours


def address_of(endpoint: Endpoint, text: str) -> tuple[httpx.URL, bool]:
    """`text` as a URL, and whether it may be a private address.

    It may if it is defined in our code, if the staff allow it, and if it is this server
    itself (`self:`, the demo provider).
    """
    own = endpoint.provider.base_url.startswith("self:")
    if text.startswith("self:"):
        text = settings.SELF_URL + text.removeprefix("self:")
    ours = (
        endpoint.allow_private_network
        or not endpoint.base_url
        or (own and text.startswith(f"{settings.SELF_URL}/"))
    )
    return url(text, private=ours), ours


@lru_cache(maxsize=1_000)
def url(text: str, *, private: bool) -> httpx.URL:
    """Raises BadRequest."""
    try:
        address = httpx.URL(text)
    except httpx.InvalidURL as exc:
        raise _no_address() from exc
    if address.scheme not in ("http", "https") or not address.host:
        raise _no_address()
    # The resolver does not see hosts that look like an address, so check them here.
    near = looks_like_address(address.host) and not is_public(address.host)
    if near and not private:
        raise private_address()
    return address


def timeouts() -> dict[str, float | None]:
    """Only connecting: reads have the time limits of `ResponseTimer`."""
    connect = settings.LLM_CONNECT_TIMEOUT
    return {"connect": connect, "pool": connect, "read": None, "write": None}


def _body(endpoint: Endpoint, request: Request) -> bytes:
    try:
        wire = endpoint.codec.encode(request)
    except STUMBLES as exc:
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
    endpoint: Endpoint, told: Mapping[str, str], *, streams: bool
) -> httpx.Headers:
    headers = {
        "Accept": "text/event-stream" if streams else "application/json",
        # Compressed streams arrive in larger pieces and cost time to decompress.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "parley",
        **endpoint.provider.headers,
        **told,
        **endpoint.headers,
    }
    return _encoded(tuple(headers.items()))


@lru_cache(maxsize=1_000)
def _encoded(headers: tuple[tuple[str, str], ...]) -> httpx.Headers:
    """The result is shared: copy it before changing it."""
    return httpx.Headers(headers)


def _told(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The headers of the codec: a version, betas. Most codecs have none."""
    tell = getattr(endpoint.codec, "headers", None)
    return tell(request) if tell else {}


def _no_address() -> BadRequest:
    return BadRequest("The provider's address is not a URL; the staff must correct it.")
