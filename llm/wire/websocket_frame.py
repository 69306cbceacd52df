"""Encoding of a message as one complete WebSocket frame of a server, unmasked.

Source: https://www.rfc-editor.org/rfc/rfc6455#section-5.2
"""

from __future__ import annotations

from functools import lru_cache

_TEXT, _BINARY = b"\x81", b"\x82"  # opcodes of complete messages
_SHORT, _LONG = 126, 2**16  # sizes in bytes from which the length field is longer


def frame(data: bytes, *, binary: bool = False) -> bytes:
    return (_BINARY if binary else _TEXT) + _length(len(data)) + data


@lru_cache  # most chunks of an answer have similar sizes
def text_head(size: int) -> bytes:
    """The frame header of a text message of `size` bytes."""
    return _TEXT + _length(size)


def _length(size: int) -> bytes:
    if size < _SHORT:
        return bytes((size,))
    if size < _LONG:
        return b"\x7e" + size.to_bytes(2, "big")
    return b"\x7f" + size.to_bytes(8, "big")
