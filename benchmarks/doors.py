"""Ways to an answer, load on them, and what it costs: for all that measures servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.client import Answer, Http, Refused
from benchmarks.processes import cpu_seconds, memory, python
from benchmarks.table import ratio, show
from tests.serving import free_port

QUESTION = "Say something about the weather in Paris."

Ask = Callable[[str], Awaitable[Answer]]
#: Takes the number of a conversation, or its id; most have none.
Open = Callable[[int | str], AbstractAsyncContextManager[Ask]]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Door:
    """A way to an answer, and the process behind it."""

    name: str
    pid: int
    open: Open
    plain: Open | None = None  # for an answer in one piece
    keeps: bool = False  # has conversations
    failures: list[str] = field(default_factory=list)


@contextmanager
def floor() -> Iterator[tuple[int, list[Door]]]:
    """The upstream's port; and the upstream asked directly, which is what the client
    itself costs, and behind a relay that passes bytes on unread."""
    if not Path("/proc/self/stat").exists():
        sys.exit("What processes cost is read from /proc, which only Linux has.")
    upstream_port, relay_port = free_port(), free_port()
    with (
        python("benchmarks.upstream", upstream_port) as upstream,
        python("benchmarks.relay", relay_port, upstream_port) as relay,
    ):
        yield (
            upstream_port,
            [
                chat_door("direct", upstream, upstream_port),
                chat_door("relay", relay, relay_port),
            ],
        )


def chat_door(name: str, pid: int, port: int, token: str = "") -> Door:
    """Asked for Chat Completions, as programs do."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    streamed, plain = (_chat(port, headers, stream) for stream in (True, False))
    return Door(name, pid, streamed, plain)


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
    door: Door,
    model: str,
    *,
    connections: int,
    turns: int = 1,
    spread: float = 0.0,  # seconds in which the connections begin
    stream: bool = True,
) -> list[Answer]:
    opened = door.open if stream else door.plain
    assert opened is not None

    async def one(number: int) -> None:
        await asyncio.sleep(spread * number / connections)
        try:
            async with opened(number) as ask:
                for _ in range(turns):
                    answers.append(await ask(model))
        except (Refused, OSError, EOFError) as exc:
            door.failures.append(repr(exc))

    answers: list[Answer] = []
    async with asyncio.TaskGroup() as group:
        for number in range(connections):
            group.create_task(one(number))
    return answers


def spent(door: Door, begun: float, answers: Sequence[Answer]) -> float:
    """CPU seconds an answer since `begun`."""
    return (cpu_seconds(door.pid) - begun) / max(len(answers), 1)


async def open_streams(door: Door, number: int, spread: float) -> Figures:
    """Memory of streams that say a word a second."""
    before = memory(door.pid)
    loading = asyncio.ensure_future(
        load(door, "c20-d1000", connections=number, spread=spread)
    )
    await asyncio.sleep(14)  # all have begun, none has ended
    grown = memory(door.pid) - before
    await loading
    return {"open": grown / number / 1024}


def show_doors(
    title: str,
    doors: Sequence[Door],
    figures: dict[str, Figures],
    titles: dict[str, str],
    *more: list[object],
) -> None:
    """A table with a column a door; `more` are rows of its own."""
    names = [door.name for door in doors]
    rows: list[list[object]] = [
        [said, *(figures[name].get(key) for name in names)]
        for key, said in titles.items()
    ]
    least = figures["relay"]["chunk"]
    chunks = [ratio(figures[name]["chunk"], least) for name in names[1:]]
    rows.append(["CPU a chunk, against the relay", None, *chunks])
    show(title, ["", *names], [*rows, *more])
