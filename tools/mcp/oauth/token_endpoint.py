"""Requests to a token endpoint and its answers (RFC 6749, sections 4 to 6).

Loads the SDK; import it where needed.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

import httpx2
import orjson
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from tools.mcp.errors import RenewalFailed, RenewalRefused

_FORM = "application/x-www-form-urlencoded"

#: Errors that no further attempt mends, and who can do what about them.
_STAFF_MUST = {
    "invalid_client": (
        "it does not accept the client. A member of staff must correct the client's id"
        " and secret at this MCP server."
    ),
    "unauthorized_client": (
        "it does not let the client renew sign-ins. A member of staff must allow the"
        " client refresh tokens there; until then, sign out and in again."
    ),
    "invalid_scope": (
        "it does not grant the scopes any more. A member of staff must correct the"
        " scopes of this MCP server; then sign out and in again."
    ),
    "unsupported_grant_type": (
        "it renews no sign-ins. Sign out and in again; a member of staff can ask its"
        " operator to support refresh tokens."
    ),
    "invalid_request": (
        "it does not accept the request. A member of staff must check the OAuth client"
        " of this MCP server; until then, sign out and in again."
    ),
}


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
        return bool(OAuthToken.model_validate_json(body).access_token)
    except ValidationError:
        return False


def build_renewal_failure(status: int, error: str) -> RenewalFailed:
    """Why a token was not renewed: `error` is the code of the answer, "" for none."""
    why = "the sign-in at the tool's server could not be renewed: its authorization"
    if sentences := _STAFF_MUST.get(error):
        return RenewalRefused(
            f"{why} server answered HTTP {status} ({error}), so {sentences}"
        )
    return RenewalFailed(f"{why} server answered HTTP {status}. Try again later.")
