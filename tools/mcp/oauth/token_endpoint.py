"""Requests to a token endpoint and its answers (RFC 6749, sections 4 to 6)."""

from __future__ import annotations

from urllib.parse import parse_qsl

import httpx2
import orjson
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

_FORM = "application/x-www-form-urlencoded"


def token_form(request: httpx2.Request) -> dict[str, str]:
    """The form of a request to a token endpoint; empty for any other request."""
    content_type = request.headers.get("content-type", "")
    if request.method != "POST" or content_type != _FORM:
        return {}
    form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
    return form if "grant_type" in form else {}


def replace_form(request: httpx2.Request, form: dict[str, str]) -> httpx2.Request:
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() != "content-length"
    ]
    return httpx2.Request(request.method, request.url, headers=headers, data=form)


def is_followed(request: httpx2.Request, response: httpx2.Response) -> bool:
    """Whether it is a redirect that the SDK follows: to the same host."""
    target = response.next_request
    return target is not None and target.url.host == request.url.host


def read_error(body: bytes) -> str:
    """The error code of an answer (RFC 6749, section 5.2); "" for none."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    return str(answer.get("error") or "") if isinstance(answer, dict) else ""


def is_token(body: bytes) -> bool:
    try:
        OAuthToken.model_validate_json(body)
    except ValidationError:
        return False
    return True
