"""Decompression of a response body, in steps whose size the host cannot choose.

httpx decompresses each chunk of the network at once, and twice or more often if the
host names several encodings: two kilobytes would become a gigabyte.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx

from llm.errors import BadResponse

_COMPRESSED = {"gzip", "deflate"}
_ENCODINGS = {"", "identity", *_COMPRESSED}
_MAX_DECOMPRESSED = 64 * 1024  # bytes decompressed in one step


def is_compressed(response: httpx.Response) -> bool:
    """Some hosts compress although `Accept-Encoding` does not allow it."""
    return "content-encoding" in response.headers


def _unknown_encodings(response: httpx.Response) -> str:
    """Encodings that httpx would not decode."""
    return ", ".join({each[:20] for each in _encodings(response)} - _ENCODINGS)


def _encodings(response: httpx.Response) -> list[str]:
    names = response.headers.get("content-encoding", "").lower().split(",")
    return [each.strip() for each in names]


async def decompress(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Iterate over the body in small steps: a kilobyte may decompress to a megabyte.

    Raises BadResponse for an encoding that is unknown, or used more than once, and the
    errors of the network.
    """
    if unknown := _unknown_encodings(response):
        raise BadResponse(
            f"The provider uses an unsupported content encoding ({unknown}); ask the"
            " staff to correct it."
        )
    decompressors = [
        _Decompressor() for each in _encodings(response) if each in _COMPRESSED
    ]
    if len(decompressors) > 1:
        raise BadResponse(detail="The response is compressed more than once.")
    if not decompressors:
        async for chunk in response.aiter_bytes():
            if chunk:
                yield chunk
        return
    async for chunk in response.aiter_raw():
        for number, piece in enumerate(decompressors[0].feed(chunk)):
            if number:
                await asyncio.sleep(0)
            yield piece


class _Decompressor:
    """Decompresses gzip, and deflate with or without a zlib header."""

    def __init__(self) -> None:
        self._stream: Any = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Raises httpx.DecodingError."""
        while chunk:
            if self._stream is None:
                self._stream = zlib.decompressobj(_window_bits(chunk[0]))
            try:
                piece = self._stream.decompress(chunk, _MAX_DECOMPRESSED)
            except zlib.error as exc:
                raise httpx.DecodingError(str(exc)) from exc
            chunk = self._stream.unconsumed_tail
            if self._stream.eof:  # gzip may have several members
                chunk, self._stream = self._stream.unused_data, None
            if piece:
                yield piece


def _window_bits(first: int) -> int:
    """The window size for zlib, by the first byte: with a header, or raw deflate."""
    has_head = first in (0x1F, 0x78)
    return zlib.MAX_WBITS | 32 if has_head else -zlib.MAX_WBITS
