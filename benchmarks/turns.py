"""Turns of a conversation through a real server, over SSE and over WebSocket.

Beside them, in the same run and by the same client: the upstream asked directly, which
is what the client itself costs, and a relay that passes bytes on unread, which is the
least that Python can do. Compare only inside the table.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from statistics import median, quantiles

from django.conf import settings

from benchmarks.client import Answer, Http, Socket
from benchmarks.doors import (
    QUESTION,
    Ask,
    Door,
    Figures,
    Open,
    floor,
    load,
    open_streams,
    show_doors,
    spent,
)
from benchmarks.processes import cpu_seconds, memory
from benchmarks.world import EARLIER, World, make_world
from conversations.models import Turn
from tests.serving import ServerProcess

PACE = 50  # chunks a second of one stream
STREAMS = 100
OPEN_STREAMS = 100
SETTLES = 5  # seconds in which a server that has started loads and frees what it will
WARMS = 16  # connections that have all threads of the server begin
FOLLOWED, FOLLOWERS = 8, 10  # turns, and how many more follow each


def main() -> None:
    with ExitStack() as running:
        upstream_port, doors = running.enter_context(floor())
        server = ServerProcess(settings.DATA, {"ENABLE_DEMO": "false"}).start()
        running.callback(server.stop)
        assert server.process
        pid = server.process.pid
        time.sleep(SETTLES)
        idle = memory(pid)
        world = make_world(upstream_port)
        doors += [
            Door("SSE", pid, _over_sse(server.port, world), keeps=True),
            Door("WebSocket", pid, _over_ws(server.port, world), keeps=True),
        ]
        gc.freeze()  # the client's own pauses would count as lag
        figures = asyncio.run(_measure(doors, world))
        further = asyncio.run(_further_follower(server.port, pid, world))
        posted = asyncio.run(_post(server.port, pid, world))
    show_doors("Turns: one server process", doors, figures, _FIGURES)
    print(f"CPU of a chunk for each further follower: {further:.1f} µs")
    print(f"Memory of the idle server: {idle / 1e6:.0f} MB")
    print("POST of a message, answered 202, with the turn that it begins: ", end="")
    print(f"{posted['cpu']:.1f} ms CPU, answered after {posted['ms']:.1f} ms (median)")


# Figures

_FIGURES = {
    "ttft": "TTFT alone, ms, median",
    "claim": "claim to the provider's first byte, ms, median",
    "turn": "CPU, ms a turn of 5 chunks",
    **{f"after{n}": f"- after {n:,} earlier turns" for n in EARLIER},
    "chunk": f"CPU, µs a chunk at {PACE}/s",
    "stretch": f"{STREAMS} streams of {PACE}/s: wall / ideal",
    "lag50": "- lag of a chunk, ms, median",
    "lag99": "- lag of a chunk, ms, 99th percentile",
    "open": "memory, KB an open stream",
    "failed": "connections refused or cut",
}


async def _measure(doors: Sequence[Door], world: World) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for door in doors:
        print(f"measuring: {door.name} ...", file=sys.stderr)
        await load(door, "c5-d0", connections=WARMS, turns=5)  # imports, caches
        figures[door.name] = {
            **await open_streams(
                door, OPEN_STREAMS, 10
            ),  # first: memory that is freed is kept
            **await _single(door, world),
            **await _chunk_cost(door),
            **await _paced(door),
        }
        if door.keeps:
            figures[door.name] |= await _with_history(door, world)
        figures[door.name]["failed"] = len(door.failures)
    return figures


async def _single(door: Door, world: World) -> Figures:
    begun = cpu_seconds(door.pid)
    answers = await load(door, "c5-d0", connections=1, turns=60)
    figures = {
        "ttft": 1e3 * median(answer.ttft or 0.0 for answer in answers),
        "turn": spent(door, begun, answers) * 1e3,
    }
    if door.keeps:
        figures["claim"] = await asyncio.to_thread(_since_claim, answers, world)
    return figures


def _since_claim(answers: Sequence[Answer], world: World) -> float:
    """Milliseconds, median. `answers` are the last turns of the first conversation."""
    turns = Turn.objects.filter(conversation=world.conversations[0])
    claimed = turns.order_by("-created_at").values_list("started_at", flat=True)
    began = [answer.provider_began for answer in reversed(answers)]
    since_1970 = time.time() - time.monotonic()
    return 1e3 * median(
        since_1970 + first - at.timestamp()
        for first, at in zip(began, claimed[: len(began)], strict=True)
        if at is not None
    )


async def _with_history(door: Door, world: World) -> Figures:
    figures: Figures = {}
    for number, conversation in world.long.items():
        begun, answers = cpu_seconds(door.pid), []
        async with door.open(conversation) as ask:
            for _ in range(10):
                answers.append(await ask("c5-d0"))
        figures[f"after{number}"] = spent(door, begun, answers) * 1e3
    return figures


async def _chunk_cost(door: Door) -> Figures:
    """From the slope between short and long streams, so the turn's own cost is out."""
    begun = cpu_seconds(door.pid)
    short = await load(door, "c10-d20", connections=40, turns=3, spread=4)
    each_short, begun = spent(door, begun, short), cpu_seconds(door.pid)
    long = await load(door, "c200-d20", connections=40, spread=4)
    return {"chunk": (spent(door, begun, long) - each_short) / 190 * 1e6}


