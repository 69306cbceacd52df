"""The card of a sign-in at an MCP server, with several web and worker processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients import Program, sign_in, socket
from tests.integration.open_sign_ins import (
    ask_for_sign_in,
    offer_tool,
    receive,
    sign_in_at,
)
from tests.scaled import Cluster, migrated
from tests.tools.mcp.oauth_server import sign_in_server

pytestmark = [pytest.mark.scaled, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "template").mkdir()
    with migrated(tmp_path / "template") as template:
        cluster = Cluster(tmp_path, template, webs=2, workers=1)
        try:
            yield cluster.start()
        finally:
            cluster.end()


async def test_a_sign_in_at_another_process_continues_the_turn(cluster: Cluster):
    """The web process that showed the card and the worker that asked are killed."""
    [first, second], [worker] = cluster.webs, cluster.workers
    with sign_in_server(revokes=True) as notes:
        offer_tool(first, notes)
        program, cookie = Program(first), await sign_in(first, "admin")
        conversation = await program.conversation()
        async with socket(second, conversation, cookie) as connection:
            asked = await ask_for_sign_in(connection)
            await receive(connection, "parley:turn.waiting")
        for process in (second, worker):
            process.kill()
            process.start()
        follow = {"type": "turn.follow", "turn": asked["turn"]}
        async with socket(second, conversation, cookie) as connection:
            await connection.send(json.dumps(follow))
            again = await receive(connection, "parley:approval.requested")
            assert again["question"] == asked["question"]
            await sign_in_at(first, again["question"], cookie)
            ended = await receive(connection, "response.completed")
    assert "Ada" in json.dumps(ended["response"]["output"])
