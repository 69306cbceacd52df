"""Errors of requests with access tokens.

* LLMError
    * Unauthorized              401: no token, or an invalid one
    * BadRequest
        * Forbidden             403: the token lacks the scope
            * WrongAddress      403: the client's address is not allowed
            * ConversationNotAllowed  403: beyond the token's conversations
        * ProofMissing          403: the person must prove again who they are
        * TermsNotAccepted      403: the person has not accepted the terms of use
        * PriceUnknown          403: the model's price is unknown
        * QuotaExhausted
            * BudgetExhausted   429 `insufficient_quota`; waiting does not help
    * RateLimited
        * TooFast               429 `rate_limit_exceeded`, with `retry_after`
            * TooManyConnections  429 `too_many_connections`
            * UnderMaintenance  503 `maintenance`, with `retry_after`
            * ServerBusy        503 `server_busy`, with `retry_after`
            * UsageLimitReached 429 `insufficient_quota`, until the period ends
"""

from __future__ import annotations

from collections.abc import Callable

from conversations.access.rate_limits import Verdict
from llm.errors import BadRequest, LLMError, QuotaExhausted, RateLimited


class Unauthorized(LLMError):
    """Incorrect API key provided: it is missing, wrong, expired or revoked."""

    code, status, type = "E_UNAUTHORIZED", 401, "invalid_request_error"
    openai_code = "invalid_api_key"


class Forbidden(BadRequest):
    """This access token lacks the scope for this request."""

    code, status = "E_FORBIDDEN", 403
    openai_code = "insufficient_scope"


class WrongAddress(Forbidden):
    """This access token may not be used from this address."""

    code = "E_WRONG_ADDRESS"
    openai_code = "address_not_allowed"


class ConversationNotAllowed(Forbidden):
    """This access token is limited to some conversations, and this is not of them."""

    code = "E_CONVERSATION_NOT_ALLOWED"
    openai_code = "conversation_not_allowed"


class ProofMissing(BadRequest):
    """Confirm on the page Account who you are, then repeat this request."""

    code, status = "E_REAUTHENTICATE", 403
    openai_code = "reauthentication_required"


class TermsNotAccepted(BadRequest):
    """Accept the terms of use first."""

    code, status = "E_TERMS", 403
    openai_code = "terms_not_accepted"


class PriceUnknown(BadRequest):
    """The price of this model is unknown, so a token with a budget cannot use it."""

    code, status = "E_PRICE_UNKNOWN", 403
    openai_code = "model_without_price"


class BudgetExhausted(QuotaExhausted):
    """The budget of this access token is used up."""

    code = "E_BUDGET"
    #: Writes the event of it; see `conversations.access.webhooks.limit_events`.
    note: Callable[[], None] | None = None


class TooFast(RateLimited):
    """This access token has made too many requests; try again in a moment."""

    code = "E_TOKEN_RATE_LIMIT"
    verdict: Verdict | None = None  # for the headers of the refusal


class TooManyConnections(TooFast):
    """Too many connections are open; close one first."""

    code = "E_TOO_MANY_CONNECTIONS"
    openai_code = "too_many_connections"


class UnderMaintenance(TooFast):
    """The server is under maintenance and takes no new messages; try again later."""

    # A subclass of TooFast, for which every entry point already keeps the text that a
    # person has typed, and says when to retry.
    code, status, type = "E_MAINTENANCE", 503, "server_error"
    openai_code = "maintenance"


class ServerBusy(TooFast):
    """The server is busy; try again in a few seconds."""

    code, status, type = "E_SERVER_BUSY", 503, "server_error"
    openai_code = "server_busy"


class UsageLimitReached(TooFast):
    """A limit of use is reached."""

    # A subclass of TooFast, for which every entry point already keeps the text that a
    # person has typed, and says when to retry.
    code, type = "E_USAGE_LIMIT", "insufficient_quota"
    openai_code = "insufficient_quota"
    retryable = False
    #: The message in the active language.
    localized: Callable[[], str] | None = None
    #: Writes the event of it; see `conversations.access.webhooks.limit_events`.
    note: Callable[[], None] | None = None
