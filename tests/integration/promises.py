"""Laws that hold in both deliveries, whatever the number of processes."""

from __future__ import annotations

import asyncio
import uuid
from itertools import pairwise

import httpx

from tests.integration.clients import Program, Screen
from tests.integration.stopping import MODEL, finish
from tests.integration.upstream import TOGETHER, Upstream


async def one_turn_for_one_key(programs: list[Program], bob: Program) -> None:
    conversation = await programs[0].conversation()
    key = uuid.uuid4().hex

    async def post(program: Program, text: str = "/echo once") -> httpx.Response:
        url = f"/api/conversations/{conversation}/turns/"
        async with program.http() as http:
            headers = {"Idempotency-Key": key}
            return await http.post(url, json={"input": text}, headers=headers)

    posts = [post(programs[n % len(programs)]) for n in range(100)]
    answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    turns = await _turns(programs[0], conversation)
    assert [turn["id"] for turn in turns] == [answers[0].json()["id"]]
    refused = await post(programs[-1], "/echo another")
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    conversation = await bob.conversation()
    theirs = await post(bob)
    assert theirs.status_code == 202
    assert theirs.json()["id"] != answers[0].json()["id"]


async def assert_turns_run_in_order(programs: list[Program], count: int) -> None:
    """All are accepted at once; each begins when the one before it is over."""
    conversation = await programs[0].conversation()
    asking = [
        programs[n % len(programs)].create_turn(conversation, f"/echo {n}")
        for n in range(count)
    ]
    turns = await asyncio.gather(*asking)
    screens = [Screen() for _ in turns]
    for turn, screen in zip(turns, screens, strict=True):
        await finish(programs[-1], turn, screen)
    assert [screen.text for screen in screens] == [str(n) for n in range(count)]
    rows = [await programs[0].turn(turn) for turn in turns]
    assert {row["status"] for row in rows} == {"completed"}
    rows.sort(key=lambda row: row["created_at"])
    for first, then in pairwise(rows):
        assert first["finished_at"] <= then["started_at"]


async def side_by_side(programs: list[Program], port: int, count: int) -> None:
    """No answer ends before all have begun."""

    async def one(number: int) -> str:
        program = programs[number % len(programs)]
        other = programs[(number + 1) % len(programs)]
        conversation, screen = await program.conversation(), Screen()
        turn = await program.create_turn(conversation, TOGETHER, model=MODEL)
        await finish(other, turn, screen)
        assert (await other.turn(turn))["status"] == "completed"
        return screen.text

    async with Upstream(port, parties=count) as upstream:
        assert set(await asyncio.gather(*map(one, range(count)))) == {"Done."}
        assert upstream.request_count == count


async def _turns(program: Program, conversation: str) -> list[dict[str, str]]:
    async with program.http() as http:
        url = f"/api/conversations/{conversation}/turns/"
        return (await http.get(url)).json()["results"]