async def _further_follower(port: int, pid: int, world: World) -> float:
    """µs of CPU a chunk. By the slope, as `_chunk_cost`, with followers and without."""
    costs = []
    for followers in (0, FOLLOWERS):
        short = await _followed(port, pid, world, "c10-d20", followers)
        long = await _followed(port, pid, world, "c200-d20", followers)
        costs.append((long - short) / 190)
    return (costs[1] - costs[0]) / FOLLOWED / FOLLOWERS * 1e6


async def _followed(
    port: int, pid: int, world: World, model: str, followers: int
) -> float:
    """CPU seconds of some turns at once, each told to its asker and to `followers`."""
    begun = cpu_seconds(pid)
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
        for conversation in world.conversations[:FOLLOWED]:
            sockets = [
                await opened.enter_async_context(
                    Socket(port, conversation, world.cookie)
                )
                for _ in range(followers + 1)
            ]
            for follower in sockets[1:]:
                group.create_task(follower.follow())
            group.create_task(sockets[0].turn(f"bench-{model}", QUESTION))
    return cpu_seconds(pid) - begun


async def _paced(door: Door) -> Figures:
    spread = 4.0
    ideal = spread * (STREAMS - 1) / STREAMS + 200 / PACE
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers = await load(door, "c200-d20", connections=STREAMS, spread=spread)
    lags = [lag * 1e3 for answer in answers for lag in answer.lags]
    return {
        "stretch": (loop.time() - begun) / ideal,
        "lag50": median(lags),
        "lag99": quantiles(lags, n=100)[-1],
    }


async def _post(port: int, pid: int, world: World) -> Figures:
    number = 100
    door = Door("REST", pid, _over_sse(port, world, stream=False))
    begun = cpu_seconds(pid)
    answers = await load(door, "c1-d0", connections=1, turns=number)
    return {
        "cpu": spent(door, begun, answers) * 1e3,
        "ms": 1e3 * median(answer.total for answer in answers),
    }


def _over_sse(port: int, world: World, *, stream: bool = True) -> Open:
    @asynccontextmanager
    async def opened(conversation: int | str) -> AsyncGenerator[Ask, None]:
        path = f"/api/conversations/{_id(world, conversation)}/turns/"
        headers = {"Authorization": f"Bearer {world.token}"}
        status = b"200" if stream else b"202"
        async with Http(port, headers) as http:
            yield lambda model: http.post(
                path,
                {"input": QUESTION, "model": f"bench-{model}", "stream": stream},
                status=status,
            )

    return opened


def _over_ws(port: int, world: World) -> Open:
    @asynccontextmanager
    async def opened(conversation: int | str) -> AsyncGenerator[Ask, None]:
        async with Socket(port, _id(world, conversation), world.cookie) as socket:
            yield lambda model: socket.turn(f"bench-{model}", QUESTION)

    return opened


def _id(world: World, conversation: int | str) -> str:
    if isinstance(conversation, str):
        return conversation
    return world.conversations[conversation]
