"""Error responses that the server sends without a view.

API paths get OpenAI's error object, all others a line of text.
"""

from __future__ import annotations

import orjson

from conversations.engine.database import disk_space
from conversations.http.decompression import ACCEPTED

_COMMON = [(b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff")]
_APIS = (b"/api/", b"/v1/")

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


def disk_full(path: bytes) -> tuple[Headers, bytes]:
    headers, body = error_response(
        path, 507, "Insufficient Storage", disk_space.MESSAGE, disk_space.CODE
    )
    return [*headers, (b"Retry-After", b"%d" % disk_space.RETRY_AFTER)], body


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
