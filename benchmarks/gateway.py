"""The gateway as programs ask it: Chat Completions, plain and streamed.

Beside it, in the same run and by the same client: the upstream asked directly, and a
relay that passes bytes on unread, which is the least that Python can do; and LiteLLM's
proxy, where `PEERS` names a Python that has it. One process each, the gateway's on
uvicorn. Compare only inside the table.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from django.core.management import call_command

from benchmarks.doors import (
    Door,
    Figures,
    chat_door,
    floor,
    load,
    open_streams,
    show_doors,
    spent,
)
from benchmarks.litellm import litellm
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.table import ratio
from benchmarks.world import make_world
from tests.serving import free_port

ROUNDS = 3  # of all doors by turns; the median counts
OPEN_STREAMS = 200
FAST_CHUNKS = 1_000

_FIGURES = {
    "ttft": "TTFT alone, ms, median",
    "plain": "CPU, ms a plain request",
    "stream": "CPU, ms a stream of 10 chunks",
    "chunk": "CPU, µs a chunk at 50/s",
    "fast": "CPU, µs a chunk, as fast as they come",
    "idle": "memory idle, MB",
    "open": "memory, KB an open stream",
    "failed": "connections refused or cut",
}


def main() -> None:
    call_command("migrate", verbosity=0)
    with ExitStack() as running:
        upstream_port, doors = running.enter_context(floor())
        world, port = make_world(upstream_port), free_port()
        served = running.enter_context(python("benchmarks.served", port))
        doors.append(chat_door("gateway", served, port, world.token))
        doors += running.enter_context(litellm(upstream_port))
        gc.freeze()  # the client's own pauses would count as time of waiting
        figures = asyncio.run(_measure(doors))
    names = [door.name for door in doors[1:]]
    added = [figures[name]["ttft"] - figures["direct"]["ttft"] for name in names]
    show_doors(
        "The gateway: one process on uvicorn",
        doors,
        figures,
        _FIGURES,
        ["TTFT added, ms", None, *added],
        *(
            _of_ours(key, names, figures)
            for key in ("plain", "stream", "chunk", "fast")
        ),
    )


def _of_ours(
    key: str, names: Sequence[str], figures: dict[str, Figures]
) -> list[object]:
    ours = figures["gateway"][key]
    told = [ratio(figures[name][key], ours) for name in names]
    return [f"of the gateway's: {_FIGURES[key]}", None, *told]


async def _measure(doors: Sequence[Door]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for door in doors:
        idle = memory(door.pid) / 1e6
        await load(door, "c5-d0", connections=4, turns=5)  # imports, caches
        opened = await open_streams(door, OPEN_STREAMS, 8)
        figures[door.name] = {"idle": idle, **opened}
    rounds: dict[str, list[Figures]] = {door.name: [] for door in doors}
    for number in range(ROUNDS):
        for door in doors:
            print(f"measuring: {door.name}, {number + 1} ...", file=sys.stderr)
            rounds[door.name].append(await _round(door))
    for door in doors:
        told = rounds[door.name]
        figures[door.name] |= {key: median(r[key] for r in told) for key in told[0]}
        figures[door.name]["failed"] = len(door.failures)
    return figures


async def _round(door: Door) -> Figures:
    answers = await load(door, "c5-d0", connections=1, turns=100)
    ttft = 1e3 * median(answer.ttft or 0.0 for answer in answers)
    plain = await _cost(door, "c5-d0", connections=4, turns=100, stream=False)
    # The slope between short and long streams, so the stream's own cost is out.
    short = await _cost(door, "c10-d20", connections=40, turns=3, spread=2)
    long = await _cost(door, "c200-d20", connections=40, spread=2)
    # By the clock it would tell how fast this client is, and the upstream.
    fast = await _cost(door, f"c{FAST_CHUNKS}-d0", connections=8, turns=3)
    return {
        "ttft": ttft,
        "plain": plain * 1e3,
        "stream": short * 1e3,
        "chunk": (long - short) / 190 * 1e6,
        "fast": fast / FAST_CHUNKS * 1e6,
    }


async def _cost(
    door: Door,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,
    stream: bool = True,
) -> float:
    """CPU seconds an answer, with what is written behind its back."""
    begun = cpu_seconds(door.pid)
    answers = await load(
        door, model, connections=connections, turns=turns, spread=spread, stream=stream
    )
    await asyncio.sleep(0.3)
    return spent(door, begun, answers)
