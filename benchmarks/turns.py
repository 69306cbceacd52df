"""Turns of a conversation through a real server, over SSE and over WebSocket.

The same run measures, with the same client, the mock provider called directly (what
the client itself costs) and a raw relay (the least that Python can do). Compare only
inside the table.
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
from benchmarks.dataset import EARLIER, Dataset, make_dataset
from benchmarks.processes import cpu_seconds, memory
from benchmarks.servers_under_test import (
    QUESTION,
    Ask,
    Endpoint,
    Figures,
    Open,
    load,
    open_streams,
    show_endpoints,
    spent,
    start_baselines,
)
from conversations.models import Turn
from tests.serving import ServerProcess

PACE = 50  # chunks a second of one stream
STREAMS = 100
OPEN_STREAMS = 100
SETTLES = 5  # seconds after the start, until memory is stable
WARMS = 16  # connections that make the server start all its threads
TURNS, SUBSCRIBERS = 8, 10  # turns, and further subscribers of each


def main() -> None:
    with ExitStack() as running:
        upstream_port, endpoints = running.enter_context(start_baselines())
        server = ServerProcess(settings.DATA, {"ENABLE_DEMO": "false"}).start()
        running.callback(server.stop)
        assert server.process
        pid = server.process.pid
        time.sleep(SETTLES)
        idle = memory(pid)
        dataset = make_dataset(upstream_port)
        endpoints += [
            Endpoint(
                "SSE", pid, _over_sse(server.port, dataset), has_conversations=True
            ),
            Endpoint(
                "WebSocket", pid, _over_ws(server.port, dataset), has_conversations=True
            ),
        ]
        gc.freeze()  # a pause of the client's garbage collector would count as lag
        figures = asyncio.run(_measure(endpoints, dataset))
        further = asyncio.run(_further_subscriber(server.port, pid, dataset))
        posted = asyncio.run(_post(server.port, pid, dataset))
    show_endpoints("Turns: one server process", endpoints, figures, _FIGURES)
    print(f"CPU of a chunk for each further subscriber: {further:.1f} µs")
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


async def _measure(
    endpoints: Sequence[Endpoint], dataset: Dataset
) -> dict[str, Figures]:
    figures: dict[str, Figures] = {}
    for endpoint in endpoints:
        print(f"measuring: {endpoint.name} ...", file=sys.stderr)
        await load(endpoint, "c5-d0", connections=WARMS, turns=5)  # imports, caches
        figures[endpoint.name] = {
            **await open_streams(
                endpoint, OPEN_STREAMS, 10
            ),  # first, because Python returns little memory to the system
            **await _single(endpoint, dataset),
            **await _chunk_cost(endpoint),
            **await _paced(endpoint),
        }
        if endpoint.has_conversations:
            figures[endpoint.name] |= await _with_history(endpoint, dataset)
        figures[endpoint.name]["failed"] = len(endpoint.failures)
    return figures


async def _single(endpoint: Endpoint, dataset: Dataset) -> Figures:
    begun = cpu_seconds(endpoint.pid)
    answers = await load(endpoint, "c5-d0", connections=1, turns=60)
    figures = {
        "ttft": 1e3 * median(answer.ttft or 0.0 for answer in answers),
        "turn": spent(endpoint, begun, answers) * 1e3,
    }
    if endpoint.has_conversations:
        figures["claim"] = await asyncio.to_thread(_since_claim, answers, dataset)
    return figures


def _since_claim(answers: Sequence[Answer], dataset: Dataset) -> float:
    """Milliseconds, median. `answers` are the last turns of the first conversation."""
    turns = Turn.objects.filter(conversation=dataset.conversations[0])
    claimed = turns.order_by("-created_at").values_list("started_at", flat=True)
    began = [answer.provider_began for answer in reversed(answers)]
    since_1970 = time.time() - time.monotonic()
    return 1e3 * median(
        since_1970 + first - at.timestamp()
        for first, at in zip(began, claimed[: len(began)], strict=True)
        if at is not None
    )


async def _with_history(endpoint: Endpoint, dataset: Dataset) -> Figures:
    figures: Figures = {}
    for number, conversation in dataset.long.items():
        begun, answers = cpu_seconds(endpoint.pid), []
        async with endpoint.open(conversation) as ask:
            for _ in range(10):
                answers.append(await ask("c5-d0"))
        figures[f"after{number}"] = spent(endpoint, begun, answers) * 1e3
    return figures


async def _chunk_cost(endpoint: Endpoint) -> Figures:
    """From the slope between short and long streams, so the turn's own cost is out."""
    begun = cpu_seconds(endpoint.pid)
    short = await load(endpoint, "c10-d20", connections=40, turns=3, spread=4)
    each_short, begun = spent(endpoint, begun, short), cpu_seconds(endpoint.pid)
    long = await load(endpoint, "c200-d20", connections=40, spread=4)
    return {"chunk": (spent(endpoint, begun, long) - each_short) / 190 * 1e6}


