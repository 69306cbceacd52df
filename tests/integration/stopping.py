"""Stop, in every phase a turn has. The same laws for both deliveries: `program` uses
one process, `other` stops from another where there is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.integration.clients import PATIENCE, Program, Screen
from tests.integration.upstream import SPOKEN_TEXT, USED, Upstream
from tests.serving import ServerProcess

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.settings_promises"}
MODEL = "upstream"
HELD = {  # the event that says the phase is reached, if one does
    "before headers": None,
    "before the first delta": None,
    "in text": "response.output_text.delta",
    "in arguments": "response.function_call_arguments.delta",
    "in the second step": None,
}
PHASES = [*HELD, "in a blocking tool", "awaiting approval", "queued"]


def teach(server: ServerProcess, port: int) -> None:
    """A model at an `Upstream` on this port, and our tools."""
    server.manage(
        "shell",
        "-v0",
        "-c",
        f"""
from llm.models import LanguageModel, Provider
from tools.models import Tool
host = Provider.objects.create(
    name="Upstream", kind="openai_compatible", allow_private_network=True,
    base_url="http://127.0.0.1:{port}/v1",
)
LanguageModel.objects.create(provider=host, name="{MODEL}")
Tool.objects.sync()
""",
    )


async def stop(
    phase: str, program: Program, other: Program, upstream: Upstream, data: Path
) -> dict[str, float]:
    """Milliseconds from the request until what ran was closed, and until the end."""
    conversation = await program.conversation()
    first = "in text" if phase == "queued" else phase
    running = await program.create_turn(conversation, first, model=MODEL)
    turn, screen = running, Screen()
    if first in HELD:
        await wait(upstream.held)
    if event := HELD.get(first):
        await _see(program, turn, screen, event)
    if phase == "queued":
        turn, screen = (
            await program.create_turn(conversation, "in text", model=MODEL),
            Screen(),
        )
    elif phase == "in a blocking tool":
        await noted(data, "started", conversation)
    elif phase == "awaiting approval":
        await until(lambda: _has(program, turn, "waiting"))
    request_count = upstream.request_count
    begun = time.monotonic()
    await other.cancel(turn)
    await finish(other, turn, screen)
    took = {"ended": time.monotonic() - begun}
    if phase in HELD:
        took["closed"] = await wait_for(upstream.closed.get()) - begun
    elif phase == "in a blocking tool":
        took["closed"] = await noted(data, "ended", conversation) - begun
    await _assert_cancelled(other, turn, screen, phase)
    assert upstream.request_count == request_count
    if phase == "queued":
        assert (await other.turn(running))["status"] == "in_progress"
        await other.cancel(running)
        await wait_for(upstream.closed.get())
    return {name: round(1000 * seconds) for name, seconds in took.items()}


async def _assert_cancelled(
    program: Program, turn: str, screen: Screen, phase: str
) -> None:
    assert screen.events[-1]["type"] == "response.incomplete"
    row = await program.turn(turn)
    assert (row["status"], row["incomplete_reason"]) == ("cancelled", "cancelled")
    assert not [i for i in row["items"] if i.get("status") == "in_progress"]
    assert screen.text == (SPOKEN_TEXT if phase == "in text" else "")
    if phase == "in text":
        assert row["response"]["output"][0]["content"][0]["text"] == SPOKEN_TEXT
    if phase in HELD:
        assert row["model_calls"][-1]["status"] == "cancelled"
    if phase in ("in the second step", "in a blocking tool", "awaiting approval"):
        assert row["usage"]["total_tokens"] == USED  # of the first step
    assert not [c for c in row["tool_calls"] if c["state"] in ("pending", "executing")]


async def stop_call(
    program: Program, other: Program, upstream: Upstream, data: Path
) -> dict[str, float]:
    """Of a call that runs in the background after its turn."""
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, "in a background call", model=MODEL)
    await finish(program, turn, Screen())
    await noted(data, "started", conversation)
    begun = time.monotonic()
    (call,) = await calls(program, conversation)
    async with other.http() as http:
        answer = await http.post(f"/api/tool-calls/{call['id']}/cancel/")
    assert answer.status_code == 202
    ended = await noted(data, "ended", conversation)

    async def is_over() -> bool:
        return (await calls(other, conversation))[0]["state"] == "cancelled"

    await until(is_over)
    assert (await other.turn(turn))["status"] == "completed"
    assert upstream.request_count == 2  # the model learns of it with the next message
    after, screen = (
        await other.create_turn(conversation, "And now?", model=MODEL),
        Screen(),
    )
    await finish(program, after, screen)
    assert screen.text == "Done."
    (call,) = await calls(other, conversation)
    assert call["delivered_in"] == after
    return {"closed": round(1000 * (ended - begun))}


async def calls(program: Program, conversation: str) -> list[dict[str, Any]]:
    async with program.http() as http:
        url = f"/api/conversations/{conversation}/tool-calls/"
        return (await http.get(url)).json()["results"]


async def _see(program: Program, turn: str, screen: Screen, type_: str) -> None:
    async with aclosing(program.follow(turn)) as events:
        async for position, event in events:
            screen.show(position, event)
            if event["type"] == type_:
                return
    raise AssertionError(f"no {type_}")


async def finish(program: Program, turn: str, screen: Screen) -> None:
    async with asyncio.timeout(PATIENCE):
        while not screen.over:
            async with aclosing(program.follow(turn, screen.position)) as events:
                async for position, event in events:
                    screen.show(position, event)


async def _has(program: Program, turn: str, status: str) -> bool:
    return (await program.turn(turn))["status"] == status


async def noted(data: Path, what: str, conversation: str) -> float:
    """When a tool of `tests.hanging` noted this (seconds, monotonic)."""

    def found() -> list[float]:
        path = data / "notes"
        notes = path.read_text().splitlines() if path.exists() else []
        words = [note.split() for note in notes]
        return [float(w[2]) for w in words if w[:2] == [what, conversation]]

    async def is_there() -> bool:
        return bool(found())

    await until(is_there)
    return found()[0]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)


async def wait(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await event.wait()


async def wait_for(value: Awaitable[float]) -> float:
    async with asyncio.timeout(PATIENCE):
        return await value
