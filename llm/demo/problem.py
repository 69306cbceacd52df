"""Errors of the demo, in the format of OpenAI's API."""

from __future__ import annotations

from typing import Any


class Problem(Exception):
    """An error that the demo answers with its status and OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # seconds
        self.error: dict[str, Any] = {
            "message": message,
            "type": type,
            "param": param,
            "code": code,
        }


_BY_NAME = {
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "policy": (400, "invalid_request_error", "content_policy_violation"),
}
_BY_STATUS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
RETRY_AFTER = 2  # seconds


def stream_failure() -> Problem:
    """The error that is sent in the middle of an answer."""
    return Problem(
        500,
        "The demo was told to fail in the middle of its answer.",
        type="server_error",
        code="server_error",
    )


def find_failure(what: str) -> Problem | None:
    """The error for `/fail WHAT`; None if `what` is unknown."""
    if what in _BY_NAME:
        status, type, code = _BY_NAME[what]
        return Problem(
            status, f"The demo was told to fail: {what}.", type=type, code=code
        )
    if not (what.isdecimal() and len(what) == 3 and what[0] in "45"):
        return None
    status = int(what)
    other = "server_error" if status >= 500 else "invalid_request_error"
    type, named = _BY_STATUS.get(status, (other, ""))
    return Problem(
        status,
        f"The demo was told to fail with HTTP {status}.",
        type=type,
        code=named or None,
        retry_after=RETRY_AFTER if status == 429 else None,
    )
