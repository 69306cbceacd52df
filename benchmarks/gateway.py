"""The gateway as programs ask it: Chat Completions, plain and streamed.

Beside it, in the same run and by the same client: the upstream asked directly, and a
relay that passes bytes on unread, which is the least that Python can do. One process
each, the gateway's on uvicorn. Compare only inside the table.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from django.core.management import call_command

from benchmarks.client import Answer, Http, Refused
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.table import ratio, show
from benchmarks.world import make_world
from tests.serving import free_port

ROUNDS = 3  # of all doors by turns; the median counts
OPEN_STREAMS = 200
FAST_CHUNKS = 1_000

Figures = dict[str, float]
Ask = Callable[[str], Awaitable[Answer]]

_FIGURES = {
    "ttft": "TTFT alone, ms, median",
    "plain": "CPU, ms a plain request",
    "stream": "CPU, ms a stream of 10 chunks",
    "chunk": "CPU, µs a chunk at 50/s",
    "rate": "most chunks/s",
    "idle": "memory idle, MB",
    "open": "memory, KB an open stream",
    "failed": "connections refused or cut",
}


@dataclass(frozen=True, slots=True)
class Door:
    name: str
    pid: int
    port: int
    headers: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, *, stream: bool) -> AsyncGenerator[Ask, None]:
        async with Http(self.port, self.headers) as http:
            yield lambda model: http.post(
                "/v1/chat/completions",
                {
                    "model": f"bench-{model}",
                    "stream": stream,
                    "messages": [{"role": "user", "content": "How is the weather?"}],
                },
            )


def main() -> None:
    if not Path("/proc/self/stat").exists():
        sys.exit("`gateway` reads what processes cost from /proc, which Linux has.")
    call_command("migrate", verbosity=0)
    with ExitStack() as running:
        upstream_port, relay_port, port = free_port(), free_port(), free_port()
        world = make_world(upstream_port)
        upstream = running.enter_context(python("benchmarks.upstream", upstream_port))
        relay = running.enter_context(
            python("benchmarks.relay", relay_port, upstream_port)
        )
        served = running.enter_context(python("benchmarks.served", port))
        doors = [
            Door("direct", upstream, upstream_port),
            Door("relay", relay, relay_port),
            Door("gateway", served, port, {"Authorization": f"Bearer {world.token}"}),
        ]
        gc.freeze()  # the client's own pauses would count as time of waiting
        figures = asyncio.run(_measure(doors))
    _show(doors, figures)


async def _measure(doors: Sequence[Door]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for door in doors:
        idle = memory(door.pid) / 1e6
        await _load(door, "c5-d0", connections=4, turns=5)  # imports, caches
        figures[door.name] = {"idle": idle, "open": await _open_streams(door)}
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
    answers = await _load(door, "c5-d0", connections=1, turns=100)
    ttft = 1e3 * median(answer.ttft or 0.0 for answer in answers)
    plain = await _cost(door, "c5-d0", connections=4, turns=100, stream=False)
    # The slope between short and long streams, so the stream's own cost is out.
    short = await _cost(door, "c10-d20", connections=40, turns=3, spread=2)
    long = await _cost(door, "c200-d20", connections=40, spread=2)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    fast = await _load(door, f"c{FAST_CHUNKS}-d0", connections=8, turns=3)
    return {
        "ttft": ttft,
        "plain": plain * 1e3,
        "stream": short * 1e3,
        "chunk": (long - short) / 190 * 1e6,
        "rate": len(fast) * FAST_CHUNKS / (loop.time() - begun),
    }


async def _open_streams(door: Door) -> float:
    before = memory(door.pid)
    loading = asyncio.ensure_future(
        _load(door, "c20-d1000", connections=OPEN_STREAMS, spread=8)
    )
    await asyncio.sleep(14)  # all have begun, none has ended
    grown = memory(door.pid) - before
    await loading
    return grown / OPEN_STREAMS / 1024


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
    answers = await _load(
        door, model, connections=connections, turns=turns, spread=spread, stream=stream
    )
    await asyncio.sleep(0.3)
    return (cpu_seconds(door.pid) - begun) / max(len(answers), 1)


async def _load(
    door: Door,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,  # seconds in which the connections begin
    stream: bool = True,
) -> list[Answer]:
    async def one(number: int) -> None:
        await asyncio.sleep(spread * number / connections)
        try:
            async with door.open(stream=stream) as ask:
                for _ in range(turns):
                    answers.append(await ask(model))
        except (Refused, OSError, EOFError) as exc:
            door.failures.append(repr(exc))

    answers: list[Answer] = []
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return answers


def _show(doors: Sequence[Door], figures: dict[str, Figures]) -> None:
    names = [door.name for door in doors]
    rows: list[list[object]] = [
        [title, *(figures[name].get(key) for name in names)]
        for key, title in _FIGURES.items()
    ]
    floor = figures["relay"]["chunk"]
    chunks = [ratio(figures[name]["chunk"], floor) for name in names[1:]]
    rows.append(["CPU a chunk, against the relay", None, *chunks])
    added = figures["gateway"]["ttft"] - figures["direct"]["ttft"]
    rows.append(["TTFT added, ms", None, None, added])
    show("The gateway: one process on uvicorn", ["", *names], rows)
