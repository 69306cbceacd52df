"""Tools of ours that need a person's approval, called by programs."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.gateway.programs import FAST, Gateway, events_of
from tests.integration.gateway.test_stored_responses import until
from tests.recording import Recording, recording_server

PAY = {"type": "parley:tools", "names": ["pay"]}
ALL = {"type": "parley:tools"}
CALL = "/tool pay {}"
_ROWS = """
from django.contrib.auth.models import User
from conversations.models.access_token import AccessToken
from tools.models import HttpTool, Tool
user = User.objects.create_user("approver")
tool = Tool.objects.create(name="pay", kind="http", description="Pay.")
parameters = {{"type": "object", "properties": {{"euros": {{"type": "number"}}}}}}
HttpTool.objects.create(
    tool=tool,
    method="POST",
    url={url!r},
    networks="127.0.0.0/8",
    parameters=parameters,
)
scopes = ["chat", "gateway", "approve"]
print(AccessToken.issue(user, "approvals", scopes=scopes)[1])
"""
_FORGET = """
from django.contrib.auth.models import User
from tools.models import Tool
Tool.objects.filter(name="pay").delete()
User.objects.filter(username="approver").delete()
"""


@pytest.fixture(scope="module")
def bank() -> Iterator[Recording]:
    with recording_server() as recording:
        yield recording


@pytest.fixture
def payer(gateway: Gateway, bank: Recording) -> Iterator[Gateway]:
    bank.received.clear()
    payer = copy.copy(gateway)
    code = _ROWS.format(url=f"{bank.url}/pay")
    payer.token = gateway.server.manage("shell", "-v", "0", "-c", code).split()[-1]
    try:
        yield payer
    finally:
        gateway.server.manage("shell", "-v", "0", "-c", _FORGET)


def error_of(answer: Any) -> dict[str, Any]:
    return dict(answer.json()["error"])


def test_a_response_without_approval_refuses_such_a_tool_by_name(payer: Gateway):
    message = [{"role": "user", "content": CALL}]
    chat = {"model": FAST, "messages": message, "max_tokens": 99, "tools": [PAY]}
    plain = {"model": FAST, "input": CALL, "tools": [PAY]}
    for path, body in [
        ("/chat/completions", chat),
        ("/messages", chat),
        ("/responses", {**plain, "store": False}),
        ("/responses", plain),
    ]:
        answer = payer.post(path, body)
        assert answer.status_code == 403, (path, answer.text)
        assert "'pay' needs a person's approval" in error_of(answer)["message"]
    assert error_of(answer)["code"] == "tool_needs_approval"


def test_a_stream_is_refused_before_its_first_byte(payer: Gateway):
    message = [{"role": "user", "content": CALL}]
    chat = {"model": FAST, "messages": message, "max_tokens": 99, "tools": [PAY]}
    plain = {"model": FAST, "input": CALL, "tools": [PAY]}
    for path, body in [
        ("/chat/completions", chat),
        ("/messages", chat),
        ("/responses", {**plain, "store": False}),
        ("/responses", plain),
    ]:
        answer = payer.post(path, {**body, "stream": True})
        assert answer.status_code == 403, (path, answer.text)
        assert "'pay' needs a person's approval" in error_of(answer)["message"]


async def over_socket(payer: Gateway, **fields: Any) -> list[dict[str, Any]]:
    body = {"type": "response.create", "model": FAST, "input": CALL, **fields}
    async with payer.socket() as socket:
        await socket.send(json.dumps(body))
        return [event async for event in events_of(socket)]


@pytest.mark.parametrize("store", [True, False])
async def test_a_socket_refuses_such_a_tool_by_name_among_all(
    payer: Gateway, bank: Recording, store: bool
):
    [refused] = await over_socket(payer, tools=[PAY], store=store)
    assert refused["status"] == 403
    assert refused["error"]["code"] == "tool_needs_approval"
    degraded, *events = await over_socket(payer, tools=[ALL], store=store)
    assert degraded["type"] == "parley:request.degraded"
    assert "tools (pay: E_TOOL_NEEDS_APPROVAL)" in degraded["options"]
    assert events[-1]["type"] == "response.completed"
    assert bank.received == []


def test_among_all_tools_a_stream_names_those_it_refuses(
    payer: Gateway, bank: Recording
):
    message = [{"role": "user", "content": CALL}]
    chat = {"model": FAST, "messages": message, "max_tokens": 99, "tools": [ALL]}
    plain = {"model": FAST, "input": CALL, "tools": [ALL]}
    for path, body in [
        ("/chat/completions", chat),
        ("/messages", chat),
        ("/responses", {**plain, "store": False}),
        ("/responses", plain),
    ]:
        answer = payer.post(path, {**body, "stream": True})
        assert answer.status_code == 200, (path, answer.text)
        assert "pay: E_TOOL_NEEDS_APPROVAL" in answer.headers["x-parley-degraded"]
    assert bank.received == []


def test_among_all_tools_an_unstored_response_names_those_it_refuses(
    payer: Gateway, bank: Recording
):
    message = [{"role": "user", "content": CALL}]
    body = {"model": FAST, "messages": message, "max_tokens": 99, "tools": [ALL]}
    for path in ("/chat/completions", "/messages"):
        answer = payer.post(path, body)
        assert answer.status_code == 200, answer.text
        assert "pay: E_TOOL_NEEDS_APPROVAL" in answer.headers["x-parley-degraded"]
    assert bank.received == []


@pytest.mark.parametrize("store", [True, False])
def test_a_call_whose_arguments_need_approval_is_refused_by_name(
    payer: Gateway, bank: Recording, store: bool
):
    rule = {"required": ["euros"]}
    code = "from tools.models import Tool;"
    code += (
        f"Tool.objects.filter(name='pay').update(approval='rule', approval_rule={rule})"
    )
    payer.server.manage("shell", "-v", "0", "-c", code)
    options: dict[str, Any] = {"tools": [PAY], "store": store}
    options["parley"] = {"receipts": True}
    refused = payer.respond('/tool pay {"euros": 9}', **options)
    assert refused["status"] == "completed"
    assert "E_TOOL_NEEDS_APPROVAL: this call needs" in str(refused["output"])
    assert bank.received == []
    done = payer.respond(CALL, **options)
    assert "E_TOOL_NEEDS_APPROVAL" not in str(done["output"])
    assert len(bank.received) == 1


def question(payer: Gateway) -> dict[str, Any]:
    with payer.http() as http:
        while True:
            found = http.get(f"{payer.server.url}/api/questions/").json()
            if found:
                return dict(found[0])


def test_a_response_in_the_background_waits_for_the_users_word(
    payer: Gateway, bank: Recording
):
    response = payer.respond(CALL, tools=[PAY], background=True)
    page = f"{payer.server.url}/api/questions/{question(payer)['id']}/answer/"
    assert bank.received == []
    with payer.http() as http:
        assert http.post(page, json={"action": "accept"}).status_code < 300
    assert until(payer, response["id"], "completed", "failed")["status"] == "completed"
    assert len(bank.received) == 1


def test_without_an_approval_in_time_the_response_fails_by_name(
    payer: Gateway, bank: Recording
):
    response = payer.respond(CALL, tools=[PAY], background=True)
    question(payer)
    payer.rows("Question.objects.update(expires_at='2020-01-01T00:00:00Z')")
    failed = until(payer, response["id"], "completed", "failed")
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "E_APPROVAL_EXPIRED"
    assert bank.received == []
