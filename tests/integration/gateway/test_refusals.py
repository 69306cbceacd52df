"""Every refusal in the shape of the caller's own API, with its true status."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import httpx
import pytest

from tests.integration.gateway.programs import FAST, Gateway, text_of

MESSAGE = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": FAST, "messages": MESSAGE},
    "/messages": {"model": FAST, "max_tokens": 9, "messages": MESSAGE},
    "/responses": {"model": FAST, "input": "hi"},
}
EVERY_API = pytest.mark.parametrize("path", BODIES)


def error_of(answer: Any, path: str) -> tuple[int, str | None, str]:
    """Status, OpenAI's code or Anthropic's type, and the sentence."""
    body = answer.json()
    assert answer.headers["x-request-id"].startswith("req_")
    if path.startswith("/messages"):
        assert body["type"] == "error"
        return answer.status_code, body["error"]["type"], body["error"]["message"]
    fields = body["error"].keys() - {"host"}  # what the host itself said
    assert fields == {"message", "type", "param", "code"}
    return answer.status_code, body["error"]["code"], body["error"]["message"]


@EVERY_API
def test_a_wrong_token(gateway: Gateway, path: str):
    for headers in (
        {"Authorization": "Bearer wrong"},
        {"Authorization": "", "x-api-key": "wrong"},
        {"Authorization": ""},
    ):
        answer = gateway.post(path, BODIES[path], **headers)
        status, code, _ = error_of(answer, path)
        assert status == 401
        assert code in ("invalid_api_key", "authentication_error")
        assert "www-authenticate" in answer.headers


@EVERY_API
def test_the_token_is_taken_from_either_header(gateway: Gateway, path: str):
    headers = {"Authorization": "", "x-api-key": gateway.token}
    assert gateway.post(path, BODIES[path], **headers).status_code == 200


@EVERY_API
def test_an_unknown_model(gateway: Gateway, path: str):
    answer = gateway.post(path, {**BODIES[path], "model": "no-such-model"})
    status, code, message = error_of(answer, path)
    assert (status, code) in [(404, "model_not_found"), (404, "not_found_error")]
    assert "'no-such-model'" in message
    long = gateway.post(path, {**BODIES[path], "model": 50_000 * "x"})
    assert error_of(long, path)[:2] == (status, code)
    assert len(long.content) < 400


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/responses", "not_found"),  # Open Responses has a word for it
        ("/chat/completions", "invalid_request_error"),  # and OpenAI has none
    ],
)
def test_the_type_of_what_there_is_not(gateway: Gateway, path: str, kind: str):
    answer = gateway.post(path, {**BODIES[path], "model": "no-such-model"})
    assert answer.json()["error"]["type"] == kind


@EVERY_API
@pytest.mark.parametrize("body", [b"{bad", b"[]", b"", b"\xff"])
def test_a_body_that_is_no_object(gateway: Gateway, path: str, body: bytes):
    assert error_of(gateway.post(path, body), path)[0] == 400


@EVERY_API
@pytest.mark.parametrize(
    "wrong",
    [
        {"model": None},
        {"model": 4},
        {"messages": "nope", "input": 42},
        {"messages": [4], "input": [4]},
        {"messages": [], "input": None},
        {"tools": "all"},
        {"tools": [{"type": "parley:tools", "names": "all"}]},
        {"tools": [{"type": "parley:tools", "names": ["no_such_tool"]}]},
        {"stream": "yes"},
        {"parley": 1},
        {"parley": {"receipts": "yes"}},
        {"temperature": "hot"},
    ],
)
def test_a_field_that_makes_no_sense(gateway: Gateway, path: str, wrong: Any):
    status, _, message = error_of(gateway.post(path, {**BODIES[path], **wrong}), path)
    assert status in (400, 404), message
    assert message


@EVERY_API
@pytest.mark.parametrize(
    ("wrong", "location"),
    [
        ({"parley": {"recipts": True}}, "parley.recipts"),
        ({"parley.recipts": True}, "parley.recipts"),
        ({"tools": [{"type": "parley:tools", "nmaes": []}]}, "tools[0].nmaes"),
    ],
)
def test_an_unknown_field_is_reported_with_its_path(
    gateway: Gateway, path: str, wrong: Any, location: str
):
    status, _, message = error_of(gateway.post(path, {**BODIES[path], **wrong}), path)
    assert status == 400
    assert location in message


def deflated(data: bytes) -> bytes:
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return bare.compress(data) + bare.flush()


PACKED = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}


@EVERY_API
@pytest.mark.parametrize("encoding", [*PACKED, "identity", "bare deflate"])
def test_a_packed_body_is_unpacked(gateway: Gateway, path: str, encoding: str):
    pack = {**PACKED, "identity": bytes, "bare deflate": deflated}[encoding]
    headers = {"Content-Encoding": encoding.removeprefix("bare ")}
    body = pack(json.dumps(BODIES[path]).encode())
    assert gateway.post(path, body, **headers).status_code == 200


@EVERY_API
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "nonsense"])
def test_another_packing_is_refused(gateway: Gateway, path: str, encoding: str):
    answer = gateway.post(path, b"{}", **{"Content-Encoding": encoding})
    status, _, message = error_of(answer, path)
    assert status == 415
    assert "gzip" in message
    assert "gzip" in answer.headers["accept-encoding"]


@EVERY_API
def test_no_more_is_unpacked_than_a_message_may_have(gateway: Gateway, path: str):
    bomb = gzip.compress(b" " * 200_000_000)
    answer = gateway.post(path, bomb, **{"Content-Encoding": "gzip"})
    assert error_of(answer, path)[0] == 413


@EVERY_API
@pytest.mark.parametrize("body", [b"{}", gzip.compress(b"{}", mtime=0)[:-9], b""])
def test_a_body_that_cannot_be_unpacked(gateway: Gateway, path: str, body: bytes):
    answer = gateway.post(path, body, **{"Content-Encoding": "gzip"})
    status, _, message = error_of(answer, path)
    assert status == 400
    if body:
        assert message == "The gzip body is truncated or damaged."


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "path", ["/chat/completions", "/responses", "/responses/x", "/messages", "/models"]
)
def test_an_address_without_the_prefix_is_explained(
    gateway: Gateway, path: str, method: str
):
    url = f"{gateway.server.url}{path}"
    answer = httpx.request(method, url, json={}, timeout=60)
    status, _, message = error_of(answer, path)
    assert status == 404
    assert f"'/v1{path}'" in message


def test_an_address_with_the_prefix_twice_is_explained(gateway: Gateway):
    answer = gateway.post("/v1/messages", {})
    status, _, message = error_of(answer, "/models")
    assert status == 404
    assert "'/v1/messages'" in message


def test_a_known_but_unsupported_field_is_named(gateway: Gateway):
    for field, value in {"n": 2, "logprobs": True}.items():
        path = "/chat/completions"
        status, _, message = error_of(
            gateway.post(path, {**BODIES[path], field: value}), path
        )
        assert status == 400
        assert field in message


def test_a_message_without_max_tokens(gateway: Gateway):
    body = {"model": FAST, "messages": MESSAGE}
    status, kind, message = error_of(gateway.post("/messages", body), "/messages")
    assert (status, kind) == (400, "invalid_request_error")
    assert "max_tokens" in message


@EVERY_API
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "status"), [("429", 429), ("500", 503)])
def test_an_error_before_the_first_byte_is_a_status(
    gateway: Gateway, path: str, stream: bool, fault: str, status: int
):
    text = f"/fail {fault}"
    fields = {"input": text} if path == "/responses" else {}
    if not fields:
        fields = {"messages": [{"role": "user", "content": text}]}
    answer = gateway.post(path, {**BODIES[path], **fields, "stream": stream})
    assert error_of(answer, path)[0] == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-should-retry"] == "true"
    assert answer.headers.get("retry-after") == ("2" if fault == "429" else None)


@pytest.mark.parametrize("store", [False, True])
def test_an_error_after_it_is_an_event_and_an_ending(gateway: Gateway, store: bool):
    body = {"model": FAST, "input": "/fail stream Count from 1 to 40", "store": store}
    events = [frame.event for frame in gateway.stream("/responses", body)]
    assert events[-3:-1] == ["error", "response.failed"]


NUMBER = {"type": "json_schema", "name": "number", "schema": {"type": "integer"}}
AS_NUMBER = {"text": {"format": NUMBER}}
MISFIT = ("E_LLM_BAD_RESPONSE", "two")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        (
            {"input": "/fail stream Count from 1 to 9", "store": True},
            "E_LLM_PROVIDER_DOWN",
            "1, 2",
        ),
        ({"input": "/echo two", "store": True, **AS_NUMBER}, *MISFIT),
    ],
)
def test_a_failed_response_carries_the_providers_message(
    gateway: Gateway, fields: dict[str, Any], code: str, message: str
):
    answer = gateway.post("/responses", {"model": FAST, **fields})
    body = answer.json()
    assert (answer.status_code, body["status"]) == (200, "failed")
    assert body["error"]["code"] == code
    assert text_of(body).startswith(message)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (
            "/chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": NUMBER}},
        ),
        ("/messages", {"output_config": {"format": NUMBER}}),
    ],
)
def test_other_apis_have_only_a_status_for_it(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    echo = {"messages": [{"role": "user", "content": "/echo two"}]}
    answer = gateway.post(path, {**BODIES[path], **echo, **fields})
    assert error_of(answer, path)[0] == 502


def test_a_plain_answer_that_is_cut_has_no_first_word(gateway: Gateway):
    body = {"model": FAST, "input": "/cut Count from 1 to 9", "store": False}
    assert gateway.post("/responses", body).status_code == 503


def test_a_cut_answer_is_no_clean_end(gateway: Gateway):
    text = "/cut Count from 1 to 40"
    body = {"model": FAST, "messages": [{"role": "user", "content": text}]}
    frames = list(gateway.stream("/chat/completions", body))
    chunks = [frame.json() for frame in frames if frame.data != b"[DONE]"]
    assert "error" in chunks[-1]
    finished = [c["choices"][0]["finish_reason"] for c in chunks if c.get("choices")]
    assert "stop" not in finished
    frames = list(gateway.stream("/messages", {**body, "max_tokens": 99}))
    assert [frame.event for frame in frames][-1] == "error"


def test_addresses_and_methods(gateway: Gateway):
    assert error_of(gateway.get("/nothing"), "")[:2] == (404, "unknown_url")
    assert error_of(gateway.get("/messages/nothing"), "/messages")[0] == 404
    refused = gateway.get("/chat/completions")
    assert error_of(refused, "")[:2] == (405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    with gateway.http(Authorization="") as http:
        assert http.head("/messages").status_code == 200
        assert http.head("/responses").content == b""
        assert http.head(gateway.server.url + "/").status_code == 200


def test_an_anthropic_header_changes_nothing_where_the_path_names_the_api(
    gateway: Gateway,
):
    headers = {"anthropic-version": "2023-06-01"}
    for path in ("/responses", "/chat/completions"):
        assert gateway.post(path, BODIES[path], **headers).status_code == 200
        assert error_of(gateway.post(path, {}, **headers), path)[0] == 400


def test_a_header_encodes_names_that_headers_cannot_carry(gateway: Gateway):
    tools = [{"type": "überfall\r\nx-evil: 1", "name": "a"}, {"type": "🦜"}]
    path = "/chat/completions"
    answer = gateway.post(path, {**BODIES[path], "tools": tools})
    assert answer.status_code == 200
    assert "x-evil" not in answer.headers
    assert answer.headers["x-parley-degraded"] == (
        r"tools (\xfcberfall\r\nx-evil: 1), tools (\U0001f99c)"
    )


@pytest.mark.parametrize(
    "query",
    [
        "stream=maybe",
        "starting_after=-2",
        "starting_after=x",
        "starting_after=" + "9" * 99,
    ],
)
def test_a_query_that_makes_no_sense(gateway: Gateway, query: str):
    id = gateway.respond("Reply with exactly: hi")["id"]
    status, _, sentence = error_of(gateway.get(f"/responses/{id}?{query}"), "")
    assert (status, query.partition("=")[0] in sentence) == (400, True)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=" + "9" * 99, "order=up", "after=msg_x"]
)
def test_a_page_that_makes_no_sense(gateway: Gateway, query: str):
    id = gateway.respond("Reply with exactly: hi")["id"]
    answer = gateway.get(f"/responses/{id}/input_items?{query}")
    assert error_of(answer, "")[0] == 400


def test_a_body_that_is_too_large(gateway: Gateway):
    big = b'{"model": "m", "input": "%b"}' % (b"x" * (21 * 1024 * 1024))
    assert error_of(gateway.post("/responses", big), "")[0] == 413
