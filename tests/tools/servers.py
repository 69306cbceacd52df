"""Small web servers on loopback, for what the guarded client does to real ones."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Server:
    """`requests` are the heads it was sent and `bodies` what came after them."""

    port: int = 0
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http"):
        return f"{scheme}://{host}:{self.port}{path}"


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(
    answer: bytes | Answer | list[bytes],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Server]:
    """Answers each connection: with the bytes, the next of them, or as it likes."""
    server = Server()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        try:
            await _read(reader, server)
            if callable(answer):
                await answer(reader, writer)
            else:
                number = len(server.requests) - 1
                writer.write(answer if isinstance(answer, bytes) else answer[number])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # hung up on, as some tests mean to
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, host, port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield server


async def _read(reader: asyncio.StreamReader, server: Server) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    server.requests.append(head)
    length = [
        int(line.partition(":")[2])
        for line in head.lower().splitlines()
        if line.startswith("content-length:")
    ]
    server.bodies.append(await reader.readexactly(length[0]) if length else b"")


def ok(body: bytes = b"", content_type: str = "text/plain", *headers: str) -> bytes:
    return answer("200 OK", body, f"Content-Type: {content_type}", *headers)


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(status, b"", f"Location: {location}")


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(head).encode() + body
