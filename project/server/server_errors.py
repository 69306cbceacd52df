"""Error responses that the server sends without a view.

API paths get OpenAI's error object, all others a line of text, or a
page if a browser sends a form that is too large or has no room, or asks a server whose
engine does not start.
"""

from __future__ import annotations

import math
from typing import Any

import orjson

from conversations.access.errors import ServerBusy
from conversations.engine.database import disk_space
from conversations.http.decompression import ACCEPTED
from project.error_page import render_for, wants_page

_COMMON = [(b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff")]
_RETRY_LATER = (b"Retry-After", b"%d" % disk_space.RETRY_AFTER)
_APIS = (b"/api/", b"/v1/")
_WITH_PAGE = (413, 503, 507)  # a browser packs no body, and so packs none wrongly

_CODES = {413: "request_too_large", 415: "unsupported_content_encoding"}

Headers = list[tuple[bytes, bytes]]


def error_response(
    path: bytes, status: int, phrase: str, text: str, code: str | None = None
) -> tuple[Headers, bytes]:
    """Headers and body, in the format that fits the path."""
    body, content_type = f"{phrase}: {text}".encode(), b"text/plain"
    if path.startswith(_APIS):
        error_type = "server_error" if status >= 500 else "invalid_request_error"
        code = _CODES.get(status) or code
        fields = {"message": text, "type": error_type, "param": None, "code": code}
        body, content_type = orjson.dumps({"error": fields}), b"application/json"
    headers = [(b"Content-Type", content_type), (b"Content-Length", b"%d" % len(body))]
    return headers + _COMMON, body


def find_page(
    scope: Any, status: int, limit: int | None = None
) -> tuple[Headers, bytes] | None:
    """Headers and body for a browser, None for a program. Reads files."""
    received = dict(scope["headers"])
    accept = received.get(b"accept", b"").decode("latin-1")
    is_api = scope["path"].encode().startswith(_APIS)
    if status not in _WITH_PAGE or is_api or not wants_page(accept):
        return None
    languages = received.get(b"accept-language", b"").decode("latin-1")
    body = render_for(languages, status, limit).encode()
    headers = [
        (b"Content-Type", b"text/html; charset=utf-8"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Content-Security-Policy", b"default-src 'self'"),
    ]
    if status == 507:
        headers.append(_RETRY_LATER)
    return headers + _COMMON, body


def not_running(scope: Any) -> tuple[Headers, bytes]:
    """While the engine does not start. Reads files."""
    text = "The server does not run; its log says why."
    headers, body = find_page(scope, 503) or error_response(
        scope["path"].encode(), 503, "Service Unavailable", text
    )
    return [*headers, (b"Retry-After", b"2")], body


def server_busy(path: bytes, busy: ServerBusy) -> tuple[Headers, bytes]:
    """The answer that a view of REST would give."""
    headers, body = error_response(
        path, busy.status, "Service Unavailable", str(busy), busy.openai_code
    )
    seconds = math.ceil(busy.retry_after or 0)
    return [*headers, (b"Retry-After", b"%d" % seconds)], body


def disk_full(path: bytes) -> tuple[Headers, bytes]:
    headers, body = error_response(
        path, 507, "Insufficient Storage", disk_space.MESSAGE, disk_space.CODE
    )
    return [*headers, _RETRY_LATER], body


def body_too_large(path: bytes, limit: int) -> tuple[Headers, bytes]:
    text = f"A request may be at most {limit} bytes long."
    return error_response(path, 413, "Request Entity Too Large", text)


def content_too_large(path: bytes, limit: int) -> tuple[Headers, bytes]:
    """Response to a body that is too large after decompression."""
    text = f"The request is too large; the limit is {limit} bytes after decompression."
    return error_response(path, 413, "Request Entity Too Large", text)


def unknown_encoding(path: bytes) -> tuple[Headers, bytes]:
    text = f"This content encoding is not supported; use {ACCEPTED}."
    headers, body = error_response(path, 415, "Unsupported Media Type", text)
    return [*headers, (b"Accept-Encoding", ACCEPTED.encode())], body


def corrupt_body(path: bytes) -> tuple[Headers, bytes]:
    return error_response(path, 400, "Bad Request", "The body cannot be decompressed.")
