"""The card of a sign-in at an MCP server outlives the process that showed it."""

from __future__ import annotations

import json

import pytest

from tests.integration.clients import Program, sign_in, socket
from tests.integration.open_sign_ins import (
    ask_for_sign_in,
    offer_tool,
    receive,
    sign_in_at,
)
from tests.serving import ServerProcess
from tests.tools.mcp.oauth_server import sign_in_server

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_a_sign_in_after_a_crash_continues_the_turn(server: ServerProcess):
    with sign_in_server(revokes=True) as notes:
        offer_tool(server, notes)
        program, cookie = Program(server), await sign_in(server, "admin")
        conversation = await program.conversation()
        async with socket(server, conversation, cookie) as connection:
            asked = await ask_for_sign_in(connection)
            await receive(connection, "parley:turn.waiting")
        server.kill()
        server.start()
        follow = {"type": "turn.follow", "turn": asked["turn"]}
        async with socket(server, conversation, cookie) as connection:
            await connection.send(json.dumps(follow))
            again = await receive(connection, "parley:approval.requested")
            assert again["question"]["id"] == asked["question"]["id"]
            assert again["question"]["kind"] == "sign_in"
            await sign_in_at(server, again["question"], cookie)
            ended = await receive(connection, "response.completed")
    outputs = [item.get("output") for item in ended["response"]["output"]]
    assert "Ada" in str(outputs)


async def test_a_declined_sign_in_over_the_socket_ends_the_wait(server: ServerProcess):
    with sign_in_server(revokes=True) as notes:
        offer_tool(server, notes)
        program, cookie = Program(server), await sign_in(server, "admin")
        async with socket(server, await program.conversation(), cookie) as connection:
            asked = await ask_for_sign_in(connection)
            answer = {"type": "question.answer", "id": asked["question"]["id"]}
            await connection.send(json.dumps({**answer, "action": "accept"}))
            refused = await receive(connection, "error")
            assert refused["error"]["type"] == "invalid_request_error"
            await connection.send(json.dumps({**answer, "action": "decline"}))
            ended = await receive(connection, "response.completed")
    assert "declined to sign in at Team notes" in json.dumps(ended["response"])
