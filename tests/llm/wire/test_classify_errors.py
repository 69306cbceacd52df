from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from llm.keys.selection import verdict_of
from llm.wire.classify_errors import classify, classify_error, request_id, retry_after

#: As OpenRouter says it.
TOO_FEW_CREDITS = (
    "This request requires more credits, or fewer max_tokens. You requested up to"
    " 64000 tokens, but can only afford 1234."
)


def error_for(status: int, body: object, **headers: str) -> LLMError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(status, named, data)


def openai(code: str | None, message: str = "", type: str = "invalid_request_error"):
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic(type: str, message: str):
    return {"type": "error", "error": {"type": type, "message": message}}


def google(code: int, status: str, message: str):
    return {"error": {"code": code, "message": message, "status": status}}


WORDS = "How do credits work? Your billing is overloaded: no model was not found."
INVALID = {"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Not permitted"}
#: As `str` of a pydantic ValidationError writes it.
INVALID_TEXT = (
    "2 validation errors for Request\nmessages.0.content\n  Input should be a valid"
    " string [type=string_type, input_value={'a': 'credits, input_type=str] billing'}"
    ", input_type=dict]\nx\n  Not permitted [type=extra_forbidden, input_value='What"
    " are credits? I am out of credits', input_type=str]\n    For further information"
)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    "body",
    [
        # Mistral
        {"object": "error", "message": {"detail": [{**INVALID, "input": WORDS}]}},
        # FastAPI
        {"detail": [{**INVALID, "input": [{"type": "text", "text": WORDS}]}]},
        {"detail": [{**INVALID, "ctx": {"given": WORDS}}]},
        # vLLM
        {"error": {"message": str([{**INVALID, "input": {"content": WORDS}}])}},
        {"message": json.dumps({"detail": [{**INVALID, "input": WORDS}]})},
        {"detail": json.dumps(json.dumps([{**INVALID, "input": WORDS}]))},
        # Servers written in Python
        {"error": {"message": INVALID_TEXT}},
        {"error": INVALID_TEXT},
        {"detail": [{"msg": INVALID_TEXT}]},
        INVALID_TEXT,
        INVALID_TEXT[: INVALID_TEXT.rindex("', input_type")],
    ],
)
def test_quoted_words_of_the_request_are_not_words_of_the_host(
    status: int, body: object
):
    found = error_for(status, body)
    assert type(found) is BadRequest
    assert verdict_of(found) is None
    assert "credits" not in found.detail
    assert "Not permitted" in found.detail


def test_an_invalid_field_is_no_matter_of_money():
    assert type(error_for(422, {"message": "Unknown field: credits"})) is BadRequest
    body = {"detail": [{**INVALID, "msg": "credits are not permitted"}]}
    assert type(error_for(400, body)) is BadRequest


