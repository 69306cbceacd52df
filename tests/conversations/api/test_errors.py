from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from rest_framework.exceptions import Throttled

from conversations import engine
from conversations.api import urls, views
from conversations.engine import NotRunning
from conversations.models import Conversation, Item, Turn
from llm import router
from llm.errors import LLMError, QuotaExhausted, RateLimited
from tests.conversations.scene import (
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

JSON = "application/json"
DEEP = b'{"input": ' + b"[" * 200 + b"]" * 200 + b"}"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> Any:
    a_model(is_default=True)
    return a_user("ada")


@pytest.fixture
def api(ada: Any) -> Client:
    return program(ada, raise_request_exception=False)


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    return Conversation.objects.create(owner=ada)


def error_of(answer: Any) -> dict[str, Any]:
    """The error, which has OpenAI's shape whatever it is."""
    assert answer["Content-Type"] == JSON
    assert answer["X-Request-ID"].startswith("req_")
    body = json.loads(answer.content)
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.content.decode()
    return body["error"]


def input_with(**fields: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", **fields}]}


def part(**fields: Any) -> dict[str, Any]:
    return input_with(content=[fields])


BAD_BODIES: list[tuple[Any, int, str | None, str]] = [
    # not JSON, or no object
    (b"{", 400, None, "parse_error"),
    (b'{"input": NaN}', 400, None, "parse_error"),
    (b'{"input": "\xff"}', 400, None, "parse_error"),
    (b'{"input": "\\ud83d"}', 400, None, "parse_error"),
    (DEEP, 400, None, "parse_error"),
    (b"[" * 100_000, 400, None, "parse_error"),
    ([], 400, None, "parse_error"),
    ("Hi", 400, None, "parse_error"),
    (b"null", 400, None, "parse_error"),
    # fields
    (b"", 400, "input", "required"),
    ({}, 400, "input", "required"),
    ({"input": "Hi", "colour": "red"}, 400, "colour", "unknown_parameter"),
    ({"input": "Hi", "wait": "perhaps"}, 400, "wait", "invalid"),
    ({"input": "Hi", "stream": []}, 400, "stream", "invalid"),
    ({"input": "Hi", "wait": True, "stream": True}, 400, "stream", "invalid"),
    ({"input": "Hi", "model": 5}, 400, "model", "invalid"),
    ({"input": "Hi", "model": "no-such"}, 404, "model", "model_not_found"),
    ({"input": "Hi", "model": ""}, 404, "model", "model_not_found"),
    # input
    ({"input": None}, 400, "input", "null"),
    ({"input": 5}, 400, "input", "invalid_type"),
    ({"input": {"role": "user"}}, 400, "input", "invalid_type"),
    ({"input": ""}, 400, "input", "empty_message"),
    ({"input": " \n"}, 400, "input", "empty_message"),
    ({"input": []}, 400, "input", "empty_message"),
    ({"input": "x" * 1_048_576}, 413, "input", "input_too_large"),
    ({"input": "data:" + "x" * 1_048_576}, 413, "input", "input_too_large"),
    ({"input": "a\0b"}, 400, "input", "invalid_value"),
    ({"input": ["Hi"]}, 400, "input[0]", "invalid_type"),
    ({"input": [{}]}, 400, "input[0].type", "missing"),
    ({"input": [{"type": "spell"}]}, 400, "input[0].type", "unknown_item_type"),
    ({"input": [{"type": 5}]}, 400, "input[0].type", "unknown_item_type"),
    ({"input": [{"type": "message"}]}, 400, "input[0].role", "missing"),
    (input_with(), 400, "input[0].content", "missing"),
    (input_with(content=""), 400, "input[0].content", "empty_message"),
    (input_with(content=[]), 400, "input[0].content", "empty_message"),
    (input_with(content={}), 400, "input[0].content", "invalid_type"),
    (input_with(content="Hi", mood="glad"), 400, "input[0].mood", "unknown_parameter"),
    (
        {"input": [{"role": "tool", "content": "Hi"}]},
        400,
        "input[0].role",
        "invalid_value",
    ),
    (
        {"input": [{"role": "user", "content": "Hi"}] * 501},
        400,
        "input",
        "invalid_value",
    ),
    (part(text="Hi"), 400, "input[0].content[0].type", "missing"),
    (part(type="smell"), 400, "input[0].content[0].type", "unknown_part_type"),
    (
        part(type="output_text", text="Hi"),
        400,
        "input[0].content[0].type",
        "unknown_part_type",
    ),
    (part(type="input_text"), 400, "input[0].content[0].text", "missing"),
    (part(type="input_text", text=5), 400, "input[0].content[0].text", "invalid_type"),
    (part(type="input_text", text=" "), 400, "input[0].content", "empty_message"),
    (
        part(type="input_image", image_url="file:///etc/passwd"),
        400,
        "input[0].content[0].image_url",
        "invalid_value",
    ),
    (
        part(type="input_image", image_url="data:image/png;base64,???"),
        400,
        "input[0].content[0].image_url",
        "invalid_value",
    ),
    (
        part(type="input_image", image_url="data:text/html;base64,AAAA"),
        400,
        "input[0].content[0].image_url",
        "invalid_value",
    ),
    (
        part(type="input_image", image_url=PIXEL, detail="fine"),
        400,
        "input[0].content[0].detail",
        "invalid_value",
    ),
    (part(type="input_file"), 400, "input[0].content[0]", "invalid_value"),
    (
        part(type="input_file", file_id="file_1"),
        400,
        "input[0].content[0].file_id",
        "unknown_file",
    ),
    (
        part(type="input_file", file_data="https://example.com/a.pdf"),
        400,
        "input[0].content[0].file_data",
        "invalid_value",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]},
        400,
        "input",
        "unknown_call",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "c"}]},
        400,
        "input[0].output",
        "missing",
    ),
    # options
    *(
        ({"input": "Hi", "options": options}, 400, f"options{param}", code)
        for options, param, code in [
            ([], "", "invalid_type"),
            ({"colour": 1}, ".colour", "unknown_parameter"),
            ({"temperature": "hot"}, ".temperature", "invalid_type"),
            ({"temperature": True}, ".temperature", "invalid_type"),
            ({"temperature": 2.1}, ".temperature", "invalid_value"),
            ({"top_p": -0.1}, ".top_p", "invalid_value"),
            ({"max_output_tokens": 1.5}, ".max_output_tokens", "invalid_type"),
            ({"max_output_tokens": 0}, ".max_output_tokens", "invalid_value"),
            ({"max_output_tokens": 10**30}, ".max_output_tokens", "invalid_type"),
            ({"reasoning": "high"}, ".reasoning", "invalid_type"),
            ({"reasoning": {"effort": "heroic"}}, ".reasoning.effort", "invalid_value"),
            ({"reasoning": {"how": 1}}, ".reasoning.how", "unknown_parameter"),
            ({"text": {"format": {}}}, ".text.format.type", "missing"),
            (
                {"text": {"format": {"type": "json_schema", "name": "a"}}},
                ".text.format.schema",
                "missing",
            ),
            ({"text": {"verbosity": 3}}, ".text.verbosity", "invalid_value"),
            ({"tool_choice": "maybe"}, ".tool_choice", "invalid_value"),
            ({"tool_choice": {"type": "function"}}, ".tool_choice.name", "missing"),
            ({"tool_choice": 5}, ".tool_choice", "invalid_type"),
            ({"parallel_tool_calls": 1}, ".parallel_tool_calls", "invalid_type"),
            ({"metadata": {"a": 1}}, ".metadata.a", "invalid_type"),
            ({"metadata": {"a": "x" * 513}}, ".metadata", "invalid_value"),
            (
                {"metadata": {str(n): "" for n in range(17)}},
                ".metadata",
                "invalid_value",
            ),
        ]
    ),
]


