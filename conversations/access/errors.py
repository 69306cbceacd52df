"""Errors of requests with access tokens.

* LLMError
    * Unauthorized              401: no token, or an invalid one
    * BadRequest
        * Forbidden             403: the token lacks the scope
            * WrongAddress      403: the client's address is not allowed
        * PriceUnknown          403: the model's price is unknown
        * QuotaExhausted
            * BudgetExhausted   429 `insufficient_quota`; waiting does not help
    * RateLimited
        * TooFast               429 `rate_limit_exceeded`, with `retry_after`
            * UnderMaintenance  503 `maintenance`, with `retry_after`
"""

from __future__ import annotations

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


class PriceUnknown(BadRequest):
    """The price of this model is unknown, so a token with a budget cannot use it."""

    code, status = "E_PRICE_UNKNOWN", 403
    openai_code = "model_without_price"


class BudgetExhausted(QuotaExhausted):
    """The budget of this access token is used up."""

    code = "E_BUDGET"


class TooFast(RateLimited):
    """This access token has made too many requests; try again in a moment."""

    code = "E_TOKEN_RATE_LIMIT"
    verdict: Verdict | None = None  # for the headers of the refusal


class UnderMaintenance(TooFast):
    """The server is under maintenance and takes no new messages; try again later."""

    # A TooFast, because every entry point then keeps the text and says when to retry.
    code, status, type = "E_MAINTENANCE", 503, "server_error"
    openai_code = "maintenance"
