"""Read the body of an ASGI request piece by piece, decompressing it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings

from conversations.http.decompression import Unpacker


class ClientDisconnected(Exception):
    """The client disconnected before the body was complete."""


class BodyTooLong(ValueError):
    """The body is longer than allowed before decompression."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit  # bytes


def content_encoding(headers: Mapping[bytes, bytes]) -> str:
    """The normalized `Content-Encoding`; "" if the body is not compressed."""
    value = headers.get(b"content-encoding", b"").decode("latin-1")
    encoding = value.strip().lower()
    return "" if encoding == "identity" else encoding


async def read_pieces(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[Any]],
    limit: int,  # bytes before decompression
) -> AsyncGenerator[bytes, None]:
    """Yield decompressed pieces.

    Raises ClientDisconnected, BodyTooLong, and the errors of Unpacker.
    """
    encoding = content_encoding(headers)
    unpacker = Unpacker(encoding, settings.MAX_INPUT_SIZE) if encoding else None
    declared_length = headers.get(b"content-length", b"")
    if declared_length.isdigit() and int(declared_length) > limit:
        raise BodyTooLong(limit)
    received, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece = message.get("body", b"")
        received += len(piece)
        if received > limit:
            raise BodyTooLong(limit)
        yield unpacker.feed(piece) if unpacker else piece
        more = message.get("more_body", False)
    if unpacker:
        unpacker.close()
