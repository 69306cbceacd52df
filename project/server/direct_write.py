"""WebSocket protocol for uvicorn to which the application can write frames directly.

The event log encodes a batch of events once, as WebSocket frames, and writes the same
bytes to the transport of each subscriber. An ASGI message `websocket.send` would be
turned into a frame for each connection anew (docs/decisions/0017-stock-servers.md).
uvicorn's `Config(ws=...)` selects this class.

The ASGI extension `parley.write` is the method `write`. Under any other server the
extension is missing, and the consumer sends ASGI messages.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from conversations.engine import WRITE_EXTENSION

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class DirectWriteProtocol(WebSocketsSansIOProtocol):
    async def run_asgi(self) -> None:
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[WRITE_EXTENSION] = self.write
        await super().run_asgi()

    def write(self, frames: bytes) -> bool:
        """Return False, and write nothing, if the connection is not open or its
        client reads too slowly. The caller then sends ASGI messages, which wait."""
        transport = self.transport
        _, high = transport.get_write_buffer_limits()
        if (
            self.conn.state is not State.OPEN
            or transport.is_closing()
            or transport.get_write_buffer_size() > high
        ):
            return False
        transport.write(frames)
        return True

    def data_received(self, data: bytes) -> None:
        """Answer a handshake that `websockets` cannot read. Uvicorn leaves it open
        without an answer."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_REQUEST)
            self.transport.close()
