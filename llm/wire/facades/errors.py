"""Error bodies of each API.

In: an LLMError, or the terminal event of a failed response. Out: the JSON that is sent
instead of an answer (its HTTP status is the error's own), or inside a stream.

Source: https://platform.openai.com/docs/guides/error-codes
Source: https://platform.claude.com/docs/en/api/errors
Source: https://ai.google.dev/gemini-api/docs/troubleshooting
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llm.errors import LLMError

Dialect = Literal["openai", "anthropic"]

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def body_of(error: LLMError, dialect: Dialect, request_id: str = "") -> dict[str, Any]:
    """The body of an error before the first byte of an answer."""
    if dialect == "anthropic":
        return anthropic_body(error.status, str(error), request_id)
    return openai_body(
        str(error),
        type=error.type,
        code=error.openai_code or error.code,
        param=error.param,
    )


def headers_of(error: LLMError) -> dict[str, str]:
    """The headers by which OpenAI's and Anthropic's SDKs decide when to retry."""
    headers = {"x-should-retry": "true" if error.retryable else "false"}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(0, math.ceil(error.retry_after)))
    return headers


def openai_body(
    message: str, *, type: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """For errors that are not an LLMError: a refused token, for example."""
    error = {"message": message, "type": type, "param": param, "code": code}
    return {"error": error}


def anthropic_body(status: int, message: str, request_id: str = "") -> dict[str, Any]:
    """The same for any HTTP status. It is also an event of the stream."""
    error = {"type": anthropic_type(status), "message": message}
    return {"type": "error", "error": error, "request_id": request_id or None}


def anthropic_type(status: int) -> str:
    usual = "api_error" if status >= 500 else "invalid_request_error"
    return _TYPES.get(status, usual)


# Inside a stream


def openai_error_of(
    response: Mapping[str, Any], error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The error object of a failed response; `error` is that of its `error` event."""
    if error:
        return {name: error.get(name) for name in ("message", "type", "param", "code")}
    code, message = _code_and_message(response)
    known = class_of(code)
    return {
        "message": message,
        "type": known.type,
        "param": None,
        "code": known.openai_code or code,
    }


def anthropic_error_of(
    response: Mapping[str, Any], request_id: str = ""
) -> dict[str, Any]:
    """The `error` event of a failed response."""
    code, message = _code_and_message(response)
    return anthropic_body(class_of(code).status, message, request_id)


def google_error_of(
    response: Mapping[str, Any], error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The last chunk of a failed response; `error` is that of its `error` event."""
    code, message = _code_and_message(response)
    status = class_of(code).status
    usual = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
    fields = {
        "code": status,
        "message": (error or {}).get("message") or message,
        "status": _GOOGLE_STATUSES.get(status, usual),
    }
    return {"error": fields}


def _code_and_message(response: Mapping[str, Any]) -> tuple[str, str]:
    error = response.get("error") or {}
    return error.get("code") or LLMError.code, error.get("message") or str(LLMError())


def class_of(code: str) -> type[LLMError]:
    """The class of errors with our `code`, the most specific where several share it."""
    found: list[type[LLMError]] = [LLMError]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.code: kind for kind in found}.get(code, LLMError)


def error_to_store(ending: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The stored form of the error in a response's last events, for `restore_error`.

    None if the response did not fail.
    """
    details: dict[str, Any] = {}
    for event in ending:
        if event["type"] == "error":
            details = _error_details(event["error"])
        elif event["type"] == "response.failed":
            return {**event["response"]["error"], **details}
    return None


def _error_details(error: Mapping[str, Any]) -> dict[str, Any]:
    seconds = retry_after(error)
    details = {"param": error["param"], "retry_after": seconds}
    return {name: value for name, value in details.items() if value is not None}


def retry_after(error: Mapping[str, Any]) -> float | None:
    """The seconds to wait in the error object of an `error` event."""
    seconds = (error.get("headers") or {}).get("retry-after")
    return None if seconds is None else float(seconds)


def restore_error(
    code: str,
    message: str,
    param: str | None = None,
    retry_after: float | None = None,
) -> LLMError:
    """Rebuild an error from its `code`, message and the fields of `error_to_store`."""
    kind = class_of(code)
    error = LLMError(message, param=param, retry_after=retry_after)
    error.code, error.status, error.type = code, kind.status, kind.type
    error.openai_code, error.retryable = kind.openai_code, kind.retryable
    return error
