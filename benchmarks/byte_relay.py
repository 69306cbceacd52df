"""Raw byte relay, the least that a Python server can do: two asyncio protocols.

python -m benchmarks.byte_relay PORT UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import sys

import uvloop


class Upstream(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class Client(asyncio.Protocol):
    def __init__(self, upstream_port: int) -> None:
        self._port = upstream_port
        self._early: list[bytes] = []
        self._upstream: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._connecting = asyncio.ensure_future(self._connect(transport))

    def data_received(self, data: bytes) -> None:
        if self._upstream:
            self._upstream.write(data)
        else:
            self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._upstream:
            self._upstream.close()

    async def _connect(self, client: asyncio.Transport) -> None:
        self._upstream, _ = await asyncio.get_running_loop().create_connection(
            lambda: Upstream(client), "127.0.0.1", self._port
        )
        self._upstream.write(b"".join(self._early))


async def main(port: int, upstream_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Client(upstream_port), "127.0.0.1", port, backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
