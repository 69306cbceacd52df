"""An error that a server tells by itself, in the form of the place it was asked at."""

from __future__ import annotations

import orjson

from conversations.engine import storage
from conversations.unpacking import ACCEPTED

_COMMON = [(b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff")]
_APIS = (b"/api/", b"/v1/")

_CODES = {413: "request_too_large", 415: "unsupported_content_encoding"}

Headers = list[tuple[bytes, bytes]]


def error(
    path: bytes, status: int, phrase: str, text: str, code: str | None = None
) -> tuple[Headers, bytes]:
    """Headers and body: OpenAI's object for programs, else a line."""
    told, kind = f"{phrase}: {text}".encode(), b"text/plain"
    if path.startswith(_APIS):
        fault = "server_error" if status >= 500 else "invalid_request_error"
        code = _CODES.get(status) or code
        fields = {"message": text, "type": fault, "param": None, "code": code}
        told, kind = orjson.dumps({"error": fields}), b"application/json"
    headers = [(b"Content-Type", kind), (b"Content-Length", b"%d" % len(told))]
    return headers + _COMMON, told


def no_room(path: bytes) -> tuple[Headers, bytes]:
    headers, body = error(
        path, 507, "Insufficient Storage", storage.MESSAGE, storage.CODE
    )
    return [*headers, (b"Retry-After", b"%d" % storage.RETRY_AFTER)], body


def too_large(path: bytes, most: int) -> tuple[Headers, bytes]:
    text = f"A request may be at most {most} bytes long."
    return error(path, 413, "Request Entity Too Large", text)


def unpacked_too_large(path: bytes, most: int) -> tuple[Headers, bytes]:
    text = f"The request is too large; the limit is {most} bytes after decompression."
    return error(path, 413, "Request Entity Too Large", text)


def unknown_encoding(path: bytes) -> tuple[Headers, bytes]:
    text = f"This content encoding is not supported; use {ACCEPTED}."
    headers, body = error(path, 415, "Unsupported Media Type", text)
    return [*headers, (b"Accept-Encoding", ACCEPTED.encode())], body


def damaged(path: bytes) -> tuple[Headers, bytes]:
    return error(path, 400, "Bad Request", "The body cannot be decompressed.")
