from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import (
    MAX_MESSAGE_LENGTH,
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
)
from llm.wire.facades.errors import (
    anthropic_body,
    anthropic_error_of,
    body_of,
    error_to_store,
    headers_of,
    openai_body,
    openai_error_of,
    restore_error,
)
from llm.wire.items import Event
from llm.wire.response_builder import ResponseBuilder

ERRORS: list[tuple[type[LLMError], str, str]] = [
    (BadRequest, "E_LLM_BAD_REQUEST", "invalid_request_error"),
    (InvalidKey, "provider_authentication_failed", "api_error"),
    (ContextTooLarge, "context_length_exceeded", "invalid_request_error"),
    (ModelNotAvailable, "model_not_found", "not_found_error"),
    (ContentPolicy, "content_policy_violation", "invalid_request_error"),
    (QuotaExhausted, "insufficient_quota", "rate_limit_error"),
    (RateLimited, "rate_limit_exceeded", "rate_limit_error"),
    (ProviderDown, "E_LLM_PROVIDER_DOWN", "api_error"),
    (ProviderTimeout, "E_LLM_TIMEOUT", "timeout_error"),
    (BadResponse, "E_LLM_BAD_RESPONSE", "api_error"),
]
each_error = pytest.mark.parametrize(("kind", "code", "type"), ERRORS)


@each_error
def test_each_dialect_has_its_own_envelope(kind: type[LLMError], code: str, type: str):
    error = kind("It failed.", param="model", detail="the provider's own words")
    assert body_of(error, "openai") == {
        "error": {
            "message": "It failed.",
            "type": kind.type,
            "param": "model",
            "code": code,
        }
    }
    assert body_of(error, "anthropic", "req_1") == {
        "type": "error",
        "error": {"type": type, "message": "It failed."},
        "request_id": "req_1",
    }


@each_error
def test_inside_a_stream_it_is_the_same(kind: type[LLMError], code: str, type: str):
    failed = {"error": {"code": kind.code, "message": "It failed."}}
    error = openai_error_of(failed)
    assert {"error": error} == body_of(kind("It failed."), "openai")
    assert anthropic_error_of(failed)["error"]["type"] == type


def test_an_unknown_error_is_an_internal_error():
    failed = {"error": {"code": "E_NEW", "message": "Hm."}}
    assert openai_error_of(failed)["type"] == "server_error"
    assert anthropic_error_of(failed)["error"]["type"] == "api_error"
    assert anthropic_error_of({})["error"]["message"] == "The model call failed."


def test_a_status_without_an_error_of_ours_has_a_body_too():
    assert anthropic_body(401, "No.")["error"]["type"] == "authentication_error"
    assert anthropic_body(418, "No.")["error"]["type"] == "invalid_request_error"
    assert openai_body("No.", type="invalid_request_error", code="invalid_api_key") == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }


def test_sdks_learn_whether_and_when_to_retry():
    assert headers_of(RateLimited(retry_after=1.2)) == {
        "x-should-retry": "true",
        "retry-after": "2",
    }
    assert headers_of(BadRequest()) == {"x-should-retry": "false"}
    assert headers_of(RateLimited(retry_after=86_400)) == {
        "x-should-retry": "false",
        "retry-after": "86400",
    }


def ending(error: LLMError) -> list[Event]:
    builder = ResponseBuilder(id="resp_1", model="m", created_at=0)
    builder.start()
    return builder.fail(error)


@each_error
@given(
    message=st.text(min_size=1),
    param=st.none() | st.text(),
    seconds=st.none() | st.floats(0, 1e6),
)
def test_a_stored_error_is_restored_unchanged(
    kind: type[LLMError],
    code: str,
    type: str,
    message: str,
    param: str | None,
    seconds: float | None,
):
    last_event = ending(kind(message, param=param, retry_after=seconds))
    stored = error_to_store(last_event)
    assert stored is not None
    again = ending(restore_error(**orjson.loads(orjson.dumps(stored))))
    assert [e.get("error") for e in again] == [e.get("error") for e in last_event]
    assert again[-1]["response"]["error"] == last_event[-1]["response"]["error"]


def test_a_successful_call_stores_no_error():
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.start()
    assert error_to_store(builder.complete()) is None


def test_an_error_quotes_only_up_to_a_limit():
    error = BadRequest(f"{50_000 * 'x'} is unknown.", param=50_000 * "y")
    assert (len(str(error)), len(error.param or "")) == (
        MAX_MESSAGE_LENGTH + 1,
        MAX_MESSAGE_LENGTH,
    )


def test_what_a_host_said_of_the_staff_s_account_is_not_repeated():
    fields = {"detail": "Limit of org-Ab12Cd34Ef56: 10", "upstream_status": 429}
    assert RateLimited(**fields).host_report["message"] == "Limit of …: 10"
    for kind in (InvalidKey, QuotaExhausted):
        assert kind(**fields).host_report == {}


def test_a_fault_of_the_host_repeats_nothing_of_its_body():
    error = ProviderDown(detail="Traceback …", upstream_status=500)
    assert error.host_report == {}
    assert "Traceback" not in str(body_of(error, "openai"))
    assert "Traceback" not in str(body_of(error, "anthropic"))


def test_our_own_sentence_stays_before_that_of_the_host():
    error = ContextTooLarge(detail="prompt is too long", upstream_status=400)
    message = body_of(error, "anthropic")["error"]["message"]
    assert message == f"{ContextTooLarge()} The host's message: prompt is too long"
    error = BadRequest(detail="No.", upstream_status=422, upstream_code="no_good")
    body = body_of(error, "openai")["error"]
    assert (body["message"], body["code"]) == ("No.", "no_good")
