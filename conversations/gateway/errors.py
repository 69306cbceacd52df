"""Errors of the gateway's own endpoints, in addition to `llm.errors`."""

from __future__ import annotations

from conversations.engine.database import disk_space
from conversations.engine.database.executor import is_database_unavailable
from llm.errors import BadRequest, LLMError, TryAgain


class NotFound(BadRequest):
    """There is nothing at this address."""

    code, status = "E_NOT_FOUND", 404
    openai_code = "unknown_url"


class Misdirected(BadRequest):
    """This port serves only what needs no stored rows; use the main address."""

    code, status = "E_MISDIRECTED", 421
    openai_code = "misdirected_request"

    def __init__(self, address: str) -> None:
        super().__init__(
            "This port serves only the requests to /v1 that store nothing; send this"
            f" one to {address}."
        )


class NotAllowed(BadRequest):
    """This address does not support this method."""

    code, status = "E_METHOD_NOT_ALLOWED", 405
    openai_code = "method_not_allowed"


class InputTooLarge(BadRequest):
    """A message with the files inside it is too large."""

    code, status = "E_INPUT_TOO_LARGE", 413
    openai_code = "input_too_large"


class UploadQuotaExceeded(BadRequest):
    """Your upload quota has no room for the files inside the message."""

    code, status = "E_UPLOAD_QUOTA", 413
    openai_code = "quota_exceeded"


class ShuttingDown(TryAgain):
    """The server is shutting down; try again in a moment."""

    code, status = "E_NOT_RUNNING", 503
    openai_code = "not_running"


class DatabaseUnavailable(TryAgain):
    """The database cannot be reached; nothing was lost. Try again in a moment."""

    code, status = "E_DATABASE_UNAVAILABLE", 503
    openai_code = "database_unavailable"

    def __init__(self) -> None:
        super().__init__(retry_after=2.0)


class StorageFull(TryAgain):
    """The server's storage is full; nothing was saved. Try again later."""

    code, status = "E_STORAGE_FULL", 507
    openai_code = disk_space.CODE

    def __init__(self) -> None:
        super().__init__(retry_after=float(disk_space.RETRY_AFTER))


def unavailable_error(exc: BaseException) -> LLMError | None:
    """The error for a full disk or an unreachable database, None for others."""
    if disk_space.report_full(exc):
        return StorageFull()
    return DatabaseUnavailable() if is_database_unavailable(exc) else None


class InternalServerError(LLMError):
    """Internal error; the staff can find the details in the log."""

    code, status = "E_INTERNAL", 500
