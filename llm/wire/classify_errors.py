"""Classification of providers' errors as subclasses of LLMError.

In: an HTTP status with headers and body, or the error object inside a stream. Out: an
`LLMError` with a message of our own; the provider's message is in `detail`, its status,
type, code and request id in attributes. Never raises.

Hosts agree on little, so three sources are tried, the most reliable first: a known code
or type, a known phrase in the message, the HTTP status.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from llm.errors import (
    BadRequest,
    BadResponse,
    ContentPolicy,
    ContextTooLarge,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderDown,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
    TryAgain,
)
from llm.wire.error_reports import ErrorReport, parse_body, parse_report

#: Headers with the id under which the vendor finds the request again, best first.
_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "mistral-correlation-id",
    "x-generation-id",
    "x-inference-request-id",
)
_DETAIL_LIMIT = 4000  # characters
_MAX_TIME = 100  # characters of a header that holds a time
_MAX_WAIT = 86_400.0  # seconds; longer times are shortened
_NO_WAIT = 366 * _MAX_WAIT  # seconds from which a time means nothing
_EPOCH = 1e9  # seconds from which a number is a Unix time; in ms: a thousand times that

ErrorClass = type[LLMError]

_CODES: dict[str, ErrorClass] = {
    **dict.fromkeys(
        [
            "insufficient_quota",
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_error",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
            "payment_required",
            "enforced_spend_limit_reached",
            "contract_spend_limit_reached",
        ],
        QuotaExhausted,
    ),
    **dict.fromkeys(
        [
            "context_length_exceeded",
            "exceed_context_size_error",
            "request_too_large",
            "string_above_max_length",
            "too_many_prompt_tokens",
        ],
        ContextTooLarge,
    ),
    **dict.fromkeys(
        [
            "model_not_found",
            "not_found_error",
            "not_found",
            "notfounderror",
            "invalid_model",
            "deploymentnotfound",
        ],
        ModelNotAvailable,
    ),
    **dict.fromkeys(
        [
            "invalid_api_key",
            "api_key_invalid",
            "authentication_error",
            "authentication",
            "unauthenticated",
            "permission_denied",
            "permission_error",
        ],
        InvalidKey,
    ),
    **dict.fromkeys(
        [
            "content_filter",
            "content_policy_violation",
            "responsibleaipolicyviolation",
            "refusal",
        ],
        ContentPolicy,
    ),
    **dict.fromkeys(
        ["ratelimitreached", "rate_limited", "too_many_requests", "resource_exhausted"],
        RateLimited,
    ),
    **dict.fromkeys(
        ["timeout", "timeout_error", "vector_store_timeout", "deadline_exceeded"],
        ProviderTimeout,
    ),
    **dict.fromkeys(
        [
            "server_is_overloaded",
            "service_unavailable_error",
            "unavailable_error",
            "unavailable",
            "provider_unavailable",
            "provider_overloaded",
            "capacity_exceeded",
        ],
        ProviderDown,
    ),
    # Inside a stream these come without a type and without a status.
    **dict.fromkeys(
        [
            "data_residency_mismatch",
            "empty_image_file",
            "failed_to_download_image",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "unsupported_image_media_type",
            "unsupported_parameter",
            "unsupported_value",
        ],
        BadRequest,
    ),
    "tool_use_failed": BadResponse,
}
_CODE_PREFIXES: tuple[tuple[str, ErrorClass], ...] = (
    ("overloaded", ProviderDown),
    ("rate_limit", RateLimited),
)
_MESSAGES: tuple[tuple[re.Pattern[str], ErrorClass], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), error_class)
    for pattern, error_class in (
        (
            # tests/llm/wire/test_error_wordings.py has each message with its source.
            r"maximum context length|reduce the length of the (messages|input prompt)"
            r"|prompt (is )?too long|exceeds the (available )?context"
            r"|input token count|exceeds the context window|maximum prompt length"
            r"|exceed context limit|input is too long|all messages is too long"
            r"|maximum (allowed )?input length|range of input length should be"
            r"|max(imum)? input token limit|greater than the context length"
            r"|prompt token count of \d{1,12} exceeds|context window exceeds limit"
            r"|exceeded model token limit|total tokens exceeds the model"
            r"|longer than the (maximum model|model's context) length"
            r"|input length \(\d{1,12} tokens\) exceeds|context the overflows"
            r"|\bn_keep\b.{0,60}\bn_ctx\b|prompt exceeds max length"
            r"|`max_new_tokens` must be <=|`inputs` must have less than"
            r"|too many tokens: total number of tokens|less than max_seq_len",
            ContextTooLarge,
        ),
        (r"overloaded|over capacity", ProviderDown),
        (r"flagged as potentially violating", ContentPolicy),
        (
            # Not in quotation marks: there it is a value of the request.
            r"\A[^'\"`]{0,200}?(incorrect api key|invalid api key|api key not valid"
            r"|authentication fails)",
            InvalidKey,
        ),
        (
            r"\bmodels?\b.{0,200}?(not found|does not exist)|not a valid model id"
            r"|invalid model\b|supported api model names|not a chat model",
            ModelNotAvailable,
        ),
        (
            r"\bcredits\b|credit balance|\bbilling\b|spend(ing)? limit"
            r"|specified (workspace )?api usage limits"
            r"|insufficient (balance|funds|credit)",
            QuotaExhausted,
        ),
        # llama.cpp answers 500 to requests that are themselves wrong.
        (r"--jinja\b|\bmmproj\b|image input is not supported", BadRequest),
    )
)
_MODEL_ACCESS = re.compile(r"does not have access to (the )?model\b", re.IGNORECASE)
_FILES = re.compile(r"cached? ?content|access the file\b", re.IGNORECASE)
#: OpenRouter: the credit is too low for this request; smaller ones may be answered.
_SMALLER = re.compile(r"fewer max_tokens\b", re.IGNORECASE)
_STATUSES: dict[int, ErrorClass] = {
    401: InvalidKey,
    402: QuotaExhausted,
    403: InvalidKey,
    404: ModelNotAvailable,
    408: ProviderTimeout,
    409: TryAgain,
    412: QuotaExhausted,  # Fireworks: the account is suspended
    413: ContextTooLarge,
    425: TryAgain,
    429: RateLimited,
    498: ProviderDown,  # Groq: no capacity for the flex tier
    499: ProviderDown,  # Google: cancelled on its side
    504: ProviderTimeout,
    524: ProviderTimeout,  # Cloudflare, before the provider
}
_SENTENCES: dict[ErrorClass, str] = {
    BadResponse: "The model wrote a tool call that cannot be read; try again.",
}
#: A field that this model does not have and others may: OpenAI and its copies.
_NO_FIELD = re.compile(r"unsupported parameter|unsupported_parameter", re.IGNORECASE)
_NO_VALUE = re.compile(r"unsupported value|unsupported_value", re.IGNORECASE)
_FIELD = re.compile(r"[\w.\[\]-]{1,60}")
#: A picture with too many bytes or pixels for this host; not too many pictures.
TOO_LARGE_PICTURE = re.compile(
    r"image_(file_)?too_large|(?<!number of )\bimages?\b.{0,60}?"
    r"(too large|exceeds?\b.{0,40}?(max|limit|\d ?[mk]b))",
    re.IGNORECASE,
)
_REQUEST_FAULTS = ("invalid_request", "invalid_argument", "bad_request", "invalid_")


def classify(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    statuses: Mapping[int, ErrorClass] | None = None,
) -> LLMError:
    """Classify an HTTP answer of 4xx or 5xx.

    `statuses` overrides the usual meaning of statuses for this host.
    """
    report = parse_report(parse_body(body)).truncate()
    report.status = status if status >= 400 else report.status or status
    error = _error(report, statuses or {})
    lower = {name.lower(): value for name, value in headers.items()}
    error.request_id = request_id(lower) or report.request_id
    wait = retry_after(lower)
    error.retry_after = error.retry_after if wait is None else wait
    return error


def classify_error(error: Any, *, status: int | None = None) -> LLMError:
    """Classify an error object inside a stream, or inside an answer of status 200."""
    report = parse_report(error).truncate()
    report.status = status or report.status
    found = _error(report, {})
    found.request_id = report.request_id
    return found


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id of this request; `headers` has lower-case names."""
    sent = headers.keys()  # httpx looks through all headers for each one it gets
    # Behind a proxy Anthropic's answers have two ids; its support knows this one.
    own = headers["request-id"] if "request-id" in sent else ""
    if own.startswith("req_"):
        return own
    found = (headers[name] for name in _REQUEST_ID_HEADERS if name in sent)
    return next(filter(None, found), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait according to an error's headers (with lower-case names).

    Providers send `retry-after` with successful answers too; there it has no meaning.
    """
    now = _server_time(headers)
    stated = (
        _number(headers.get("retry-after-ms"), per_second=1000),
        _number(headers.get("retry-after")),
        _until(headers.get("retry-after"), now),
        _reset(headers, "requests"),
        _reset(headers, "tokens"),
    )
    waits = [
        wait
        for seconds in stated
        if seconds is not None and (wait := _limit_wait(seconds, now)) is not None
    ]
    # Azure sends "retry-after-ms: 0" beside "retry-after: 1".
    return next((wait for wait in waits if wait > 0), waits[0] if waits else None)


def _error(report: ErrorReport, statuses: Mapping[int, ErrorClass]) -> LLMError:
    error_class = _class(report, statuses)
    error = error_class(
        _sentence(report, error_class),
        detail=report.message[:_DETAIL_LIMIT],
        param=report.param,
        upstream_status=report.status,
        upstream_type=report.type,
        upstream_code=report.code,
        retry_after=_limit_wait(_delay_in_text(report.text), time.time()),
    )
    error.is_certain = _is_certain(error_class, report, statuses)
    return error


def _is_certain(
    error_class: ErrorClass, report: ErrorReport, statuses: Mapping[int, ErrorClass]
) -> bool:
    if error_class is InvalidKey:
        known = (_by_code(report.words), _by_status(report, statuses))
        return InvalidKey in known
    return error_class is not QuotaExhausted or not _SMALLER.search(report.text)


def _sentence(report: ErrorReport, error_class: ErrorClass) -> str:
    """A message that names the problem. "" if the class's own message does, or if the
    error is of no known kind."""
    if error_class is not BadRequest:
        return _SENTENCES.get(error_class, "")
    text = f"{report.code} {report.message}"
    if TOO_LARGE_PICTURE.search(text):
        return "A picture is too large for this model; send a smaller one."
    if not _FIELD.fullmatch(report.param or ""):
        return ""
    if _NO_FIELD.search(text):
        return f"This model does not support {report.param!r}; leave it out."
    if _NO_VALUE.search(text):
        return (
            f"This model does not support this value of {report.param!r}; choose"
            " another."
        )
    return ""


def _class(report: ErrorReport, statuses: Mapping[int, ErrorClass]) -> ErrorClass:
    known = _by_code(report.words)
    if known is RateLimited and report.status == 413:
        return ContextTooLarge  # Groq: more than a minute's tokens; waiting cannot help
    if known is RateLimited and "PerDay" in report.text:
        return QuotaExhausted  # Gemini: the day's quota
    if known in (ModelNotAvailable, InvalidKey) and _FILES.search(report.text):
        return BadRequest  # Gemini: a file or cache of the request is missing
    if known is InvalidKey and _MODEL_ACCESS.search(report.text):
        return ModelNotAvailable
    if known is InvalidKey and report.status in statuses:
        known = None  # the host uses this status for something else
    return known or _by_message(report) or _by_status(report, statuses)


def _by_code(words: Sequence[str]) -> ErrorClass | None:
    for word in words:
        if known := _CODES.get(word):
            return known
        for prefix, error_class in _CODE_PREFIXES:
            if word.startswith(prefix):
                return error_class
    # OpenAI adds codes: "bio_policy", "misalignment_policy_violation".
    return ContentPolicy if any("policy" in word for word in words) else None


def _by_message(report: ErrorReport) -> ErrorClass | None:
    for pattern, error_class in _MESSAGES:
        if _is_about_field(report, error_class):
            continue
        if pattern.search(report.text):
            return error_class
    return None


def _is_about_field(report: ErrorReport, error_class: ErrorClass) -> bool:
    """Whether fields of the request are meant, e.g. a tool named "credits"."""
    if error_class is ModelNotAvailable:
        return report.param not in (None, "model")
    if error_class not in (InvalidKey, QuotaExhausted):
        return False
    is_invalid = report.status == HTTPStatus.UNPROCESSABLE_ENTITY
    return is_invalid or report.param is not None or report.is_about_fields


def _by_status(report: ErrorReport, statuses: Mapping[int, ErrorClass]) -> ErrorClass:
    status = report.status
    if status is None or status < 400:
        fault = any(word.startswith(_REQUEST_FAULTS) for word in report.words)
        return BadRequest if fault else ProviderDown
    if known := statuses.get(status) or _STATUSES.get(status):
        return known
    return BadRequest if status < 500 else ProviderDown


# Times


def _number(text: str | None, per_second: int = 1) -> float | None:
    try:
        seconds = float(text or "") / per_second
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _server_time(headers: Mapping[str, str]) -> float:
    """The time by the server's own clock where it sends it."""
    sent = _timestamp(headers.get("date"))
    return time.time() if sent is None else sent


def _until(text: str | None, now: float) -> float | None:
    """Seconds until a date."""
    end = _timestamp(text)
    return None if end is None else max(0.0, end - now)


def _timestamp(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text or "").timestamp()
    except (ValueError, OverflowError):
        return None


def _limit_wait(seconds: float | None, now: float) -> float | None:
    """A stated time as seconds to wait, at most a day: some hosts send a Unix time
    instead of a duration. None for one that cannot be meant."""
    if seconds is None:
        return None
    if seconds >= 1000 * _EPOCH:
        seconds /= 1000
    if seconds >= _EPOCH:
        seconds = max(0.0, seconds - now)
    return min(seconds, _MAX_WAIT) if seconds < _NO_WAIT else None


def _reset(headers: Mapping[str, str], unit: str) -> float | None:
    """When the exhausted rate limit is renewed: "17.39s", "6m0s", seconds, or a Unix
    time."""
    if headers.get(f"x-ratelimit-remaining-{unit}") != "0":
        return None
    text = headers.get(f"x-ratelimit-reset-{unit}", "")
    if len(text) > _MAX_TIME:
        return None
    return _duration(text) or _number(text)


#: Bounded repetition: with `\d+` a text of digits would be scanned from each digit to
#: its end.
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
_DELAY_PATTERN = re.compile(
    r'"retryDelay":\s{0,20}"([\d.]{1,40}s)"'
    r"|(?:try again|retry) in ((?:[\d.]{1,40}(?:ms|s|m|h)){1,8})"
)


def _duration(text: str) -> float | None:
    parts = _DURATION.findall(text)
    return sum(float(n) * _SECONDS[unit] for n, unit in parts) if parts else None


def _delay_in_text(text: str) -> float | None:
    """Gemini's RetryInfo, or "Please try again in 1.574s" of OpenAI and Groq."""
    match = _DELAY_PATTERN.search(text)
    return _duration(match[1] or match[2]) if match else None


def is_error_list(data: Any) -> bool:
    """Whether it is an error as Google wraps it: in a list of one."""
    first = data[0] if isinstance(data, list) and data else None
    return isinstance(first, dict) and bool(first.get("error"))
