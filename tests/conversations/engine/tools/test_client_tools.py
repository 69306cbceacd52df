"""Functions that the client runs and tools that the provider runs, through REST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine.loading import turn_setup
from conversations.engine.loading.available_tools import (
    AvailableTools,
    load_available_tools,
)
from conversations.engine.loading.turn_setup import echo_of
from conversations.models import Conversation, Item, ToolCall
from llm import router
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.conversations.scene import program
from tests.integration.clients import Program, sign_in, socket
from tools.models import Tool as ToolRow

pytestmark = pytest.mark.django_db(transaction=True)

LOOK_UP = {
    "type": "function",
    "name": "look_up",
    "description": "Look somebody up in the client's own book.",
    "parameters": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}
SEARCH = {"type": "web_search"}
ANSWER = [TextDelta(0, "Here you are."), FinishDelta("stop")]
LOOKS_UP = [
    ToolCallDelta(0, "c1", "look_up", '{"name": "Ada"}'),
    FinishDelta("tool_calls"),
]
BOTH = [
    ToolCallDelta(0, "c1", "look_up", '{"name": "Ada"}'),
    ToolCallDelta(1, "c2", "calculator", '{"expression": "6*7"}'),
    FinishDelta("tool_calls"),
]


def posted(conversation: Conversation, **body: Any):
    url = f"/api/conversations/{conversation.pk}/turns/"
    owner = conversation.owner
    return program(owner).post(url, body, content_type="application/json")


def gotten(conversation: Conversation, turn: str) -> dict[str, Any]:
    return program(conversation.owner).get(f"/api/turns/{turn}/").json()


async def turn(conversation: Conversation, input: Any, **options: Any):
    """The turn as REST returns it, once it is over."""
    answer = await sync_to_async(posted)(conversation, input=input, options=options)
    assert answer.status_code == 202, answer.content
    async for _ in engine.subscribe(answer.json()["id"]):
        pass
    return await sync_to_async(gotten)(conversation, answer.json()["id"])


def output(call_id: str = "c1", text: str = "Ada Lovelace") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def types(error: dict[str, Any]) -> list[str]:
    return [item["type"] for item in error["response"]["output"]]


# Functions of the client


async def test_a_turn_pauses_for_the_client_and_goes_on_with_what_it_posts(
    conversation, say, running
):
    script = say(LOOKS_UP, ANSWER)
    first = await turn(conversation, "Who is Ada?", tools=[LOOK_UP])
    assert (first["status"], types(first)) == ("completed", ["function_call"])
    assert first["tool_calls"] == []
    tool_names = {tool["name"] for tool in script.requests[0].tools}
    assert {"look_up", "calculator"} <= tool_names
    second = await turn(conversation, [output()], tools=[LOOK_UP])
    assert (second["status"], types(second)) == ("completed", ["message"])
    call, last_output = script.requests[-1].items[-2:]
    assert (call["name"], last_output["output"]) == ("look_up", "Ada Lovelace")
    assert call["call_id"] == last_output["call_id"]


async def test_tools_of_ours_run_first_where_both_are_called_in_one_step(
    conversation, say, running
):
    script = say(BOTH, ANSWER)
    first = await turn(conversation, "Both", tools=[LOOK_UP])
    assert types(first) == ["function_call", "function_call", "function_call_output"]
    assert first["response"]["output"][-1]["call_id"] == "c2"
    assert [call["name"] for call in first["tool_calls"]] == ["calculator"]
    assert len(script.requests) == 1
    second = await turn(conversation, [output()], tools=[LOOK_UP])
    assert types(second) == ["message"]
    outputs = {
        item["call_id"]: item["output"]
        for item in script.requests[-1].items
        if item["type"] == "function_call_output"
    }
    assert outputs == {"c2": "42", "c1": "Ada Lovelace"}


async def test_a_name_that_the_client_declares_is_the_clients(
    conversation, say, running
):
    mine = {"type": "function", "name": "calculator"}
    say([ToolCallDelta(0, "c1", "calculator", "{}"), FinishDelta("tool_calls")])
    output = await turn(conversation, "6*7", tools=[mine])
    assert types(output) == ["function_call"]
    assert not await ToolCall.objects.aexists()


async def test_a_client_chooses_which_of_our_tools_may_be_called(
    conversation, say, running
):
    script = say(ANSWER)
    await turn(conversation, "Hi", server_tools=["calculator"], tools=[LOOK_UP])
    assert [t["name"] for t in script.requests[-1].tools] == ["calculator", "look_up"]
    await turn(conversation, "Hi", server_tools=[])
    assert not script.requests[-1].tools


async def test_a_tool_disabled_in_the_conversation_is_not_sent_to_the_model(
    conversation, say, running
):
    conversation.options = {"disabled_tools": ["calculator"]}
    await conversation.asave()
    script = say(
        [ToolCallDelta(0, "c1", "calculator", '{"expression": "1+1"}')], ANSWER
    )
    output = await turn(conversation, "1+1")
    assert "calculator" not in {t["name"] for t in script.requests[0].tools}
    # Called all the same, it is a tool that is not there.
    assert (
        "there is no tool named 'calculator'" in script.requests[1].items[-1]["output"]
    )
    assert output["status"] == "completed"


def test_an_output_of_an_unknown_call_is_refused(conversation):
    for item in (
        output("c9"),
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {
            "type": "computer_call_output",
            "call_id": "c9",
            "output": {"type": "computer_screenshot", "image_url": "https://a.test/x"},
        },
    ):
        answer = posted(conversation, input=[item])
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "unknown_call"


async def test_a_second_output_is_refused_unless_it_is_the_same(
    conversation, say, running
):
    script = say(LOOKS_UP, ANSWER)
    await turn(conversation, "Who is Ada?", tools=[LOOK_UP])
    second = await turn(conversation, [output()], tools=[LOOK_UP])
    same = await turn(conversation, [output()], tools=[LOOK_UP])
    assert same["id"] == second["id"]
    other = await sync_to_async(posted)(conversation, input=[output("c1", "Bob")])
    assert other.status_code == 409
    assert other.json()["error"] == {
        "message": "The call 'c1' already has a different output; it cannot be"
        " changed.",
        "type": "invalid_request_error",
        "param": "input",
        "code": "call_already_answered",
    }
    assert len(script.requests) == 2
    assert await conversation.turns.acount() == 2


async def test_a_part_of_the_outputs_is_refused_by_name(conversation, say, running):
    both = [
        ToolCallDelta(0, "c1", "look_up", '{"name": "Ada"}'),
        ToolCallDelta(1, "c2", "look_up", '{"name": "Bob"}'),
        FinishDelta("tool_calls"),
    ]
    say(both, ANSWER)
    await turn(conversation, "Who are they?", tools=[LOOK_UP])
    answer = await sync_to_async(posted)(conversation, input=[output("c2")])
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "missing_output")
    assert "'c1'" in error["message"]
    last = await turn(conversation, [output("c2"), output("c1")], tools=[LOOK_UP])
    assert types(last) == ["message"]


def test_a_tool_of_ours_that_there_is_not_is_refused_by_its_name(conversation):
    answer = posted(conversation, input="Hi", options={"server_tools": ["teleport"]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("options.server_tools", "unknown_tool")


# Tools of providers


def test_a_hosted_tool_that_the_model_does_not_have_is_refused(conversation):
    options = {"tools": [LOOK_UP, SEARCH]}
    answer = posted(conversation, input="Hi", options=options)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "options.tools[1]"
    assert "this model does not support 'web_search'" in error["message"]
    options["ignore_invalid_options"] = True
    assert posted(conversation, input="Hi", options=options).status_code == 202


@pytest.fixture
def search():
    return ToolRow.objects.create(
        name="search", kind=ToolRow.Kind.HOSTED, definition=SEARCH
    )


async def test_staffs_hosted_tools_are_left_out_where_the_model_has_none(
    conversation, say, running, search
):
    script = say(ANSWER)
    output = await turn(conversation, "Hi")
    assert output["status"] == "completed"
    assert SEARCH not in script.requests[-1].tools


def tools_of(conversation: Conversation, **options: Any) -> AvailableTools:
    row = conversation.open_turn([user_message("Hi")]).turn
    return load_available_tools(row, options, None, turn_setup.route_of_turn(row))


def test_staffs_hosted_tools_go_to_a_model_that_has_them(conversation, search):
    provider = Provider.objects.create(name="OpenAI", kind="openai")
    ApiKey.objects.create(provider=provider, secret="sk-of-these-tests-0123456789")
    conversation.language_model = LanguageModel.objects.create(
        provider=provider, name="gpt-5.2"
    )
    conversation.save()
    assert tools_of(conversation).hosted == [SEARCH]
    assert not tools_of(conversation, disabled_tools=["search"]).hosted
    assert not tools_of(conversation, server_tools=["calculator"]).hosted


def test_a_fallback_is_given_the_hosted_tools_that_only_it_has(conversation, search):
    provider = Provider.objects.create(name="OpenAI", kind="openai")
    ApiKey.objects.create(provider=provider, secret="sk-of-these-tests-0123456789")
    other = LanguageModel.objects.create(provider=provider, name="gpt-5.2")
    routes = [router.route_of(conversation.language_model), router.route_of(other)]
    first, fallback = tools_of(conversation).adapt_routes(routes)
    assert (first.hosted_tools, fallback.hosted_tools) == ((), [SEARCH])
    _, fallback = tools_of(conversation, disabled_tools=["search"]).adapt_routes(routes)
    assert not fallback.hosted_tools


def test_functions_that_computer_use_brings_are_the_clients():
    assert (
        "click_at" in AvailableTools(declared=[{"type": "computer_use_preview"}]).client
    )
    assert not AvailableTools(declared=[SEARCH]).client


def test_the_authorization_of_a_hosted_tool_is_not_exposed():
    tool = {"type": "mcp", "server_label": "w", "authorization": "t", "headers": {}}
    request = Request(model="m", items=(), tools=[tool])
    assert echo_of({}, request)["tools"] == [{"type": "mcp", "server_label": "w"}]


def test_screenshots_and_approvals_of_a_client_become_items(conversation):
    row = conversation.open_turn([user_message("Hi")]).turn
    for index, payload in enumerate(
        [
            {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {}},
            {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x"},
        ]
    ):
        Item.of(row, index + 1, payload, origin=Item.Origin.OUTPUT).save()
    screen = {"type": "computer_screenshot", "image_url": "https://a.test/x.png"}
    answer = posted(
        conversation,
        input=[
            {"type": "computer_call_output", "call_id": "c1", "output": screen},
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": False,
                "reason": "no",
            },
        ],
    )
    assert answer.status_code == 202, answer.content
    seen, allowed = answer.json()["items"]
    assert (seen["output"], seen["call_id"]) == (screen, "c1")
    assert (allowed["approve"], allowed["reason"]) == (False, "no")


# With the demo provider, over a real socket


@pytest.mark.server
async def test_a_program_runs_its_own_function_at_a_real_server(shared_server):
    ada = Program(shared_server)
    conversation = await ada.conversation()
    fields = {"options": {"tools": [LOOK_UP]}}
    turn_id = await ada.create_turn(
        conversation, '/tool look_up {"name": "Ada"}', **fields
    )
    events = [event async for _, event in ada.follow(turn_id)]
    call = events[-1]["response"]["output"][-1]
    assert events[-1]["type"] == "response.completed"
    assert json.loads(call["arguments"]) == {"name": "Ada"}
    answer = [output(call["call_id"], "Countess of Lovelace")]
    goes_on = await ada.create_turn(conversation, answer, **fields)
    events = [event async for _, event in ada.follow(goes_on)]
    (message,) = events[-1]["response"]["output"]
    assert "Countess of Lovelace" in message["content"][0]["text"]


@pytest.mark.server
async def test_a_second_output_is_refused_at_the_socket_and_the_gateway(shared_server):
    ada = Program(shared_server)
    conversation = await ada.conversation()
    fields = {"options": {"tools": [LOOK_UP]}}
    turn_id = await ada.create_turn(
        conversation, '/tool look_up {"name": "Ada"}', **fields
    )
    events = [event async for _, event in ada.follow(turn_id)]
    id = events[-1]["response"]["output"][-1]["call_id"]
    first = await ada.create_turn(conversation, [output(id)], **fields)
    other = [output(id, "Somebody else")]

    cookie = await sign_in(shared_server, "admin")
    async with socket(shared_server, conversation, cookie) as connection:
        create = {"type": "turn.create", "key": "k1", **fields}
        await connection.send(json.dumps({**create, "input": other}))
        refused = json.loads(await connection.recv())
        assert refused["error"]["code"] == "call_already_answered"
        assert (refused["error"]["param"], refused["key"]) == ("input", "k1")
        await connection.send(json.dumps({**create, "input": [output(id)]}))
        assert json.loads(await connection.recv())["turn"] == first

    async with ada.http() as http:
        body = {"model": "demo", "conversation": conversation, "tools": [LOOK_UP]}
        answer = await http.post("/v1/responses", json={**body, "input": other})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "call_already_answered"
        again = await http.post("/v1/responses", json={**body, "input": [output(id)]})
        assert (again.status_code, again.json()["id"]) == (200, first)
