"""Error responses of the API in OpenAI's shape: `{"error": {message, type, param,
code}}`.

`exception_handler` renders exceptions of views; `not_found`, `bad_request` and
`server_error` render errors outside of them. An internal error shows only the request's
id, under which the log has the exception.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from conversations.engine import NotRunning
from conversations.turns.input_checks import InputError
from llm.errors import MAX_MESSAGE_LENGTH, LLMError
from llm.wire.items import new_id

logger = logging.getLogger(__name__)

REQUEST_ID = "X-Request-ID"
_API = "/api/"


class InvalidInput(APIException):
    """A value in a request is invalid; `param` is its path."""

    status_code: int = status.HTTP_400_BAD_REQUEST

    def __init__(self, exc: InputError) -> None:
        super().__init__(str(exc), exc.code)
        self.status_code = exc.status
        self.param = exc.param


class PayloadTooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The request is too large."
    default_code = "request_too_large"


class IdempotencyKeyConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "This Idempotency-Key belongs to another request; choose a new one."
    )
    default_code = "idempotency_key_reused"
    param = "Idempotency-Key"


class NothingToContinueConflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = (
        "There is nothing to continue: the message is below its limits, or it has no"
        " results left to answer."
    )
    default_code = "nothing_to_continue"


class EngineNotRunning(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "The server is going down or starting; try again in a moment."
    default_code = "not_running"


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Render an exception of a view.

    Returns None for an internal error: Django logs it and `server_error` answers.
    """
    if isinstance(exc, LLMError):
        return Response(_body(llm_error_object(exc)), exc.status, headers=_retry(exc))
    if isinstance(exc, RequestDataTooBig):
        exc = PayloadTooLarge()
    elif isinstance(exc, NotRunning):
        exc = EngineNotRunning()
    elif isinstance(exc, Http404):
        exc = Http404()  # Django's message would name a model class
    response = drf_exception_handler(exc, context)
    if response is not None:
        response.data = _body(_error_object(exc, response.status_code, response.data))
    return response


def error_object(exc: APIException) -> dict[str, Any]:
    return _error_object(exc, exc.status_code, exc.detail)


def llm_error_object(exc: LLMError) -> dict[str, Any]:
    return {
        "message": str(exc),
        "type": exc.type,
        "param": exc.param,
        "code": exc.openai_code or exc.code,
    }


def request_id(request: HttpRequest) -> str:
    """The request's id, made on first use."""
    return str(request.META.setdefault("parley.request_id", new_id("req")))


def is_api(request: HttpRequest) -> bool:
    """True for paths of the API, which answer with JSON whatever the Accept header."""
    return request.path.startswith(_API)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not is_api(request):
        return defaults.page_not_found(request, exception)
    return _answer(request, 404, "There is nothing at this address.", "not_found")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not is_api(request):
        return defaults.bad_request(request, exception)
    return _answer(request, 400, "The request cannot be understood.", "bad_request")


def server_error(request: HttpRequest) -> HttpResponse:
    if not is_api(request):
        return defaults.server_error(request)
    id = request_id(request)
    logger.error("request %s failed: %s %s", id, request.method, request.path)
    message = f"Something went wrong on our side; the staff find it as {id}."
    return _answer(request, 500, message, "internal_error")


def _answer(request: HttpRequest, status: int, message: str, code: str) -> HttpResponse:
    error = {"message": message, "type": _type(status), "param": None, "code": code}
    headers = {REQUEST_ID: request_id(request)}
    return JsonResponse(_body(error), status=status, headers=headers)


def _body(error: dict[str, Any]) -> dict[str, Any]:
    return {"error": error}


def _retry(exc: LLMError) -> dict[str, str] | None:
    if exc.retry_after is None:
        return None
    return {"Retry-After": str(max(1, math.ceil(exc.retry_after)))}


def _error_object(exc: Exception, status: int, detail: Any) -> dict[str, Any]:
    path, first = _first(detail)
    param = path or getattr(exc, "param", None)
    named = isinstance(exc, ValidationError) and param
    text = f"{param}: {first}" if named else str(first)
    return {
        "message": text[:MAX_MESSAGE_LENGTH],  # the message may quote a long header
        "type": _type(status),
        "param": param,
        "code": getattr(first, "code", None),
    }


def _type(status: int) -> str:
    if status == 429:
        return "too_many_requests"
    return "server_error" if status >= 500 else "invalid_request_error"


def _first(detail: Any) -> tuple[str, ErrorDetail | str]:
    """The path and text of the first error among those that DRF found."""
    match detail:
        case {"detail": ErrorDetail() as only} if len(detail) == 1:
            return "", only
        case Mapping():
            name = next(iter(detail))
            path, first = _first(detail[name])
            if name == "non_field_errors":
                return path, first
            return f"{name}.{path}" if path else str(name), first
        case [first, *_]:
            return _first(first)
    return "", detail