async def _further_subscriber(port: int, pid: int, dataset: Dataset) -> float:
    """µs of CPU per chunk and subscriber: the slope with and without subscribers."""
    costs = []
    for subscribers in (0, SUBSCRIBERS):
        short = await _run_subscribed(port, pid, dataset, "c10-d20", subscribers)
        long = await _run_subscribed(port, pid, dataset, "c200-d20", subscribers)
        costs.append((long - short) / 190)
    return (costs[1] - costs[0]) / TURNS / SUBSCRIBERS * 1e6


async def _run_subscribed(
    port: int, pid: int, dataset: Dataset, model: str, subscribers: int
) -> float:
    """CPU seconds of simultaneous turns, each with `subscribers` more."""
    begun = cpu_seconds(pid)
    async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
        for conversation in dataset.conversations[:TURNS]:
            sockets = [
                await opened.enter_async_context(
                    Socket(port, conversation, dataset.cookie)
                )
                for _ in range(subscribers + 1)
            ]
            for subscriber in sockets[1:]:
                group.create_task(subscriber.subscribe())
            group.create_task(sockets[0].turn(f"bench-{model}", QUESTION))
    return cpu_seconds(pid) - begun


async def _paced(endpoint: Endpoint) -> Figures:
    spread = 4.0
    ideal = spread * (STREAMS - 1) / STREAMS + 200 / PACE
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers = await load(endpoint, "c200-d20", connections=STREAMS, spread=spread)
    lags = [lag * 1e3 for answer in answers for lag in answer.lags]
    return {
        "stretch": (loop.time() - begun) / ideal,
        "lag50": median(lags),
        "lag99": quantiles(lags, n=100)[-1],
    }


async def _post(port: int, pid: int, dataset: Dataset) -> Figures:
    number = 100
    endpoint = Endpoint("REST", pid, _over_sse(port, dataset, stream=False))
    begun = cpu_seconds(pid)
    answers = await load(endpoint, "c1-d0", connections=1, turns=number)
    return {
        "cpu": spent(endpoint, begun, answers) * 1e3,
        "ms": 1e3 * median(answer.total for answer in answers),
    }


def _over_sse(port: int, dataset: Dataset, *, stream: bool = True) -> Open:
    @asynccontextmanager
    async def opened(conversation: int | str) -> AsyncGenerator[Ask, None]:
        path = f"/api/conversations/{_id(dataset, conversation)}/turns/"
        headers = {"Authorization": f"Bearer {dataset.token}"}
        status = b"200" if stream else b"202"
        async with Http(port, headers) as http:
            yield lambda model: http.post(
                path,
                {"input": QUESTION, "model": f"bench-{model}", "stream": stream},
                status=status,
            )

    return opened


def _over_ws(port: int, dataset: Dataset) -> Open:
    @asynccontextmanager
    async def opened(conversation: int | str) -> AsyncGenerator[Ask, None]:
        async with Socket(port, _id(dataset, conversation), dataset.cookie) as socket:
            yield lambda model: socket.turn(f"bench-{model}", QUESTION)

    return opened


def _id(dataset: Dataset, conversation: int | str) -> str:
    if isinstance(conversation, str):
        return conversation
    return dataset.conversations[conversation]
