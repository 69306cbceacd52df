"""Decompress request bodies incrementally, up to a limit. Pure.

A few kilobytes may decompress to gigabytes, so decompression stops at the limit.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-content-encoding
"""

from __future__ import annotations

import zlib
from typing import Any  # zlib's own type has no public name

_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS}
_ZLIB = 0x78  # the first byte of a zlib stream with the usual window
ACCEPTED = "gzip, deflate, identity"


class UnknownEncoding(ValueError):
    """The content encoding of the body is not supported."""


class CorruptBody(ValueError):
    """The body cannot be decompressed."""


class UnpackedTooLong(ValueError):
    """The body is longer than allowed after decompression."""


class Unpacker:
    """Decompresses the pieces of one body. `limit`: decompressed bytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        """Raises UnknownEncoding."""
        self._encoding = encoding.strip().lower()
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise UnknownEncoding(self._encoding[:40])
        self._left = limit
        self._stream: Any = None

    def feed(self, piece: bytes) -> bytes:
        """Raises CorruptBody, UnpackedTooLong."""
        unpacked: list[bytes] = []
        while piece:
            self._stream = self._stream or self._new_stream(piece)
            try:
                part = self._stream.decompress(piece, self._left + 1)
            except zlib.error as exc:
                raise CorruptBody(self._encoding) from exc
            self._left -= len(part)
            if self._left < 0:
                raise UnpackedTooLong
            unpacked.append(part)
            piece = self._stream.unconsumed_tail
            if self._stream.eof:  # another gzip member may follow in the same body
                piece, self._stream = self._stream.unused_data, None
        return b"".join(unpacked)

    def close(self) -> None:
        """Raises CorruptBody if the end of the body is missing."""
        if self._stream is not None:
            raise CorruptBody(self._encoding)

    def _new_stream(self, piece: bytes) -> Any:
        """Choose the format: "deflate" is sent with the zlib header, as the standard
        demands, or without it."""
        bare = -zlib.MAX_WBITS
        window = zlib.MAX_WBITS if piece[0] & 0x0F == _ZLIB & 0x0F else bare
        return zlib.decompressobj(_WINDOWS.get(self._encoding, window))
