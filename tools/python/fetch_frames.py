"""Encode and decode HTTP requests of an isolated tool's process, and their answers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from tools import errors
from tools.errors import FetchError, ToolError
from tools.http.exchange import FetchedResponse, OutgoingRequest

Frame = dict[str, Any]

_NO_REQUEST = "its process sent what is no request."


def encode_request(request: OutgoingRequest) -> Frame:
    return {
        "method": request.method,
        "url": request.url,
        "headers": dict(request.headers),
        "body": None if request.body is None else b64encode(request.body).decode(),
    }


def decode_request(frame: Frame) -> OutgoingRequest:
    """Raises ToolError if the fields are no request: the tool's code may write frames
    of its own."""
    match frame:
        case {
            "fetch": int(),
            "method": str(method),
            "url": str(url),
            "headers": dict(headers),
            "body": str() | None as body,
        } if all(isinstance(value, str) for value in headers.values()):
            try:
                content = None if body is None else b64decode(body, validate=True)
            except ValueError as exc:
                raise ToolError(_NO_REQUEST) from exc
            return OutgoingRequest(
                method=method, url=url, headers=headers, body=content
            )
    raise ToolError(_NO_REQUEST)


def encode_response(response: FetchedResponse) -> Frame:
    return {
        "status": response.status,
        "url": response.url,
        "reason": _replace_bytes(response.reason),
        "headers": {
            _replace_bytes(name): _replace_bytes(text)
            for name, text in response.headers.items()
        },
        "content_type": _replace_bytes(response.content_type),
        "charset": _replace_bytes(response.charset),
        "body": b64encode(response.body).decode(),
    }


def decode_response(frame: Frame) -> FetchedResponse:
    """Raises FetchError if the server could not fetch it."""
    if error := frame.get("error"):
        kind: type[FetchError] = getattr(errors, error["name"])
        raise kind(error["message"])
    fields = {name: frame[name] for name in frame if name != "answer"}
    return FetchedResponse(**{**fields, "body": b64decode(frame["body"])})


def _replace_bytes(text: str) -> str:
    """Replace bytes of a header that are no UTF-8: aiohttp decodes them as halves of
    surrogate pairs, which JSON cannot have."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
