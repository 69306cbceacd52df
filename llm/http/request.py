"""Construction of HTTP requests: URL, headers and body. No IO.

The parsed URL and the headers, which are the same for all requests of an account, are
cached by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlencode

import httpx
import orjson

from llm.conf import settings
from llm.errors import BadRequest
from llm.http.address_problems import NO_URL
from llm.http.addresses import is_public, looks_like_address
from llm.http.connections import CONNECTION, private_address_error
from llm.provider import Endpoint
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.forwarding.codec import ForwardingCodec
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.request import Request


def build_request(
    endpoint: Endpoint, request: Request, auth_headers: Mapping[str, str]
) -> tuple[httpx.Request, bool]:
    """The HTTP request of a model call, and whether its address may be private.

    `auth_headers` authenticate the account. Raises BadRequest.
    """
    url, allow_private = resolve_url(endpoint, url_of(endpoint, request))
    method = "GET" if request.resumes else "POST"
    headers = _headers(endpoint, request, auth_headers)
    body = b"" if request.resumes else _body(endpoint, request)
    # As a stream, which httpx uses as it is; for `content` it would add headers that
    # the transport adds as well.
    stream = httpx.ByteStream(body)
    message = httpx.Request(
        method, url, headers=headers, stream=stream, extensions=extensions(endpoint)
    )
    message.read()
    return message, allow_private or bool(endpoint.connection.proxy_url)


def build_path_request(
    endpoint: Endpoint,
    path: str,
    auth_headers: Mapping[str, str],
    *,
    method: str = "GET",
    body: bytes = b"",
    forwarded: ForwardedBody | None = None,
) -> tuple[httpx.Request, bool]:
    """Like `build_request`, for `path`; `body` is JSON. It has the client's headers of
    `forwarded`."""
    url, allow_private = resolve_url(endpoint, url_of_path(endpoint, path))
    empty = Request(model="", items=(), stream=False, forwarded=forwarded)
    headers = _headers(endpoint, empty, auth_headers)
    message = httpx.Request(
        method,
        url,
        headers=headers,
        stream=httpx.ByteStream(body),
        extensions=extensions(endpoint),
    )
    message.read()
    return message, allow_private or bool(endpoint.connection.proxy_url)


def url_of(endpoint: Endpoint, request: Request) -> str:
    base_url = endpoint.base_url or endpoint.provider.base_url
    if request.prefill and endpoint.provider.prefill_base_url:
        base_url = endpoint.provider.prefill_base_url
    url = base_url.rstrip("/") + endpoint.codec.path(request)
    return _with_query(url, endpoint.query) if endpoint.query else url


def url_of_path(endpoint: Endpoint, path: str) -> str:
    """The URL of `path`, which may include a query, below the base URL."""
    url = (endpoint.base_url or endpoint.provider.base_url).rstrip("/") + path
    return _with_query(url, endpoint.query) if endpoint.query else url


def _with_query(url: str, query: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


@dataclass(frozen=True, slots=True)
class FormFile:
    name: str
    data: bytes = field(repr=False)
    content_type: str


def build_upload(
    endpoint: Endpoint,
    path: str,
    auth_headers: Mapping[str, str],
    form: Mapping[str, str],
    file: FormFile,
) -> tuple[httpx.Request, bool]:
    """Like `build_path_request`, as a POST of a form with a file."""
    url, allow_private = resolve_url(endpoint, url_of_path(endpoint, path))
    files = {"file": (file.name, file.data, file.content_type)}
    encoded = httpx.Request("POST", url, data=dict(form), files=files)
    empty = Request(model="", items=(), stream=False)
    headers = httpx.Headers(_headers(endpoint, empty, auth_headers))
    headers["Content-Type"] = encoded.headers["Content-Type"]
    message = httpx.Request(
        "POST",
        url,
        headers=headers,
        stream=httpx.ByteStream(encoded.read()),
        extensions=extensions(endpoint),
    )
    message.read()
    return message, allow_private or bool(endpoint.connection.proxy_url)


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


def extensions(endpoint: Endpoint) -> dict[str, Any]:
    """What the transport and the timer need to know of the account.

    A proxy is chosen by staff, and may be at a private address: then the client that
    connects to those is used, and the proxy resolves the name.
    """
    connection = endpoint.connection
    connect = connection.connect_timeout or settings.LLM_CONNECT_TIMEOUT
    # Only connecting: reads have the time limits of `ResponseTimer`.
    times = {"connect": connect, "pool": connect, "read": None, "write": None}
    return {"timeout": times, CONNECTION: connection}


def _body(endpoint: Endpoint, request: Request) -> bytes:
    try:
        wire = (
            endpoint.codec.encode(request)
            if request.forwarded is None
            else cast(ForwardingCodec, endpoint.codec).forward(request)
        )
    except DECODE_ERRORS as exc:
        raise BadRequest(
            "The conversation contains something that this provider's API cannot"
            " represent.",
            detail=f"{type(exc).__name__} while writing the request.",
        ) from exc
    try:
        # A copy, because the bytes of orjson keep its whole 4 KB buffer alive.
        return bytes(memoryview(orjson.dumps(wire)))
    except orjson.JSONEncodeError as exc:
        raise BadRequest(
            "The request contains a value that JSON cannot represent.", detail=str(exc)
        ) from exc


def _headers(
    endpoint: Endpoint, request: Request, auth_headers: Mapping[str, str]
) -> httpx.Headers:
    # A version, betas; some codecs send them with every request, most have none.
    codec_headers = getattr(endpoint.codec, "headers", None)
    headers = {
        "Accept": "text/event-stream" if request.stream else "application/json",
        # Compressed streams arrive in larger pieces and cost time to decompress.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "parley",
        **endpoint.provider.headers,
        **(codec_headers(request) if codec_headers else {}),
        **(request.forwarded.headers if request.forwarded else {}),
        **auth_headers,
        **endpoint.headers,
    }
    return _to_httpx_headers(tuple(headers.items()))


@lru_cache(maxsize=1_000)
def _to_httpx_headers(headers: tuple[tuple[str, str], ...]) -> httpx.Headers:
    """The result is shared: copy it before changing it."""
    return httpx.Headers(headers)


def _invalid_url_error() -> BadRequest:
    return BadRequest(NO_URL)