def test_a_message_may_speak_of_the_input():
    text = "Invalid 'input': this model's maximum context length is 8 tokens."
    found = error_for(400, openai(None, text))
    assert type(found) is ContextTooLarge
    assert found.detail == text


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        # by code or type
        (429, openai("insufficient_quota", type="insufficient_quota"), QuotaExhausted),
        (429, openai("project_spend_limit_exceeded"), QuotaExhausted),
        (400, openai("context_length_exceeded"), ContextTooLarge),
        (404, openai("model_not_found"), ModelNotAvailable),
        (401, openai("invalid_api_key"), InvalidKey),
        (429, openai("rate_limit_exceeded", type="tokens"), RateLimited),
        (413, openai("rate_limit_exceeded", type="tokens"), ContextTooLarge),
        (400, openai("content_filter"), ContentPolicy),
        (400, openai("tool_use_failed"), BadResponse),
        (503, openai("server_is_overloaded"), ProviderDown),
        (404, {"error": {"code": "DeploymentNotFound"}}, ModelNotAvailable),
        (429, {"error": {"code": "RateLimitReached"}}, RateLimited),
        (400, {"error": {"type": "exceed_context_size_error"}}, ContextTooLarge),
        (400, {"error": {"type": "too_many_prompt_tokens"}}, ContextTooLarge),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, ProviderDown),
        (
            400,
            {"object": "error", "type": "invalid_model", "code": "1500"},
            ModelNotAvailable,
        ),
        (
            400,
            {"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}},
            InvalidKey,
        ),
        (403, google(403, "PERMISSION_DENIED", "No such project."), InvalidKey),
        (
            403,
            google(
                403,
                "PERMISSION_DENIED",
                "You do not have permission to access the File a or it may not exist.",
            ),
            BadRequest,
        ),
        (
            403,
            google(403, "PERMISSION_DENIED", "CachedContent not found (or denied)."),
            BadRequest,
        ),
        (404, google(404, "NOT_FOUND", "Cached content 1 is expired."), BadRequest),
        (404, google(404, "NOT_FOUND", "models/x is not found."), ModelNotAvailable),
        (
            400,
            google(400, "FAILED_PRECONDITION", "User location is not supported."),
            BadRequest,
        ),
        (
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens (8).",
            ),
            ContextTooLarge,
        ),
        (499, google(499, "CANCELLED", "The operation was cancelled."), ProviderDown),
        (504, google(504, "DEADLINE_EXCEEDED", "Too late."), ProviderTimeout),
        (500, google(500, "INTERNAL", "An internal error."), ProviderDown),
        (
            400,
            {"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            ContentPolicy,
        ),
        (
            502,
            {"error": {"code": 502, "metadata": {"error_type": "provider_overloaded"}}},
            ProviderDown,
        ),
        # by message
        (
            400,
            {"code": "invalid-argument", "error": "Incorrect API key provided."},
            InvalidKey,
        ),
        (400, {"error": {"message": "x is not a valid model ID"}}, ModelNotAvailable),
        (400, {"error": "Model not found: grok-9"}, ModelNotAvailable),
        (400, openai(None, "prompt too long; exceeded max"), ContextTooLarge),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8 tokens"}},
            ContextTooLarge,
        ),
        (400, {"error": {"message": "Your credit balance is too low"}}, QuotaExhausted),
        (403, {"error": "Your team has used all available credits"}, QuotaExhausted),
        (
            500,
            {"error": {"code": 500, "message": "tools param requires --jinja flag"}},
            BadRequest,
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error":"prompt is too long: 9 tokens"}'},
                }
            },
            ContextTooLarge,
        ),
        (
            400,
            openai(
                "invalid_prompt",
                "Invalid prompt: your prompt was flagged as potentially violating our"
                " usage policy. Please try again with a different prompt.",
            ),
            ContentPolicy,
        ),
        (400, openai("invalid_prompt", "Invalid prompt."), BadRequest),
        (400, openai("cyber_policy", "This request was refused."), ContentPolicy),
        (
            400,
            anthropic(
                "invalid_request_error",
                "You have reached your specified workspace API usage limits. You will"
                " regain access on 2026-12-01 at 00:00 UTC.",
            ),
            QuotaExhausted,
        ),
        (
            403,
            anthropic(
                "permission_error",
                "Your organization does not have access to the model claude-x.",
            ),
            ModelNotAvailable,
        ),
        (403, anthropic("permission_error", "Not allowed."), InvalidKey),
        # by status
        (400, openai("unsupported_parameter"), BadRequest),
        (401, {"error": "Unauthorized"}, InvalidKey),
        (401, {"detail": "Invalid API Key"}, InvalidKey),
        (402, {}, QuotaExhausted),
        (403, b"", InvalidKey),
        (404, {"error": {"code": "404"}}, ModelNotAvailable),
        (408, b"", ProviderTimeout),
        (409, b"", TryAgain),
        (413, b"", ContextTooLarge),
        (422, {"detail": [{"msg": "Field required"}]}, BadRequest),
        (429, b"slow down", RateLimited),
        (498, b"", ProviderDown),
        (500, b"<html>", ProviderDown),
        (504, b"", ProviderTimeout),
        (529, b"", ProviderDown),
    ],
)
def test_an_answer_gets_its_class(status: int, body: object, expected):
    error = error_for(status, body)
    assert type(error) is expected
    assert error.upstream_status == status


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "server_error", "code": None}, ProviderDown),
        ({"type": "tokens", "code": "rate_limit_exceeded"}, RateLimited),
        ({"type": "overloaded_error", "message": "Overloaded"}, ProviderDown),
        ({"type": "invalid_request_error", "code": "invalid_image"}, BadRequest),
        ({"code": 400, "message": "Token limit reached"}, BadRequest),
        ({"code": "bio_policy"}, ContentPolicy),
        ({"code": "cyber_policy"}, ContentPolicy),
        ({"code": "a_later_policy_of_theirs"}, ContentPolicy),
        ({"code": "tool_use_failed", "status_code": 400}, BadResponse),
        ({"code": 503, "status": "UNAVAILABLE"}, ProviderDown),
        ({"error": {"code": "insufficient_quota"}}, QuotaExhausted),
        ([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}], RateLimited),
        ("failed to decode", ProviderDown),
        (None, ProviderDown),
    ],
)
def test_an_error_inside_a_stream_gets_its_class(error: object, expected):
    assert type(classify_error(error)) is expected


