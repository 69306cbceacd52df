"""A host that refuses one request in twenty and closes connections as it likes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from llm.generation import retries
from llm.http import client
from llm.http.client import ProviderCall
from llm.provider import Route
from llm.wire.deltas import TextDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.hosts import route, text_stream

REQUESTS, AT_ONCE = 400, 8
ANSWER = text_stream("Hello")


class Flaky:
    """The same failures each time: what befalls a request hangs on its text alone."""

    def __init__(self) -> None:
        self.refused = 0
        self.cut_off = 0  # requests that a reused connection was closed over
        self._seen: set[str] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Route]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            flaky_route = route()
            endpoint = replace(
                flaky_route.endpoint,
                base_url=f"http://127.0.0.1:{port}/v1",
                allow_private_network=True,
            )
            yield replace(flaky_route, endpoint=endpoint)
            await client.aclose()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_reused = False
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.partition("content-length: ")[2].split("\r\n")[0])
                text = json.loads(await reader.readexactly(size))["messages"][0]
                dice = random.Random(text["content"])
                is_first = text["content"] not in self._seen
                if is_reused and is_first and dice.random() < 0.1:
                    self._seen.add(text["content"])
                    self.cut_off += 1
                    return
                writer.write(self._answer(text["content"], dice))
                await writer.drain()
                is_reused = True
                if dice.random() < 0.1:
                    return  # closes what the client takes for an idle connection
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, text: str, dice: random.Random) -> bytes:
        times = sum(each.startswith(f"{text} refused") for each in self._seen)
        if dice.random() < 0.05 and times < dice.choice((1, 2)):
            self._seen.add(f"{text} refused {times}")
            self.refused += 1
            status = dice.choice((429, 503))
            return b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n{}" % status
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER


async def test_every_request_is_answered_in_spite_of_it():
    flaky, attempts, waits = Flaky(), 0, []
    numbers = iter(range(REQUESTS))

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def send(flaky_route: Route) -> None:
        nonlocal attempts
        for number in numbers:
            request = Request(model="m", items=[user_message(f"Hi {number}")])
            call, text = ProviderCall(), ""
            stream = retries.stream([flaky_route], request, call, wait=wait)
            async with aclosing(stream) as batches:
                async for deltas in batches:
                    text += "".join(d.text for d in deltas if isinstance(d, TextDelta))
            assert text == "Hello"
            attempts += len([*call.earlier, call])

    async with flaky.listening() as flaky_route:
        await asyncio.gather(*(send(flaky_route) for _ in range(AT_ONCE)))
    assert flaky.refused >= REQUESTS * 0.03
    assert flaky.cut_off >= REQUESTS * 0.03
    # Each refusal is an attempt of its own; a closed connection is none.
    assert attempts == REQUESTS + flaky.refused
    assert len(waits) == flaky.refused
