"""What can go wrong at the doors themselves, beside `llm.errors`."""

from __future__ import annotations

from llm.errors import BadRequest, LLMError, TryAgain


class NotFound(BadRequest):
    """There is nothing at this address."""

    code, status = "E_NOT_FOUND", 404
    openai_code = "unknown_url"


class NotAllowed(BadRequest):
    """This address does not know this method."""

    code, status = "E_METHOD_NOT_ALLOWED", 405
    openai_code = "method_not_allowed"


class GoingDown(TryAgain):
    """The server is going down; try again in a moment."""

    code, status = "E_NOT_RUNNING", 503
    openai_code = "not_running"


class DatabaseAway(TryAgain):
    """The database cannot be reached; nothing was lost. Try again in a moment."""

    code, status = "E_DATABASE_UNAVAILABLE", 503
    openai_code = "database_unavailable"

    def __init__(self) -> None:
        super().__init__(retry_after=2.0)


class Fault(LLMError):
    """Something went wrong on our side; it is on record for the staff."""

    code, status = "E_INTERNAL", 500
