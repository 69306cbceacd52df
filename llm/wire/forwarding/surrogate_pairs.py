"""Joining of surrogate pairs that a host splits over two frames of a stream.

Some hosts cut text between two UTF-16 units: one frame's string ends with the escape
`\\ud83d` and the next one begins with `\\ude00`. A client that decodes each frame by
itself cannot join them, and neither half can be encoded as UTF-8.
"""

from __future__ import annotations

import re

_FIRST_HALF = re.compile(rb'(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2})"')
_SECOND_HALF = re.compile(rb'(?<!\\)"(\\u[dD][c-fC-F][0-9a-fA-F]{2})')
_INDEX = re.compile(rb'"\w*index"\s*:\s*(\d+)')


class SurrogatePairs:
    """Moves a first half from the end of a string to the frame with the second half."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        #: First halves by the indexes in their frame: of the choice, item and part.
        self._waiting: dict[tuple[bytes, ...], bytes] = {}

    def join(self, frame: bytes) -> bytes:
        """The frame as the client gets it. A half without the other one is left out."""
        if rb"\ud" not in frame and rb"\uD" not in frame:
            return frame
        where = tuple(_INDEX.findall(frame))
        if found := _SECOND_HALF.search(frame):
            first = self._waiting.pop(where, None)
            pair = first + found[1] if first else b""
            frame = frame[: found.start(1)] + pair + frame[found.end(1) :]
        if found := _FIRST_HALF.search(frame):
            self._waiting[where] = found[2]
            frame = frame[: found.start(2)] + frame[found.end(2) :]
        return frame