@pytest.mark.parametrize(
    "code",
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
)
def test_an_error_about_the_request_is_not_tried_again(code: str):
    """In a stream there is no status, and often no type either."""
    assert type(classify_error({"code": code, "message": "No."})) is BadRequest


def test_a_permission_that_a_policy_refuses_is_about_the_key():
    body = google(403, "PERMISSION_DENIED", "Request is prohibited by the policy.")
    body["error"]["details"] = [{"reason": "SECURITY_POLICY_VIOLATED"}]
    assert type(error_for(403, body)) is InvalidKey


def test_a_daily_quota_is_no_matter_of_waiting():
    details = [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}]
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    assert type(error_for(429, body)) is QuotaExhausted


def test_a_tool_named_credits_is_no_matter_of_money():
    body = openai("invalid_function_parameters", "Invalid schema for 'credits'")
    body["error"]["param"] = "tools[0].function.parameters"
    assert type(error_for(400, body)) is BadRequest


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("Invalid value: 'invalid api key'. Supported values are: 'auto'.", None),
        ("Invalid value: invalid api key.", "service_tier"),
        ("Unknown name: the model x does not exist.", "tools[0].function.name"),
    ],
)
def test_a_quoted_value_of_the_request_is_no_matter_of_the_key(text, param):
    error = {"message": text, "type": "invalid_request_error", "param": param}
    assert type(error_for(400, {"error": error})) is BadRequest


@pytest.mark.parametrize(
    ("status", "error", "expected", "is_certain"),
    [
        (400, {"message": "Incorrect API key provided."}, InvalidKey, False),
        (401, {"message": "Incorrect API key provided."}, InvalidKey, True),
        (400, {"message": "No.", "code": "invalid_api_key"}, InvalidKey, True),
        (402, {"message": "Pay."}, QuotaExhausted, True),
        (402, {"message": TOO_FEW_CREDITS}, QuotaExhausted, False),
    ],
)
def test_words_alone_do_not_prove_that_the_account_is_at_fault(
    status: int, error: dict[str, str], expected: type[LLMError], is_certain: bool
):
    found = error_for(status, {"error": error})
    assert type(found) is expected
    assert found.is_certain is is_certain


def test_a_host_may_mean_something_else_by_a_status():
    error = classify(403, {}, b"{}", statuses={403: ContextTooLarge})
    assert type(error) is ContextTooLarge


def test_the_message_is_ours_and_the_detail_is_the_providers():
    error = error_for(
        401,
        openai("invalid_api_key", "Incorrect API key provided: sk-secret."),
        x_request_id="req_1",
    )
    assert str(error) == (
        "The provider refused the API key; ask the staff to check it."
    )
    assert error.detail == "Incorrect API key provided: sk-secret."
    assert (error.upstream_type, error.upstream_code) == (
        "invalid_request_error",
        "invalid_api_key",
    )
    assert error.request_id == "req_1"


def test_a_failed_tool_call_has_its_own_sentence():
    assert str(error_for(400, openai("tool_use_failed"))) == (
        "The model wrote a tool call that cannot be read; try again."
    )


def test_the_invalid_parameter_is_stored():
    body = openai("unsupported_parameter")
    body["error"]["param"] = "temperature"
    assert error_for(400, body).param == "temperature"


