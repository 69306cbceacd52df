"""The gateway over Chat Completions, plain and streamed.

The same run measures, with the same client, the mock provider called directly, a raw
relay (the least that Python can do), and LiteLLM's proxy if `PEERS` names a Python
that has it. One process each, the gateway's on uvicorn. Compare only inside the table.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from django.core.management import call_command

from benchmarks.dataset import make_dataset
from benchmarks.litellm import litellm
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.servers_under_test import (
    Endpoint,
    Figures,
    chat_endpoint,
    load,
    open_streams,
    show_endpoints,
    spent,
    start_baselines,
)
from benchmarks.table import ratio
from tests.serving import free_port

ROUNDS = 3  # over all endpoints; the median counts
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
        upstream_port, endpoints = running.enter_context(start_baselines())
        dataset, port = make_dataset(upstream_port), free_port()
        pid = running.enter_context(python("benchmarks.uvicorn_server", port))
        endpoints.append(chat_endpoint("gateway", pid, port, dataset.token))
        endpoints += running.enter_context(litellm(upstream_port))
        gc.freeze()  # a pause of the client's garbage collector would count as waiting
        figures = asyncio.run(_measure(endpoints))
    names = [endpoint.name for endpoint in endpoints[1:]]
    added = [figures[name]["ttft"] - figures["direct"]["ttft"] for name in names]
    show_endpoints(
        "The gateway: one process on uvicorn",
        endpoints,
        figures,
        _FIGURES,
        ["TTFT added, ms", None, *added],
        *(
            _relative_row(key, names, figures)
            for key in ("plain", "stream", "chunk", "fast")
        ),
    )


def _relative_row(
    key: str, names: Sequence[str], figures: dict[str, Figures]
) -> list[object]:
    base = figures["gateway"][key]
    ratios = [ratio(figures[name][key], base) for name in names]
    return [f"divided by the gateway's: {_FIGURES[key]}", None, *ratios]


async def _measure(endpoints: Sequence[Endpoint]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for endpoint in endpoints:
        idle = memory(endpoint.pid) / 1e6
        await load(endpoint, "c5-d0", connections=4, turns=5)  # imports, caches
        opened = await open_streams(endpoint, OPEN_STREAMS, 8)
        figures[endpoint.name] = {"idle": idle, **opened}
    rounds: dict[str, list[Figures]] = {endpoint.name: [] for endpoint in endpoints}
    for number in range(ROUNDS):
        for endpoint in endpoints:
            print(f"measuring: {endpoint.name}, {number + 1} ...", file=sys.stderr)
            rounds[endpoint.name].append(await _round(endpoint))
    for endpoint in endpoints:
        results = rounds[endpoint.name]
        figures[endpoint.name] |= {
            key: median(r[key] for r in results) for key in results[0]
        }
        figures[endpoint.name]["failed"] = len(endpoint.failures)
    return figures


async def _round(endpoint: Endpoint) -> Figures:
    answers = await load(endpoint, "c5-d0", connections=1, turns=100)
    ttft = 1e3 * median(answer.ttft or 0.0 for answer in answers)
    plain = await _cost(endpoint, "c5-d0", connections=4, turns=100, stream=False)
    # The slope between short and long streams, so the stream's own cost is out.
    short = await _cost(endpoint, "c10-d20", connections=40, turns=3, spread=2)
    long = await _cost(endpoint, "c200-d20", connections=40, spread=2)
    # CPU, not wall time: that would measure this client and the mock provider.
    fast = await _cost(endpoint, f"c{FAST_CHUNKS}-d0", connections=8, turns=3)
    return {
        "ttft": ttft,
        "plain": plain * 1e3,
        "stream": short * 1e3,
        "chunk": (long - short) / 190 * 1e6,
        "fast": fast / FAST_CHUNKS * 1e6,
    }


async def _cost(
    endpoint: Endpoint,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,
    stream: bool = True,
) -> float:
    """CPU seconds per answer, including what the server writes after it."""
    begun = cpu_seconds(endpoint.pid)
    answers = await load(
        endpoint,
        model,
        connections=connections,
        turns=turns,
        spread=spread,
        stream=stream,
    )
    await asyncio.sleep(0.3)
    return spent(endpoint, begun, answers)
