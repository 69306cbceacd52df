"""Every model call names who made it, whatever entry point the request came through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.integration.clients import events_of_turn, sign_in
from tests.integration.clients import socket as page_socket
from tests.integration.gateway.programs import FAST, PATIENCE, Gateway, events_of

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT, ANTHROPIC = "/chat/completions", "/messages"
TAGS = {"parley": {"tags": ["team:red", "batch"]}}
NAMED = {"token": "token", "end_user": "eve", "tags": "batch,team:red"}
_COLUMNS = "'our_request_id', 'client_request_id', 'token_label', 'end_user', 'tags'"

#: Path, fields of the request, and what its row must say beside both request ids.
ENTRY_POINTS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "chat": (CHAT, {"messages": MESSAGES, "user": "eve", **TAGS}, NAMED),
    "chat, with the newer field": (
        CHAT,
        {"messages": MESSAGES, "safety_identifier": "eve", "user": "old", **TAGS},
        NAMED,
    ),
    "chat, streamed": (
        CHAT,
        {"messages": MESSAGES, "user": "eve", "stream": True, **TAGS},
        NAMED,
    ),
    "messages": (
        ANTHROPIC,
        {
            "messages": MESSAGES,
            "max_tokens": 50,
            "metadata": {"user_id": "eve"},
            **TAGS,
        },
        NAMED,
    ),
    "unstored response": (
        "/responses",
        {"input": "Hi", "store": False, "safety_identifier": "eve", **TAGS},
        NAMED,
    ),
    "stored response": ("/responses", {"input": "Hi", "user": "eve", **TAGS}, NAMED),
    "compaction": (
        "/responses/compact",
        {"input": "Hi", "user": "eve", **TAGS},
        NAMED,
    ),
    "a client that names nobody": (
        CHAT,
        {"messages": MESSAGES},
        {"token": "token", "end_user": "", "tags": ""},
    ),
    "a call that fails": (
        CHAT,
        {"messages": [{"role": "user", "content": "/fail 400"}], "user": "eve", **TAGS},
        NAMED,
    ),
}


def rows(gateway: Gateway, condition: str) -> list[dict[str, Any]]:
    """Rows of calls, once they are written: that of a stateless response follows it."""
    found = (
        f"__import__('json').dumps(list(ModelCall.objects.filter({condition})"
        f".values('turn_id', 'token_id', 'user__username', {_COLUMNS})))"
    )
    for _ in range(PATIENCE):
        if read := json.loads(gateway.rows(found)):
            return list(read)
    raise AssertionError(f"no call has {condition}")


def assert_named(row: dict[str, Any], expected: dict[str, str]) -> None:
    assert row["user__username"] == "admin"
    assert (row["token_id"] is not None) == bool(expected["token"])
    named = {"token": row["token_label"], "end_user": row["end_user"]}
    assert {**named, "tags": row["tags"]} == expected


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_request_s_ids_find_its_row_which_names_the_caller(
    gateway: Gateway, entry_point: str
):
    path, fields, expected = ENTRY_POINTS[entry_point]
    theirs = f"mine-{entry_point.replace(' ', '-')}"
    sent = {"model": FAST, **fields}
    answer = gateway.post(path, sent, **{"x-request-id": theirs})
    ours = answer.headers["x-request-id"]
    assert ours != theirs
    [row] = rows(gateway, f"client_request_id={theirs!r}")
    assert row["our_request_id"] == ours
    assert_named(row, expected)


@pytest.mark.parametrize("store", [False, True])
async def test_a_response_over_a_websocket_is_found_by_its_id(
    gateway: Gateway, store: bool
):
    headers = {"Authorization": f"Bearer {gateway.token}", "x-request-id": f"ws{store}"}
    url = f"{gateway.server.ws_url}/v1/responses"
    body = {"type": "response.create", "model": FAST, "input": "Hi", "user": "eve"}
    async with connect(url, additional_headers=headers) as socket:
        await socket.send(json.dumps({**body, "store": store, **TAGS}))
        events = [event async for event in events_of(socket)]
    found = events[-1]["response"]["id"]
    [row] = rows(gateway, f"client_request_id='ws{store}'")
    assert found == (row["turn_id"] if store else row["our_request_id"])
    assert_named(row, NAMED)


def test_a_message_over_rest_names_its_caller(gateway: Gateway):
    root = f"{gateway.server.url}/api/conversations/"
    conversation = gateway.post(root, {}).json()["id"]
    said = {"input": "Hi", "end_user": "eve", "tags": ["team:red", "batch"]}
    answer = gateway.post(
        f"{root}{conversation}/turns/",
        {**said, "model": FAST, "wait": True},
        **{"x-request-id": "over-rest"},
    )
    [row] = rows(gateway, "client_request_id='over-rest'")
    assert row["turn_id"] == answer.json()["id"]
    assert row["our_request_id"].startswith("req_")
    assert_named(row, NAMED)


async def test_a_message_of_the_page_names_its_user(gateway: Gateway):
    root = f"{gateway.server.url}/api/conversations/"
    conversation = gateway.post(root, {}).json()["id"]
    cookie = await sign_in(gateway.server, "admin")
    async with page_socket(gateway.server, conversation, cookie) as socket:
        await socket.send(
            json.dumps({"type": "turn.create", "input": "Hi", "model": FAST})
        )
        queued = json.loads(await socket.recv())
        async for _ in events_of_turn(socket, queued["turn"]):
            pass
    [row] = rows(gateway, f"turn_id={queued['turn']!r}, purpose='answer'")
    assert_named(row, {"token": "", "end_user": "", "tags": ""})


@pytest.mark.parametrize(
    "tags", [["a b"], [""], ["x" * 65], [f"t{n}" for n in range(9)], "a", [1], ["é,a"]]
)
def test_tags_that_no_row_can_have_are_refused(gateway: Gateway, tags: Any):
    body = {"model": FAST, "messages": MESSAGES, "parley": {"tags": tags}}
    answer = gateway.post(CHAT, body)
    assert answer.status_code == 400
    assert "tags" in answer.json()["error"]["message"]


def test_tags_may_come_in_a_header(gateway: Gateway):
    headers = {"x-request-id": "tagged", "x-parley-tags": "b, a"}
    gateway.post(CHAT, {"model": FAST, "messages": MESSAGES}, **headers)
    [row] = rows(gateway, "client_request_id='tagged'")
    assert row["tags"] == "a,b"
    headers = {"x-parley-tags": "a b"}
    refused = gateway.post(CHAT, {"model": FAST, "messages": MESSAGES}, **headers)
    assert refused.status_code == 400


def test_what_cannot_be_printed_is_no_name(gateway: Gateway):
    body = {"model": FAST, "messages": MESSAGES, "user": "e\u0000v\ne" * 100}
    gateway.post(CHAT, body, **{"x-request-id": "r" * 3000})
    [row] = rows(gateway, "client_request_id='" + "r" * 200 + "'")
    assert row["end_user"] == ""
