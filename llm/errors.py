"""Errors of calls to models.

* LLMError
    * BadRequest                the request is invalid or was refused; a retry does not
                                  help
        * InvalidKey            the provider rejects the API key
            * OwnKeyRefused     a person's own key, who can enter another one
        * ContextTooLarge       prompt and answer do not fit the model's window
        * ModelNotAvailable     no such model, or it is switched off
        * ContentPolicy         the provider's policy forbids the request
        * QuotaExhausted        credit, budget or quota is used up; waiting does not
                                      help
            * OwnKeyExhausted   a person's own key, who can add credit or change it
    * TryAgain                  the same request may succeed later
        * RateLimited           too many requests or tokens; see `retry_after`
        * ProviderDown          5xx, overloaded, unreachable
            * CutOff            the connection ended before the answer did
        * ProviderTimeout       no answer within our time limits
            * ConnectTimeout    no connection within the time limits
        * NoFreeConnection      all of this server's connections are in use
    * BadResponse               the provider violated its protocol

A class states who has to act, whether a retry helps, and what API clients receive: our
`code`, the HTTP `status`, and OpenAI's `type` and `openai_code`. Its docstring is the
default message for users; the provider's message is in `detail`, for staff, and for the
sender of a request that the host refused (`host_report`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llm.wire.sanitize import sanitize_text

MAX_MESSAGE_LENGTH = 500  # characters of a message, or of a parameter's name
MAX_HOST_MESSAGE = 2000  # characters of a host's message in an answer to its sender

#: Numbers and names of the staff's account, which hosts mention beside their limits.
_ACCOUNT = re.compile(
    r"\b(?:org|proj|acct|user)[-_][A-Za-z0-9]{6,64}"
    r"|(?<=project_number:)\d{4,20}|(?<=\bproject )\d{6,20}"
)


class LLMError(Exception):
    """The model call failed."""

    code = "E_LLM_PROVIDER_DOWN"
    status = 502  # status of our own API, before the first byte
    type = "server_error"  # OpenAI's error type
    openai_code: str | None = None  # OpenAI's error code
    retryable = False
    #: False for an error of the account that may be one of this request: only words of
    #: its message say so, or a smaller request may be answered.
    is_certain = True
    #: What became of the request, for a client that wants it explained.
    explanation: Mapping[str, Any] | None = None

    def __init__(
        self,
        message: str = "",
        *,
        detail: str = "",
        param: str | None = None,
        provider: str = "",
        upstream_status: int | None = None,
        upstream_type: str | None = None,
        upstream_code: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        # All of these texts are stored in rows; most come from providers, some from
        # clients.
        text = sanitize_text(message or (self.__doc__ or "").partition("\n")[0])
        super().__init__(
            text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}…"
        )
        self.detail = sanitize_text(
            detail
        )  # the provider's message; may quote the prompt
        self.param = param and sanitize_text(param[:MAX_MESSAGE_LENGTH])
        self.provider = provider
        self.upstream_status = upstream_status
        self.upstream_type = upstream_type and sanitize_text(upstream_type)
        self.upstream_code = upstream_code and sanitize_text(upstream_code)
        self.request_id = request_id and sanitize_text(request_id)
        self.retry_after = retry_after  # seconds

    @property
    def host_report(self) -> dict[str, Any]:
        """What the host answered to a request that its sender can change: `message`,
        `status`, `type`, `code`, `request_id`, those that are known.

        {} for errors of the server's own account (keys, credit), and where the host
        refused nothing. `detail` has no keys (`llm.http.client` masks them).
        """
        if not self.detail or self.upstream_status is None:
            return {}
        if isinstance(self, InvalidKey | QuotaExhausted):
            return {}
        # An error inside a stream comes with status 200.
        if not (400 <= self.upstream_status < 500 or isinstance(self, BadRequest)):
            return {}
        report = {
            "message": _ACCOUNT.sub("…", self.detail)[:MAX_HOST_MESSAGE],
            "status": self.upstream_status,
            "type": self.upstream_type,
            "code": self.upstream_code,
            "request_id": self.request_id,
        }
        return {name: value for name, value in report.items() if value is not None}


class BadRequest(LLMError):
    """The model cannot answer this request as it is; change it and try again."""

    code, status, type = "E_LLM_BAD_REQUEST", 400, "invalid_request_error"


class InvalidKey(BadRequest):
    """The provider refused the API key; ask the staff to check it."""

    code, status, type = "E_LLM_INVALID_KEY", 502, "server_error"
    openai_code = "provider_authentication_failed"


class OwnKeyRefused(InvalidKey):
    """The provider refused your own key; enter another one on the page "Own keys"."""


class ContextTooLarge(BadRequest):
    """The conversation is too long for the model; shorten it or choose another."""

    code = "E_LLM_CONTEXT_TOO_LARGE"
    openai_code = "context_length_exceeded"


class ModelNotAvailable(BadRequest):
    """This model is not available; choose another one."""

    code, status = "E_MODEL_NOT_AVAILABLE", 404
    openai_code = "model_not_found"


class ContentPolicy(BadRequest):
    """The provider's content policy does not allow this request."""

    code = "E_LLM_CONTENT_POLICY"
    openai_code = "content_policy_violation"


class QuotaExhausted(BadRequest):
    """The account at the provider has no credit left; ask the staff to add credit."""

    code, status, type = "E_LLM_QUOTA", 429, "insufficient_quota"
    openai_code = "insufficient_quota"


class OwnKeyExhausted(QuotaExhausted):
    """Your own key has no credit left; add some and enter it again at /keys/."""


class TryAgain(LLMError):
    """The provider could not process the request; try again in a moment."""

    retryable = True


class RateLimited(TryAgain):
    """The provider's rate limit is reached; try again in a moment."""

    code, status, type = "E_LLM_RATE_LIMIT", 429, "too_many_requests"
    openai_code = "rate_limit_exceeded"


class ProviderDown(TryAgain):
    """The provider is down or overloaded; try again in a moment."""

    code, status = "E_LLM_PROVIDER_DOWN", 503


class CutOff(ProviderDown):
    """The provider's answer ended too early; try again."""


class ProviderTimeout(TryAgain):
    """The provider did not answer in time; try again in a moment."""

    code, status = "E_LLM_TIMEOUT", 504


class ConnectTimeout(ProviderTimeout):
    """The provider could not be reached in time; try again in a moment."""

    # Nothing was sent, so the request may be repeated safely.
    code, status = ProviderDown.code, ProviderDown.status


class NoFreeConnection(TryAgain):
    """All connections to providers are in use; try again in a moment."""

    code, status = "E_NO_FREE_CONNECTION", 503
    openai_code = "server_overloaded"


class BadResponse(LLMError):
    """The provider sent an invalid response; try again, or report it to the staff."""

    code, status = "E_LLM_BAD_RESPONSE", 502


def for_key_owner(error: LLMError) -> LLMError:
    """`error` for the person whose own key was used, and whom staff cannot help."""
    match error:
        case InvalidKey():
            kind: type[LLMError] = OwnKeyRefused
        case QuotaExhausted():
            kind = OwnKeyExhausted
        case _:
            return error
    return kind(
        detail=error.detail,
        provider=error.provider,
        upstream_status=error.upstream_status,
        upstream_type=error.upstream_type,
        upstream_code=error.upstream_code,
        request_id=error.request_id,
        retry_after=error.retry_after,
    )
