"""A message in, a WebSocket's frame out: a whole one of a server, which masks nothing.

Source: https://www.rfc-editor.org/rfc/rfc6455#section-5.2
"""

from __future__ import annotations

from functools import lru_cache

_TEXT, _BINARY = b"\x81", b"\x82"  # whole messages
_SHORT, _LONG = 126, 2**16  # bytes from which on the length takes more room


def frame(data: bytes, *, binary: bool = False) -> bytes:
    return (_BINARY if binary else _TEXT) + _length(len(data)) + data


@lru_cache  # most chunks of an answer are much of a size
def text_head(size: int) -> bytes:
    """What stands before a text of `size` bytes."""
    return _TEXT + _length(size)


def _length(size: int) -> bytes:
    if size < _SHORT:
        return bytes((size,))
    if size < _LONG:
        return b"\x7e" + size.to_bytes(2, "big")
    return b"\x7f" + size.to_bytes(8, "big")