def test_an_error_in_an_answer_of_200_has_the_status_it_claims():
    body = {"error": {"code": "content_filter", "status": 400, "type": None}}
    error = error_for(200, body)
    assert (type(error), error.upstream_status, error.upstream_type) == (
        ContentPolicy,
        400,
        None,
    )


#: An exhausted rate limit, at 1792567620 by the server's clock.
RESET = {
    "x-ratelimit-remaining-requests": "0",
    "date": "Wed, 21 Oct 2026 07:27:00 GMT",
}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1574", "retry-after": "2"}, 1.574),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1),
        ({"retry-after": "20"}, 20),
        ({"retry-after": "0"}, 0),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:00 GMT",
                "date": "Wed, 21 Oct 2026 07:27:00 GMT",
            },
            60,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e300"}, None),
        ({"retry-after": "900000"}, 86_400),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "1e300", "retry-after-ms": "900"}, 0.9),
        ({**RESET, "x-ratelimit-reset-requests": "1792567680"}, 60),
        ({**RESET, "x-ratelimit-reset-requests": "1792567680000"}, 60),
        ({**RESET, "x-ratelimit-reset-requests": "1792567620"}, 0),
        ({**RESET, "x-ratelimit-reset-requests": "1e300"}, None),
        (
            {
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1m2.5s",
            },
            62.5,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "7",
            },
            7,
        ),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "1s"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_by_the_headers(headers: dict[str, str], seconds):
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"error": {"details": [{"retryDelay": "34.4s"}]}}, 34.4),
        (openai(None, "Please try again in 1m1.5s. Visit"), 61.5),
        (openai(None, "Please try again in 250ms."), 0.25),
        (openai(None, "Please try again later."), None),
        (openai(None, f"Please try again in {'9' * 40}s."), None),
    ],
)
def test_how_long_to_wait_by_the_body(body: object, seconds):
    assert error_for(429, body).retry_after == seconds


def test_the_header_goes_before_the_body():
    assert (
        error_for(429, openai(None, "try again in 9s"), retry_after="2").retry_after
        == 2
    )


@pytest.mark.parametrize(
    ("headers", "id"),
    [
        ({"apim-request-id": "a", "x-request-id": "b"}, "b"),
        ({"request-id": "c"}, "c"),
        ({"mistral-correlation-id": "d"}, "d"),
        ({"x-request-id": "", "x-generation-id": "e"}, "e"),
        ({"server": "x"}, None),
    ],
)
def test_the_request_id_is_found(headers: dict[str, str], id: str | None):
    assert request_id(headers) == id


def test_header_names_may_be_written_in_any_case():
    error = classify(429, {"Retry-After": "3", "X-Request-ID": "r"}, b"")
    assert (error.retry_after, error.request_id) == (3, "r")


def test_anthropics_own_request_id_is_preferred():
    headers = {"x-request-id": "proxy", "request-id": "req_1"}
    assert request_id(headers) == "req_1"
    assert request_id({**headers, "request-id": "other"}) == "proxy"


def test_the_body_may_contain_the_request_id():
    assert error_for(400, {"error": {"type": "x"}, "request_id": "r"}).request_id == "r"


def test_a_stored_detail_is_valid_text():
    error = classify_error({"message": "a\0b\ud83d", "code": "\ud83d"})
    assert (error.detail, error.upstream_code) == ("a\ufffdb\ufffd", "\ufffd")


def test_a_stored_detail_is_limited():
    assert len(error_for(500, b"<html>" * 100_000).detail) == 4000


FIELDS = ["error", "errors", "message", "code", "type", "status", "detail"]
FIELDS += ["metadata", "details", "innererror", "param", "request_id"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
        )
    ),
    max_leaves=8,
)


@given(json_values, st.sampled_from([None, 200, 400, 401, 413, 429, 500]))
def test_no_error_object_is_too_odd(error: object, status: int | None):
    assert isinstance(classify_error(error, status=status), LLMError)


@given(
    st.integers(100, 999),
    st.binary(max_size=80) | json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(
        st.sampled_from(["retry-after", "date", "retry-after-ms"]), st.text()
    ),
)
def test_no_answer_is_too_odd(status: int, body: bytes, headers: dict[str, str]):
    error = classify(status, headers, body)
    assert error.retry_after is None or error.retry_after >= 0
    assert str(error).endswith(".")
