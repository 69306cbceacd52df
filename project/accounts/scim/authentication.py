"""Access to SCIM: only by a token of a superuser with the scope `scim`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.views.decorators.csrf import csrf_exempt
from django_scim import constants, exceptions
from rest_framework.exceptions import AuthenticationFailed

from conversations.access import admission
from conversations.access.errors import ConversationNotAllowed, TooFast
from conversations.api.authentication import TokenAuthentication
from conversations.models.access_token import AccessToken, Scope
from llm.errors import LLMError

MAX_BODY = 1_000_000  # bytes
MAX_DEPTH = 50  # lists and objects in one another; programs write six
MAX_ROWS = 500  # of a page; programs request the next one


class ScimAccess:
    """The `AUTH_CHECK_MIDDLEWARE` of django-scim2, which wraps each of its views."""

    def __init__(self, get_response: Callable[..., HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            _authenticate(request)
            if refused := _check_key(request, kwargs.get("uuid")):
                return _complete(request, refused)
            _check_body(request)
            _bound_page(request)
        except exceptions.SCIMException as exc:
            return _answer(exc)
        return _complete(request, self._get_response(request, *args, **kwargs))


@csrf_exempt
def refuse_path(request: HttpRequest) -> HttpResponse:
    """For what is under SCIM's address and no resource of it."""
    return ScimAccess(_answer_not_found)(request)


def _answer_not_found(request: HttpRequest) -> HttpResponse:
    return _answer(exceptions.NotFoundError(request.path[:200]))


def _complete(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """django-scim2 leaves bodies of some errors empty, and writes a status as a number:
    it is a string by RFC 7644, section 3.12."""
    if response.status_code < 400:
        return response
    is_whole = response.content and not isinstance(response, HttpResponseNotAllowed)
    body = json.loads(response.content) if is_whole else {}
    detail = body.get("detail") or f"{request.method}: {response.reason_phrase}"
    body |= {"schemas": [constants.SchemaURI.ERROR], "detail": detail}
    body["status"] = str(response.status_code)
    response.content = json.dumps(body)
    response["Content-Type"] = constants.SCIM_CONTENT_TYPE
    return response


def _authenticate(request: Any) -> None:
    """Raises SCIMException."""
    try:
        found = TokenAuthentication().authenticate(request)
        if found is None:
            raise exceptions.AuthorizationError("Send an access token as a bearer.")
        user, token = found
        _check_token(user, token)
        if token.requests_per_minute:
            admission.take_request(token)
    except AuthenticationFailed as exc:
        raise exceptions.AuthorizationError(str(exc.detail)) from exc
    except TooFast as exc:
        raise exceptions.SCIMException(str(exc), status=429) from exc
    except LLMError as exc:
        raise exceptions.SCIMException(str(exc), status=403) from exc
    request.user = user


def _check_key(request: HttpRequest, key: str | None) -> HttpResponse | None:
    """An answer where a row must be named and is not. Raises NotFoundError for what no
    row has as its key."""
    match = request.resolver_match
    if match is None or match.url_name not in ("users", "groups"):
        return None
    if key and not re.fullmatch(r"[0-9]{1,18}", key):
        raise exceptions.NotFoundError(key[:60])
    if not key and request.method in ("PUT", "PATCH", "DELETE"):
        return HttpResponseNotAllowed(["GET", "POST"])
    return None


def _bound_page(request: Any) -> None:
    """A start below 1 counts as 1, a negative count as 0: RFC 7644, section 3.4.2.4."""
    page = request.GET.copy()
    for name, least, most in (("startIndex", 1, 10**9), ("count", 0, MAX_ROWS)):
        text = page.get(name, "")
        if re.fullmatch(r"-?[0-9]{1,9}", text):
            page[name] = str(min(max(least, int(text)), most))
    request.GET = page


def _check_body(request: HttpRequest) -> None:
    """Raises SCIMException for what is too large, no JSON, or no list of operations.
    Python's own reader lets halves of surrogate pairs in, and fails at a deep
    nesting."""
    size = request.headers.get("Content-Length") or "0"
    if (size.isdecimal() and int(size) > MAX_BODY) or len(request.body) > MAX_BODY:
        raise exceptions.SCIMException("The request is too large.", status=413)
    if not request.body:
        return
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError as exc:
        text = "The body is no JSON that can be read."
        raise exceptions.BadRequestError(text, scim_type="invalidSyntax") from exc
    if _is_deep(body):
        text = "The body is nested too deeply."
        raise exceptions.BadRequestError(text, scim_type="invalidSyntax")
    if request.method == "PATCH" and not _are_operations(body):
        text = "Write a list of Operations, each with an op."
        raise exceptions.BadRequestError(text, scim_type="invalidSyntax")


def _is_deep(body: Any) -> bool:
    level = [body]
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [child for each in level for child in _children(each)]
    return bool(level)


def _children(value: Any) -> Collection[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()


def _are_operations(body: Any) -> bool:
    operations = body.get("Operations") if isinstance(body, dict) else None
    return isinstance(operations, list) and all(
        isinstance(each, dict)
        and isinstance(each.get("op"), str)
        and isinstance(each.get("path"), str | None)
        for each in operations
    )


def _check_token(user: Any, token: AccessToken) -> None:
    if not token.has_scope(Scope.SCIM):
        raise admission.scope_missing(token, Scope.SCIM)
    if token.conversation_limit is not None:
        raise ConversationNotAllowed
    if not user.is_superuser:
        raise exceptions.SCIMException(
            "Only a superuser's token may manage accounts.", status=403
        )


def _answer(exc: exceptions.SCIMException) -> HttpResponse:
    response = HttpResponse(
        json.dumps({**exc.to_dict(), "status": str(exc.status)}),
        content_type=constants.SCIM_CONTENT_TYPE,
        status=exc.status,
    )
    if exc.status == 401:
        response["WWW-Authenticate"] = 'Bearer realm="scim"'
    return response
