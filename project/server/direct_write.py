"""WebSocket protocol for uvicorn to which the application can write frames directly.

The event log encodes a batch of events once, as WebSocket frames, and writes the same
bytes to the transport of each subscriber. An ASGI message `websocket.send` would be
turned into a frame for each connection anew (docs/decisions/0017-stock-servers.md).
uvicorn's `Config(ws=...)` selects this class.

The method `write` is `parley.write` in the `state` of the ASGI scope. Under any other
server it is missing, and the consumer sends ASGI messages.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from conversations.engine import WRITE_KEY

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class DirectWriteProtocol(WebSocketsSansIOProtocol):
    def __init__(
        self, config: Any, server_state: Any, app_state: dict[str, Any]
    ) -> None:
        state = {**app_state, WRITE_KEY: self.write}  # becomes the scope's `state`
        super().__init__(config, server_state, state)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._written_transport = transport

    def write(self, frames: bytes) -> bool:
        """Return False, and write nothing, if the connection is not open or its
        client reads too slowly. The caller then sends ASGI messages, which wait."""
        transport = self._written_transport
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
        transport = self._written_transport
        if self.conn.handshake_exc is not None and not transport.is_closing():
            transport.write(b"".join(self.conn.data_to_send()) or _BAD_REQUEST)
            transport.close()