@pytest.mark.parametrize(("body", "status", "param", "code"), BAD_BODIES)
def test_a_bad_message_gets_one_clear_error(
    api: Client,
    conversation: Conversation,
    body: Any,
    status: int,
    param: str | None,
    code: str,
):
    raw = body if isinstance(body, bytes) else json.dumps(body)
    answer = api.post(reverse("api:turns", args=[conversation.pk]), raw, JSON)
    error = error_of(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert error["message"].endswith(".")
    assert len(error["message"]) < 400
    assert not Turn.objects.exists()
    assert not Item.objects.exists()


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"{", None, "parse_error"),
        ({"title": 5}, "title", "invalid"),
        ({"title": "x" * 201}, "title", "max_length"),
        ({"title": "a\0b"}, "title", "invalid_value"),
        ({"title": None}, "title", "null"),
        ({"instructions": []}, "instructions", "invalid"),
        ({"instructions": "x" * 1_000_001}, "instructions", "max_length"),
        ({"model": "no-such"}, "model", "model_not_found"),
        ({"options": {"heat": 1}}, "options.heat", "unknown_parameter"),
        ({"owner": 2}, "owner", "unknown_parameter"),
        ({"deleted_at": None}, "deleted_at", "unknown_parameter"),
    ],
)
def test_a_bad_conversation_gets_one_clear_error(
    api: Client, conversation: Conversation, body: Any, param: str | None, code: str
):
    raw = body if isinstance(body, bytes) else json.dumps(body)
    for answer in [
        api.post("/api/conversations/", raw, JSON),
        api.patch(reverse("api:conversation", args=[conversation.pk]), raw, JSON),
    ]:
        error = error_of(answer)
        assert answer.status_code in (400, 404)
        assert (error["param"], error["code"]) == (param, code)
    assert Conversation.objects.get().title == ""


