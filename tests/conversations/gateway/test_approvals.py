"""Tools of ours that need a person's approval, called by programs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conversations.gateway.programs import FAST, Gateway
from tests.conversations.gateway.test_kept import until
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
print(AccessToken.issue(user, "approvals")[1])
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


def test_an_answer_that_waits_for_nobody_refuses_such_a_tool_by_name(payer: Gateway):
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


def test_among_all_tools_an_answer_that_is_not_kept_says_what_it_refuses(
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
    given: dict[str, Any] = {"tools": [PAY], "store": store}
    given["parley"] = {"receipts": True}
    refused = payer.respond('/tool pay {"euros": 9}', **given)
    assert refused["status"] == "completed"
    assert "E_TOOL_NEEDS_APPROVAL: this call needs" in str(refused["output"])
    assert bank.received == []
    done = payer.respond(CALL, **given)
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
    asked = payer.respond(CALL, tools=[PAY], background=True)
    page = f"{payer.server.url}/api/questions/{question(payer)['id']}/answer/"
    assert bank.received == []
    with payer.http() as http:
        assert http.post(page, json={"action": "accept"}).status_code < 300
    assert until(payer, asked["id"], "completed", "failed")["status"] == "completed"
    assert len(bank.received) == 1


def test_where_nobody_agrees_in_time_the_response_fails_by_name(
    payer: Gateway, bank: Recording
):
    asked = payer.respond(CALL, tools=[PAY], background=True)
    question(payer)
    payer.rows("Question.objects.update(expires_at='2020-01-01T00:00:00Z')")
    failed = until(payer, asked["id"], "completed", "failed")
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "E_APPROVAL_EXPIRED"
    assert bank.received == []
