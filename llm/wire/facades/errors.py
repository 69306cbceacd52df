"""Error bodies of each API.

In: an LLMError, or the terminal event of a failed response. Out: the JSON that is sent
instead of an answer (its HTTP status is the error's own), or inside a stream. Where the
model's host refused the request, its message follows Parley's, and `host` has its
message, status, type, code and request id.

Source: https://platform.openai.com/docs/guides/error-codes
Source: https://platform.claude.com/docs/en/api/errors
Source: https://ai.google.dev/gemini-api/docs/troubleshooting
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llm.errors import BadRequest, LLMError, ProviderDown

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
    host = error.host_report
    message = with_host_message(str(error), host)
    if dialect == "anthropic":
        body = anthropic_body(status_of(error, dialect), message, request_id, host)
        return (
            body if error.explanation is None else {**body, "parley": error.explanation}
        )
    body = openai_body(
        message,
        type=error.type,
        code=error.openai_code or host.get("code") or error.code,
        param=error.param,
    )
    if host:
        body["error"]["host"] = host
    if error.explanation is not None:
        body["parley"] = error.explanation
    return body


def status_of(error: LLMError, dialect: Dialect) -> int:
    """The HTTP status: Anthropic's API has one of its own for an overloaded host."""
    if dialect != "anthropic" or not isinstance(error, ProviderDown):
        return error.status
    is_overloaded = error.upstream_status == 529
    is_overloaded |= error.upstream_type == "overloaded_error"
    return 529 if is_overloaded else error.status


def with_host_message(message: str, host: Mapping[str, Any] | None) -> str:
    """Parley's message and the host's; the host's alone where Parley's is general."""
    if not host or not (text := host.get("message")):
        return message
    if message == _NOTHING_SAID:
        return str(text)
    return f"{message} The host's message: {text}"


_NOTHING_SAID = str(BadRequest())
_MAX_WAIT = 120.0  # seconds for which an SDK may wait; OpenAI's waits no longer


def headers_of(error: LLMError) -> dict[str, str]:
    """The headers by which OpenAI's and Anthropic's SDKs decide when to retry.

    Anthropic's sleeps however long `retry-after` is, so a host's daily limit would hang
    its caller for hours without an error.
    """
    wait = error.retry_after or 0
    is_soon = error.retryable and wait <= _MAX_WAIT
    headers = {"x-should-retry": "true" if is_soon else "false"}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(0, math.ceil(error.retry_after)))
    return headers


def openai_body(
    message: str, *, type: str, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """For errors that are not an LLMError: a refused token, for example."""
    error = {"message": message, "type": type, "param": param, "code": code}
    return {"error": error}


def anthropic_body(
    status: int,
    message: str,
    request_id: str = "",
    host: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The same for any HTTP status. It is also an event of the stream."""
    error: dict[str, Any] = {"type": anthropic_type(status), "message": message}
    if host:
        error["host"] = host
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
        fields = {n: error.get(n) for n in ("message", "type", "param", "code")}
        if host := error.get("host"):
            fields["host"] = host
        return client_error(fields)
    code, message = _code_and_message(response)
    known = class_of(code)
    return {
        "message": message,
        "type": known.type,
        "param": None,
        "code": known.openai_code or code,
    }


def client_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """The error object of an event, or of a response, as clients of APIs get it: with
    the host's message and code where the host refused the request."""
    fields = dict(error)
    if host := fields.get("host"):
        fields["message"] = with_host_message(str(fields.get("message")), host)
        if fields.get("code") == BadRequest.code and "type" in fields:
            fields["code"] = host.get("code") or fields["code"]
    return fields


def anthropic_error_of(
    response: Mapping[str, Any], request_id: str = ""
) -> dict[str, Any]:
    """The `error` event of a failed response."""
    code, message = _code_and_message(response)
    host = (response.get("error") or {}).get("host")
    body = anthropic_body(class_of(code).status, message, request_id, host)
    return {**body, "parley": response["parley"]} if "parley" in response else body


def google_error_of(
    response: Mapping[str, Any], error: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The last chunk of a failed response; `error` is that of its `error` event."""
    code, message = _code_and_message(response)
    status = class_of(code).status
    usual = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
    fields = {
        "code": status,
        "message": client_error(error or {}).get("message") or message,
        "status": _GOOGLE_STATUSES.get(status, usual),
    }
    return {"error": fields}


def _code_and_message(response: Mapping[str, Any]) -> tuple[str, str]:
    error = response.get("error") or {}
    message = with_host_message(
        error.get("message") or str(LLMError()), error.get("host")
    )
    return error.get("code") or LLMError.code, message


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
    host: Mapping[str, Any] | None = None,
) -> LLMError:
    """Rebuild an error from its `code`, message and the fields of `error_to_store`."""
    kind, host = class_of(code), host or {}
    error = LLMError(
        message,
        detail=host.get("message") or "",
        param=param,
        # An error inside a stream came with status 200.
        upstream_status=max(host["status"], 400) if host else None,
        upstream_type=host.get("type"),
        upstream_code=host.get("code"),
        request_id=host.get("request_id"),
        retry_after=retry_after,
    )
    error.code, error.status, error.type = code, kind.status, kind.type
    error.openai_code, error.retryable = kind.openai_code, kind.retryable
    return error