def test_an_id_cannot_be_chosen(api: Client, conversation: Conversation):
    answer = api.post("/api/conversations/", {"id": conversation.pk}, JSON)
    assert answer.status_code == 201
    assert answer.json()["id"] != conversation.pk


@pytest.mark.parametrize("key", ["x" * 256, " ", "caf\x07"])
def test_a_bad_idempotency_key_is_refused(
    api: Client, conversation: Conversation, key: str
):
    url = reverse("api:turns", args=[conversation.pk])
    answer = api.post(url, {"input": "Hi"}, JSON, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "Idempotency-Key"
    assert not Turn.objects.exists()


@pytest.mark.parametrize(
    ("query", "header", "param"),
    [
        ("?after=seven", None, "after"),
        ("?after=1", None, "after"),
        ("?after=-1-2", None, "after"),
        ("?after=" + "1" * 40 + "-1", None, "after"),
        ("", "1:2", "Last-Event-ID"),
        ("?format=xml", None, "format"),
    ],
)
def test_a_bad_position_or_form_is_refused(
    api: Client,
    conversation: Conversation,
    query: str,
    header: str | None,
    param: str,
):
    turn = conversation.open_turn([]).turn
    headers = {"Last-Event-ID": header} if header else {}
    url = reverse("api:events", args=[turn.pk])
    answer = api.get(url + query, headers=headers)
    assert answer.status_code == 400
    assert error_of(answer)["param"] == param


@pytest.mark.parametrize(
    "query",
    [
        "cursor=x",
        "limit=0",
        "limit=all",
        "limit=201",
        "limit=\u0661",
        f"limit={'9' * 5000}",
    ],
)
def test_a_bad_page_is_refused(api: Client, query: str):
    answer = api.get(f"/api/conversations/?{query}")
    assert answer.status_code == 400
    assert error_of(answer)["param"] == query.partition("=")[0]


@pytest.mark.parametrize(
    ("method", "path", "content_type", "status", "code"),
    [
        ("GET", "/api/nothing/", JSON, 404, "not_found"),
        ("GET", "/api/turns/resp_unknown/", JSON, 404, "not_found"),
        ("GET", "/api/turns/%00/", JSON, 404, "not_found"),
        ("PUT", "/api/conversations/", JSON, 405, "method_not_allowed"),
        ("DELETE", "/api/models/", JSON, 405, "method_not_allowed"),
        ("POST", "/api/conversations/", "text/plain", 415, "unsupported_media_type"),
        (
            "POST",
            "/api/conversations/",
            "application/x-www-form-urlencoded",
            415,
            "unsupported_media_type",
        ),
    ],
)
def test_a_wrong_request_is_answered_in_the_same_shape(
    api: Client, method: str, path: str, content_type: str, status: int, code: str
):
    answer = api.generic(method, path, b"{}", content_type)
    error = error_of(answer)
    assert (answer.status_code, error["code"]) == (status, code)
    if status == 405:
        assert method not in answer["Allow"]


def test_a_body_beyond_the_limit_is_not_read_further(api: Client, settings: Any):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    answer = api.post("/api/conversations/", {"title": "x" * 2000}, JSON)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "request_too_large"


def test_a_body_of_too_many_values_is_not_parsed(api: Client):
    body = b'{"title": [' + b"[]," * 300_000 + b"0]}"
    answer = api.generic("POST", "/api/conversations/", body, JSON)
    assert answer.status_code == 413
    error = error_of(answer)
    assert error["code"] == "request_too_large"
    assert error["message"] == (
        "The request is too large: it has more than 250,000 values."
    )


def test_anonymous_requests_get_nothing(client: Client):
    answer = client.get("/api/conversations/")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == 'Bearer realm="api"'
    assert error_of(answer)["code"] == "not_authenticated"


def test_a_dead_conversation_takes_no_message(api: Client, conversation: Conversation):
    conversation.delete_softly()
    url = reverse("api:turns", args=[conversation.pk])
    answer = api.post(url, {"input": "Hi"}, JSON)
    assert answer.status_code == 404
    assert not Turn.objects.exists()


def test_without_any_model_the_message_is_not_stored(
    api: Client, conversation: Conversation
):
    model = conversation.language_model or router.available(None).get()
    model.enabled = False
    model.save()
    url = reverse("api:turns", args=[conversation.pk])
    answer = api.post(url, {"input": "Hi"}, JSON)
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "model_not_found"
    assert not Turn.objects.exists()


@pytest.mark.parametrize(
    ("raised", "status", "type", "code", "retry_after"),
    [
        (
            RateLimited("Slow down.", retry_after=2.4),
            429,
            "too_many_requests",
            "rate_limit_exceeded",
            "3",  # an earlier retry is too early
        ),
        (QuotaExhausted(), 429, "insufficient_quota", "insufficient_quota", None),
        (LLMError("It fails."), 502, "server_error", "E_LLM_PROVIDER_DOWN", None),
        (NotRunning(), 503, "server_error", "not_running", None),
        (Throttled(wait=3), 429, "too_many_requests", "throttled", "3"),
    ],
)
def test_an_error_has_its_own_status_and_code(
    api: Client,
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    status: int,
    type: str,
    code: str,
    retry_after: str | None,
):
    def fail(request: Any) -> None:
        raise raised

    monkeypatch.setattr(views, "_turns", fail)
    answer = api.get(reverse("api:turns", args=[conversation.pk]))
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["code"]) == (status, type, code)
    assert answer.headers.get("Retry-After") == retry_after


