"""A provider that streams long answers line by line, at a steady pace.

The model's name says which text: a key of `texts.STREAMS`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from benchmarks.pages.texts import STREAMS
from tests.serving import free_port

RATE = 100  # lines a second; four times a fast model's
STREAMED = 1500  # lines
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_HEAD += b"Connection: close\r\n\r\n"


@contextmanager
def serve_lines() -> Iterator[int]:
    """Gives the port."""
    port = free_port()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    starting = asyncio.start_server(_answer, "127.0.0.1", port)
    asyncio.run_coroutine_threadsafe(starting, loop).result()
    yield port
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    asked = orjson.loads(await reader.readexactly(length))
    writer.write(_HEAD)
    loop = asyncio.get_running_loop()
    began = loop.time()
    lines = STREAMS[asked["model"]](STREAMED).splitlines(keepends=True)
    for number, line in enumerate(lines):
        writer.write(_chunk({"content": line}, None))
        await asyncio.sleep(began + number / RATE - loop.time())
    writer.write(_chunk({}, "stop") + b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


def _chunk(delta: dict[str, str], reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
