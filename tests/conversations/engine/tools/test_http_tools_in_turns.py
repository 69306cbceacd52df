"""HTTP tools in whole turns: real servers on loopback, real rows, a scripted model."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from conversations import engine
from conversations.models import Item, ToolCall, Turn
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.tools.servers import answer, ok, serving
from tools.loop.tool_calls import PLACEHOLDER
from tools.models import HttpTool, Tool

pytestmark = pytest.mark.django_db(transaction=True)

DONE = [TextDelta(0, "Done."), FinishDelta("stop")]
CALLS = [
    ToolCallDelta(0, "c1", "bake", '{"cake": "plum"}'),
    FinishDelta("tool_calls"),
]
SECRET = "planted-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"cake": {"type": "string"}},
    "required": ["cake"],
}
WAIT = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
CAKE = ok(b'{"state": "done", "cake": "a plum cake"}', "application/json")


def _bake(url: str, **fields) -> None:
    tool = Tool.objects.create(
        name="bake",
        kind="http",
        description="Bake a cake.",
        approval="never",
        runs_after_untrusted=True,
    )
    http = HttpTool(
        tool=tool,
        **{
            "method": "POST",
            "url": url,
            "parameters": SCHEMA,
            "networks": "127.0.0.0/8",
            **fields,
        },
    )
    http.set_secret_headers({"X-Key": SECRET})
    http.full_clean()
    http.save()


bake = sync_to_async(_bake)


async def submit_turn(conversation, text="A plum cake, please"):
    opened = await sync_to_async(conversation.open_turn)([user_message(text)])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    return turn


async def ended(turn):
    async for _ in engine.subscribe(turn.pk):
        pass
    await turn.arefresh_from_db()
    return turn


async def over() -> ToolCall:
    """The one call, once it is over and its output was sent to the model."""
    async with asyncio.timeout(60):
        while True:
            row = await ToolCall.objects.afirst()
            if row and row.delivered_in_id:
                await ended(await Turn.objects.aget(pk=row.delivered_in_id))
                return row
            await asyncio.sleep(0)


async def accepted_by_the_server() -> None:
    async with asyncio.timeout(60):
        while not await ToolCall.objects.exclude(accepted_at=None).aexists():
            await asyncio.sleep(0)


async def delivered_texts() -> list[str]:
    """The late results that were delivered to the model."""
    items = Item.objects.filter(type="message", **{"payload__parley:call_id": "c1"})
    return [item.payload["content"][0]["text"] async for item in items]


def paths(server) -> list[str]:
    return [head.partition(" HTTP")[0] for head in server.requests]


# At once


async def test_an_http_tool_answers_within_the_turn(conversation, say, running):
    script = say(CALLS, DONE)
    async with serving(ok(b'{"cake": "ready"}', "application/json")) as server:
        await bake(server.url("/cakes"))
        turn = await ended(await submit_turn(conversation))
    assert turn.status == Turn.Status.COMPLETED
    assert script.requests[1].items[-1]["output"] == '{"cake":"ready"}'
    assert paths(server) == ["POST /cakes"]
    assert json.loads(server.bodies[0]) == {"cake": "plum"}
    assert f"X-Key: {SECRET}" in server.requests[0]
    row = await ToolCall.objects.aget()
    assert (row.state, row.blocking) == ("completed", True)


async def test_a_refusal_of_the_server_goes_to_the_model(conversation, say, running):
    mended = [
        ToolCallDelta(0, "c2", "bake", '{"cake": "apple"}'),
        FinishDelta("tool_calls"),
    ]
    script = say(CALLS, mended, DONE)
    refusal = answer("422 Unprocessable", b"no plums", "Content-Type: text/plain")
    async with serving([refusal, ok(b"an apple cake")]) as server:
        await bake(server.url("/cakes"))
        turn = await ended(await submit_turn(conversation))
    assert turn.status == Turn.Status.COMPLETED
    outputs = [request.items[-1]["output"] for request in script.requests[1:]]
    assert "no plums" in outputs[0]
    assert outputs[1] == "an apple cake"
    states = [row.state async for row in ToolCall.objects.order_by("pk")]
    assert states == ["failed", "completed"]


async def test_a_tool_disabled_in_the_conversation_is_never_requested(
    conversation, say, running
):
    conversation.options = {"disabled_tools": ["bake"]}
    await conversation.asave()
    script = say(CALLS, DONE)
    async with serving(ok(b"cake")) as server:
        await bake(server.url("/cakes"))
        await ended(await submit_turn(conversation))
    assert not server.requests
    assert "bake" not in {tool["name"] for tool in script.requests[0].tools}
    assert "there is no tool named 'bake'" in script.requests[1].items[-1]["output"]


async def test_a_202_is_an_ordinary_answer_where_not_configured(
    conversation, say, running
):
    script = say(CALLS, DONE)
    async with serving(answer("202 Accepted", b"later", "Location: /jobs/7")) as server:
        await bake(server.url("/cakes"))
        await ended(await submit_turn(conversation))
    assert script.requests[1].items[-1]["output"] == "later"


# Later


def accepted(*headers: str, body: bytes = b"") -> bytes:
    return answer("202 Accepted", body, "Retry-After: 1", *headers)


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_late_result_is_polled_and_delivered_once(conversation, say, running):
    script = say(CALLS, DONE)
    replies = [accepted("Location: /jobs/7"), WAIT, CAKE]
    async with serving(replies) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await ended(await submit_turn(conversation))
        assert script.requests[1].items[-1]["output"] == PLACEHOLDER
        row = await over()
    assert paths(server) == ["POST /cakes", "GET /jobs/7", "GET /jobs/7"]
    assert all(f"X-Key: {SECRET}" in head for head in server.requests)
    assert (row.state, row.accepted_at is not None) == ("completed", True)
    (message,) = await delivered_texts()
    assert "a plum cake" in message


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_result_survives_two_restarts_and_its_job_starts_once(
    conversation, say, running
):
    say(CALLS, DONE)
    baked = asyncio.Event()
    posts = 0

    async def bakery(reader, writer):
        nonlocal posts
        if server.requests[-1].startswith("POST"):
            posts += 1
            writer.write(accepted("Location: /jobs/7"))
        else:
            writer.write(CAKE if baked.is_set() else WAIT)
        await writer.drain()

    async with serving(bakery) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await ended(await submit_turn(conversation))
        await accepted_by_the_server()
        for _ in range(2):
            await engine.drain()
            await engine.start()
        baked.set()
        row = await over()
    assert posts == 1
    assert row.state == "completed"
    assert len(await delivered_texts()) == 1


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_job_may_be_an_id_and_its_state_a_field(conversation, say, running):
    say(CALLS, DONE)
    busy = ok(b'{"state": "queued"}', "application/json", "Retry-After: 1")
    unwell = answer("503 Busy", b"", "Retry-After: 1")
    first = accepted(body=b'{"job": {"id": "a/7"}}')
    async with serving([first, busy, unwell, CAKE]) as server:
        await bake(
            server.url("/cakes"),
            async_answers=True,
            job_pointer="/job/id",
            job_url=server.url("/jobs/{id}"),
            state_pointer="/state",
            pending_states="queued, running",
            pointer="/cake",
        )
        await submit_turn(conversation)
        await over()
    assert paths(server)[1:] == ["GET /jobs/a%2F7"] * 3
    (message,) = await delivered_texts()
    assert message.endswith("a plum cake")


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_job_at_another_origin_does_not_receive_the_secret(
    conversation, say, running
):
    say(CALLS, DONE)
    async with serving(CAKE) as other:
        first = accepted(f"Location: {other.url('/jobs/7')}")
        async with serving(first) as server:
            await bake(
                server.url("/cakes"), async_answers=True, headers={"X-Tenant": "t1"}
            )
            await submit_turn(conversation)
            await over()
    assert paths(other) == ["GET /jobs/7"]
    assert SECRET not in other.requests[0]
    assert "X-Tenant" not in other.requests[0]


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_job_in_a_forbidden_network_is_not_polled(conversation, say, running):
    say(CALLS, DONE)
    async with serving(accepted("Location: http://10.0.0.1/jobs/7")) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await submit_turn(conversation)
        row = await over()
    assert row.state == "failed"
    assert "private or reserved network" in row.error


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_job_that_fails_is_a_failed_call(conversation, say, running):
    say(CALLS, DONE)
    burnt = answer("410 Gone", b"burnt", "Content-Type: text/plain")
    async with serving([accepted("Location: /jobs/7"), burnt]) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await submit_turn(conversation)
        row = await over()
    assert (row.state, row.error) == ("failed", "the server answered 410 Gone: burnt")
    assert "burnt" in (await delivered_texts())[0]


@pytest.mark.slow
@pytest.mark.smoke
async def test_one_that_takes_too_long_times_out(conversation, say, running):
    say(CALLS, DONE)

    async def bakery(reader, writer):
        writer.write(accepted("Location: /jobs/7"))

    async with serving(bakery) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await Tool.objects.filter(name="bake").aupdate(timeout=2)
        await submit_turn(conversation)
        row = await over()
    assert row.state == "timed_out"


async def test_an_accepted_answer_without_a_location_fails(conversation, say, running):
    say(CALLS, DONE)
    async with serving(accepted()) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await submit_turn(conversation)
        row = await over()
    assert "did not say where its result will be; what it began may" in row.error


@pytest.mark.slow
async def test_a_server_that_restarts_at_a_poll_loses_no_job(
    conversation, say, running
):
    say(CALLS, DONE)
    async with serving([accepted("Location: /jobs/7"), b"", CAKE]) as server:
        await bake(server.url("/cakes"), async_answers=True)
        await submit_turn(conversation)
        row = await over()
    assert paths(server) == ["POST /cakes", "GET /jobs/7", "GET /jobs/7"]
    assert row.state == "completed"


async def test_an_accepted_answer_that_names_no_job_may_take_effect(
    conversation, say, running
):
    say(CALLS, DONE)
    async with serving(accepted(body=b"<p>ok</p>")) as server:
        await bake(server.url("/cakes"), async_answers=True, job_pointer="/id")
        await submit_turn(conversation)
        row = await over()
    assert row.error == (
        "the server accepted the call, but the address of its result is invalid: the"
        " server's response is not JSON. The work may still take effect."
    )


# Posted to us


@pytest.mark.parametrize(
    "location", ["header:X-Callback", "body:callback_url", "query:to"]
)
async def test_the_result_may_be_posted_to_the_callback_address(
    conversation, say, running, settings, location
):
    settings.PUBLIC_URL = "https://parley.test"
    say(CALLS, DONE)
    async with serving(accepted()) as server:
        await bake(server.url("/cakes"), async_answers=True, callback_place=location)
        await submit_turn(conversation)
        await accepted_by_the_server()
        requests_there = server.requests[0] + server.bodies[0].decode()
        for quoted, plain in (("%3A", ":"), ("%2F", "/")):
            requests_there = requests_there.replace(quoted, plain)
        found = re.search(
            r"https://parley\.test(/api/callbacks/[\w:.-]+/)", requests_there
        )
        assert found, requests_there
        posted = await sync_to_async(Client().post)(
            found[1], {"output": "a plum cake"}, content_type="application/json"
        )
        assert posted.status_code == 204
        row = await over()
    assert row.state == "completed"
    assert (await delivered_texts())[0].endswith("a plum cake")


@pytest.mark.parametrize("body", [b"", b"<p>ok</p>", b"{}"])
async def test_a_result_is_posted_though_the_answer_names_no_job(
    conversation, say, running, settings, body
):
    settings.PUBLIC_URL = "https://parley.test"
    say(CALLS, DONE)
    async with serving(accepted(body=body)) as server:
        await bake(
            server.url("/cakes"),
            async_answers=True,
            job_pointer="/id",
            callback_place="header:X-Callback",
        )
        await submit_turn(conversation)
        await accepted_by_the_server()
        found = re.search(r"X-Callback: https://parley\.test(\S+)", server.requests[0])
        assert found
        posted = await sync_to_async(Client().post)(
            found[1], {"output": "a plum cake"}, content_type="application/json"
        )
        assert posted.status_code == 204
        row = await over()
    assert row.state == "completed"


async def test_without_a_public_address_no_callback_is_sent(
    conversation, say, running, settings
):
    settings.PUBLIC_URL = ""
    say(CALLS, DONE)
    async with serving(accepted()) as server:
        await bake(
            server.url("/cakes"), async_answers=True, callback_place="header:X-Callback"
        )
        await submit_turn(conversation)
        row = await over()
    assert "X-Callback" not in server.requests[0]
    assert "did not say where" in row.error
