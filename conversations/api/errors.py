"""Error responses of the API in OpenAI's shape: `{"error": {message, type, param,
code}}`.

`exception_handler` renders exceptions of views; `not_found`, `bad_request` and
`server_error` render errors outside of them. An internal error shows only the request's
id, under which the log has the exception.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from conversations.access.concurrent_deletion import is_row_gone, log_row_gone
from conversations.engine import NotRunning
from conversations.requests.errors import describe_error, error_type
from conversations.turns.error_texts import in_own_language
from llm.errors import LLMError
from llm.telemetry import log_context
from llm.wire.items import new_id

logger = logging.getLogger(__name__)

REQUEST_ID = "X-Request-ID"
_API = "/api/"


class PayloadTooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "The request is too large."
    default_code = "request_too_large"


class EngineNotRunning(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "The server is starting or shutting down; try again in a moment."
    default_code = "not_running"


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Render an exception of a view.

    Returns None for an internal error: Django logs it and `server_error` answers.
    """
    if isinstance(exc, LLMError):
        found = llm_error_object(exc)
        found["message"] = in_own_language(found["message"])
        return Response(_body(found), exc.status, headers=_retry(exc))
    if isinstance(exc, RequestDataTooBig):
        exc = PayloadTooLarge()
    elif isinstance(exc, NotRunning):
        exc = EngineNotRunning()
    elif isinstance(exc, Http404):
        exc = Http404()  # Django's message would name a model class
    elif is_row_gone(exc):
        log_row_gone(context["request"], exc)
        exc = Http404()
    response = drf_exception_handler(exc, context)
    if response is not None:
        response.data = _body(describe_error(exc, response.status_code, response.data))
    return response


def llm_error_object(exc: LLMError) -> dict[str, Any]:
    return {
        "message": str(exc),
        "type": exc.type,
        "param": exc.param,
        "code": exc.openai_code or exc.code,
    }


def request_id(request: HttpRequest) -> str:
    """The request's id, made on first use."""
    found = log_context.request_id.get() or new_id("req")
    return str(request.META.setdefault("parley.request_id", found))


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
    return _answer(request, 400, "The request is malformed.", "bad_request")


def server_error(request: HttpRequest) -> HttpResponse:
    if not is_api(request):
        return defaults.server_error(request)
    id = request_id(request)
    logger.error("request %s failed: %s %s", id, request.method, request.path)
    message = f"Internal error; the staff can find it in the log by the id {id}."
    return _answer(request, 500, message, "internal_error")


def _answer(request: HttpRequest, status: int, message: str, code: str) -> HttpResponse:
    error = {
        "message": message,
        "type": error_type(status),
        "param": None,
        "code": code,
    }
    headers = {REQUEST_ID: request_id(request)}
    return JsonResponse(_body(error), status=status, headers=headers)


def _body(error: dict[str, Any]) -> dict[str, Any]:
    return {"error": error}


def _retry(exc: LLMError) -> dict[str, str] | None:
    if exc.retry_after is None:
        return None
    return {"Retry-After": str(max(1, math.ceil(exc.retry_after)))}
