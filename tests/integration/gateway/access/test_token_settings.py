"""What a token's owner sets: origins of pages, the store default, the request log."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.gateway.programs import FAST, PATIENCE, Gateway

ORIGIN = "https://app.example.org"
BODY = {"model": FAST, "messages": [{"role": "user", "content": "Hello"}]}


def issue(gateway: Gateway, **fields: Any) -> str:
    return gateway.rows(
        "AccessToken.issue(AccessToken.user.field.related_model.objects"
        f".get(username='admin'), 'settings', **{fields!r})[1]"
    )


def client(gateway: Gateway, token: str, **headers: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}", **headers}
    return httpx.Client(base_url=gateway.url, headers=headers, timeout=PATIENCE)


@pytest.fixture(scope="module")
def page_token(gateway: Gateway) -> str:
    return issue(gateway, allowed_origins=f"{ORIGIN}\nhttps://other.example.org")


def preflight(gateway: Gateway, origin: str, path: str) -> httpx.Response:
    return httpx.options(
        f"{gateway.url}{path}",
        headers={
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/models"])
def test_a_browser_may_ask_for_an_allowed_origin(
    gateway: Gateway, page_token: str, path: str
):
    answer = preflight(gateway, ORIGIN, path)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "authorization" in answer.headers["access-control-allow-headers"]
    refused = preflight(gateway, "https://evil.example.org", path)
    assert not [name for name in refused.headers if name.startswith("access-control")]


@pytest.mark.parametrize("stream", [False, True])
def test_the_page_may_read_the_answer(gateway: Gateway, page_token: str, stream: bool):
    with client(gateway, page_token, Origin=ORIGIN) as http:
        answer = http.post("/chat/completions", json={**BODY, "stream": stream})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
        wrong = http.post("/chat/completions", json={**BODY, "model": "none"})
        assert wrong.status_code == 404
        assert wrong.headers["access-control-allow-origin"] == ORIGIN


def test_a_token_is_for_the_pages_that_it_allows(gateway: Gateway, page_token: str):
    with client(gateway, page_token, Origin="https://evil.example.org") as http:
        answer = http.post("/chat/completions", json=BODY)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    # A token without origins is for programs, whatever they call themselves.
    with client(gateway, gateway.token, Origin=ORIGIN) as http:
        answer = http.post("/chat/completions", json=BODY)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_the_token_decides_what_is_stored(gateway: Gateway):
    with client(gateway, issue(gateway, stores_responses=False)) as http:
        body = {"model": FAST, "input": "Hello"}
        plain = http.post("/responses", json=body).json()
        assert plain["store"] is False
        assert http.get(f"/responses/{plain['id']}").status_code == 404
        for fields in ({"store": True}, {"background": True}):
            stored = http.post("/responses", json={**body, **fields}).json()
            assert http.get(f"/responses/{stored['id']}").status_code == 200


def test_responses_fill_no_chat_list_until_a_person_goes_on(gateway: Gateway):
    response = gateway.respond("Hello")
    pk = response["conversation"]["id"]
    rows = f"Conversation.objects.for_people().filter(pk={pk!r}).count()"
    assert gateway.rows(rows) == "0"
    with client(gateway, gateway.token) as http:
        http.base_url = gateway.server.url
        only = http.get("/api/conversations/?api=only&limit=200").json()["results"]
        assert pk in [row["id"] for row in only]
        without = http.get("/api/conversations/?api=no&limit=200").json()["results"]
        assert pk not in [row["id"] for row in without]
    gateway.rows(
        f"Conversation.objects.get(pk={pk!r}).open_turn([{{'type': 'message',"
        " 'role': 'user', 'content': [{'type': 'input_text', 'text': 'On'}]}])"
    )
    assert gateway.rows(rows) == "1"


def test_a_log_shows_requests_and_answers_without_keys(gateway: Gateway):
    token = gateway.rows(
        "(lambda made: (made[0].log_requests(on=True), made[1])[1])(AccessToken.issue("
        "AccessToken.user.field.related_model.objects.get(username='admin'), 'log'))"
    )
    secret = f"sk-{uuid4().hex}"
    mine = uuid4().hex
    with client(gateway, token, **{"x-request-id": mine}) as http:
        said = {**BODY, "messages": [{"role": "user", "content": f"Use {secret}"}]}
        answer = http.post("/chat/completions", json=said)
        stream = http.post("/chat/completions", json={**BODY, "stream": True})
        wrong = http.post("/chat/completions", json={**BODY, "model": "none"})
        http.base_url = gateway.server.url
        pk = gateway.rows("AccessToken.objects.filter(label='log').latest('pk').pk")
        rows: list[dict[str, Any]] = []
        while len(rows) < 3:  # written a moment after the answers
            rows = http.get(f"/api/tokens/{pk}/requests/").json()["results"]
        by_id = {row["request_id"]: row for row in rows}
        assert by_id.keys() == {
            each.headers["x-request-id"] for each in (answer, stream, wrong)
        }
        assert {row["client_request_id"] for row in rows} == {mine}
        row = by_id[answer.headers["x-request-id"]]
        found = http.get(f"/api/tokens/{pk}/requests/{row['id']}/").json()
        assert found["status"] == 200
        assert "Use " in found["request_text"]
        assert secret not in found["request_text"] + found["response_text"]
        assert "chat.completion" in found["response_text"]
        assert by_id[wrong.headers["x-request-id"]]["status"] == 404
        other = http.get(f"/api/tokens/{int(pk) - 1}/requests/")
        assert other.status_code in (403, 404)


def test_without_the_log_nothing_is_kept(gateway: Gateway):
    answer = gateway.post("/chat/completions", BODY)
    found = gateway.rows(
        "LoggedRequest.objects.filter("
        f"request_id={answer.headers['x-request-id']!r}).count()"
    )
    assert found == "0"