def test_an_internal_error_shows_only_its_request_id(
    api: Client,
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def fail(request: HttpRequest) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(views, "_turns", fail)
    answer = api.get(reverse("api:turns", args=[conversation.pk]))
    assert answer.status_code == 500
    error = error_of(answer)
    assert answer["X-Request-ID"] in error["message"]
    assert "secret" not in answer.content.decode()
    assert any(answer["X-Request-ID"] in line for line in caplog.messages)


def test_every_address_tells_its_methods(ada: Any):
    web = signed_in(ada)
    arguments = {"int": 1, "slug": "x", "str": "x", "uuid": uuid.UUID(int=1)}
    for each in urls.urlpatterns:
        names = re.findall(r"<(?:(\w+):)?(\w+)>", str(each.pattern))
        filled = {name: arguments[kind or "str"] for kind, name in names}
        answer = web.options(reverse(f"api:{each.name}", kwargs=filled))
        assert answer.status_code == 200, (each, answer.content)
        assert "OPTIONS" in answer["Allow"], each


def test_outside_the_api_errors_are_pages(ada: Any):
    answer = signed_in(ada).get("/no/such/page/")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")


def test_an_error_quotes_a_header_only_up_to_a_limit():
    answer = program(a_user("eve")).post(
        "/api/conversations/", b"{}", content_type="x" * 8000
    )
    assert answer.status_code == 415
    assert len(answer.content) < 1000
