"""Endpoints of servers under test, the load on them, and its CPU and memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.client import Answer, Http, RequestFailed
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.table import ratio, show
from tests.serving import free_port

QUESTION = "Say something about the weather in Paris."

Ask = Callable[[str], Awaitable[Answer]]
#: Takes a conversation's number or id; endpoints without conversations ignore it.
Open = Callable[[int | str], AbstractAsyncContextManager[Ask]]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API of one server process that answers prompts."""

    name: str
    pid: int
    open: Open
    plain: Open | None = None  # for an answer that is not streamed
    has_conversations: bool = False
    failures: list[str] = field(default_factory=list)


@contextmanager
def start_baselines() -> Iterator[tuple[int, list[Endpoint]]]:
    """Start the mock provider and a raw relay in front of it.

    Yields the provider's port and both endpoints. The provider called directly shows
    what the client itself costs.
    """
    if not Path("/proc/self/stat").exists():
        sys.exit("The benchmark reads CPU time from /proc, which only Linux has.")
    upstream_port, relay_port = free_port(), free_port()
    with (
        python("benchmarks.upstream", upstream_port) as upstream,
        python("benchmarks.byte_relay", relay_port, upstream_port) as relay,
    ):
        yield (
            upstream_port,
            [
                chat_endpoint("direct", upstream, upstream_port),
                chat_endpoint("relay", relay, relay_port),
            ],
        )


def chat_endpoint(name: str, pid: int, port: int, token: str = "") -> Endpoint:
    """An endpoint that speaks Chat Completions."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    streamed, plain = (_chat(port, headers, stream) for stream in (True, False))
    return Endpoint(name, pid, streamed, plain)


def _chat(port: int, headers: dict[str, str], stream: bool) -> Open:
    @asynccontextmanager
    async def opened(_: int | str) -> AsyncGenerator[Ask, None]:
        async with Http(port, headers) as http:
            yield lambda model: http.post(
                "/v1/chat/completions",
                {
                    "model": f"bench-{model}",
                    "stream": stream,
                    "messages": [{"role": "user", "content": QUESTION}],
                },
            )

    return opened


async def load(
    endpoint: Endpoint,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,  # seconds in which the connections begin
    stream: bool = True,
) -> list[Answer]:
    opened = endpoint.open if stream else endpoint.plain
    assert opened is not None

    async def one(number: int) -> None:
        await asyncio.sleep(spread * number / connections)
        try:
            async with opened(number) as ask:
                for _ in range(turns):
                    answers.append(await ask(model))
        except (RequestFailed, OSError, EOFError) as exc:
            endpoint.failures.append(repr(exc))

    answers: list[Answer] = []
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return answers


def spent(endpoint: Endpoint, begun: float, answers: Sequence[Answer]) -> float:
    """CPU seconds per answer since `begun`."""
    return (cpu_seconds(endpoint.pid) - begun) / max(len(answers), 1)


async def open_streams(endpoint: Endpoint, number: int, spread: float) -> Figures:
    """KB of memory for each of `number` open streams of one word a second."""
    before = memory(endpoint.pid)
    loading = asyncio.ensure_future(
        load(endpoint, "c20-d1000", connections=number, spread=spread)
    )
    await asyncio.sleep(14)  # by now all streams have begun and none has ended
    grown = memory(endpoint.pid) - before
    await loading
    return {"open": grown / number / 1024}


def show_endpoints(
    title: str,
    endpoints: Sequence[Endpoint],
    figures: dict[str, Figures],
    row_titles: dict[str, str],
    *more: list[object],
) -> None:
    """Print a table with one column per endpoint; `more` are further rows."""
    names = [endpoint.name for endpoint in endpoints]
    rows: list[list[object]] = [
        [title, *(figures[name].get(key) for name in names)]
        for key, title in row_titles.items()
    ]
    least = figures["relay"]["chunk"]
    chunks = [ratio(figures[name]["chunk"], least) for name in names[1:]]
    rows.append(["CPU a chunk, against the relay", None, *chunks])
    show(title, ["", *names], [*rows, *more])
