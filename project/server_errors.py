"""An error that a server tells by itself, in the form of the place it was asked at."""

from __future__ import annotations

import orjson

_APIS = (b"/api/", b"/v1/")

Headers = list[tuple[bytes, bytes]]


def error(path: bytes, status: int, phrase: str, text: str) -> tuple[Headers, bytes]:
    """Headers and body: OpenAI's object for programs, else a line."""
    told, kind = f"{phrase}: {text}".encode(), b"text/plain"
    if path.startswith(_APIS):
        fault = "server_error" if status >= 500 else "invalid_request_error"
        code = "request_too_large" if status == 413 else None
        fields = {"message": text, "type": fault, "param": None, "code": code}
        told, kind = orjson.dumps({"error": fields}), b"application/json"
    return [(b"Content-Type", kind), (b"Content-Length", b"%d" % len(told))], told


def too_large(path: bytes, most: int) -> tuple[Headers, bytes]:
    text = f"A request may be at most {most} bytes long."
    return error(path, 413, "Request Entity Too Large", text)
