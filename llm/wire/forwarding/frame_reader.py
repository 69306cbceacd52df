"""Decoding of a stream whose bytes a client of the same API gets too.

In: bytes as they come from the network, cut anywhere. Out: as `delta_reader`, with a
`FrameDelta` in front of the deltas of a read: the whole frames of this read. Left out
are the frame of an error, because the caller reports errors itself, and a frame that
holds nothing but the usage, where the client has not asked for it. A surrogate pair
that is split over two frames is joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from llm.errors import LLMError
from llm.wire.codec import Decoder
from llm.wire.delta_reader import DeltaReader
from llm.wire.deltas import (
    Delta,
    FrameDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.forwarding.surrogate_pairs import SurrogatePairs
from llm.wire.sse import ServerSentEvent, SSEDecoder

_END = re.compile(rb"\n\n|\r\n\r\n|\r\r")
_USAGE = re.compile(rb'"usage":\s*\{')
_ENDING = b"\n\n"
#: Of Chat Completions: sound, and all answers but the first have no deltas.
_OTHER_CONTENT = re.compile(rb'"index":\s*[1-9]|"audio":\s*\{')
#: Deltas that a client is shown: what comes after them needs no mark.
_CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta)
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class FrameReader:
    """The interface is that of `DeltaReader`."""

    __slots__ = ("_hides_usage", "_is_silent", "_pairs", "_reader", "_tail", "waiting")

    def __init__(self, decoder: Decoder, *, hides_usage: bool) -> None:
        self._reader = DeltaReader(decoder)
        self._hides_usage = hides_usage
        self._is_silent = True  # nothing that the client is shown has come yet
        self._pairs = SurrogatePairs()
        self._tail: list[bytes] = []  # of a frame that is not complete yet
        self.waiting = 0  # bytes of `_tail`

    @property
    def error(self) -> LLMError | None:
        return self._reader.error

    def feed(self, chunk: bytes) -> list[Delta]:
        if self._tail or chunk[-2:] != _ENDING:
            chunk = self._take_whole(chunk)
            if not chunk:
                return []
        if (
            b"error" in chunk
            or (rb"\ud" in chunk or rb"\uD" in chunk)  # of a surrogate pair
            or (self._hides_usage and _USAGE.search(chunk))
        ):
            return self._feed_one_by_one(chunk)
        deltas = self._reader.feed(chunk)
        whole = chunk if self._reader.error is None else self._before_failure(chunk)
        if whole:
            if self._is_silent and deltas and type(deltas[-1]) in _CONTENT:
                self._is_silent = getattr(deltas[-1], "text", "call") == ""
            if self._is_silent and _OTHER_CONTENT.search(whole):
                deltas.insert(0, self._mark_content(whole))
            else:
                deltas.insert(0, FrameDelta(whole))
        return deltas

    def close(self, lost: LLMError | None = None) -> list[Delta]:
        tail, self._tail, self.waiting = b"".join(self._tail), [], 0
        deltas: list[Delta] = []
        if tail.strip() and not lost:  # its last blank line is missing
            deltas = self._feed_one_by_one(tail + _ENDING)
        return deltas if self._reader.error else [*deltas, *self._reader.close(lost)]

    def _take_whole(self, chunk: bytes) -> bytes:
        """The whole frames up to the end of `chunk`; the rest waits."""
        if self._tail:
            edge = b"".join(self._tail[-3:])[-3:]  # reads may be of one byte
            if not _END.search(edge + chunk):
                self._tail.append(chunk)  # a frame of megabytes is joined once
                self.waiting += len(chunk)
                return b""
            chunk = b"".join([*self._tail, chunk])
        end = max(chunk.rfind(_ENDING) + 2, chunk.rfind(b"\n\r\n") + 3)
        if end < 3:
            end = chunk.rfind(b"\r\r") + 2
        if end < 2:
            end = 0
        rest = chunk[end:]
        self._tail, self.waiting = [rest] if rest else [], len(rest)
        return chunk[:end]

    def _before_failure(self, chunk: bytes) -> bytes:
        """The frames before the one that was an error: their deltas count."""
        frames: list[bytes] = []
        left = self._reader.good_events
        for frame in _split(chunk):
            events = _list_events(frame)
            left -= len(events)
            if left < 0:
                break
            # A decoder may notice broken JSON only at the event after it, so the last
            # good one may be the broken one.
            if left == 0 and not all(map(_is_readable, events)):
                break
            frames.append(frame)
        return b"".join(frames)

    def _feed_one_by_one(self, chunk: bytes) -> list[Delta]:
        frames: list[bytes] = []
        deltas: list[Delta] = []
        for frame in _split(chunk):
            deltas += self._reader.feed(frame)
            if self._reader.error is not None:
                break
            if not (self._hides_usage and _is_usage_only(frame)):
                frames.append(self._pairs.join(frame))
        if not frames:
            return deltas
        whole = b"".join(frames)
        return [self._mark_content(whole), *deltas]

    def _mark_content(self, frames: bytes) -> FrameDelta:
        has_content = any(map(_has_other_content, SSEDecoder().feed(frames)))
        self._is_silent = self._is_silent and not has_content
        return FrameDelta(frames, has_content)


def _split(chunk: bytes) -> Iterator[bytes]:
    start = 0
    for match in _END.finditer(chunk):
        yield chunk[start : match.end()]
        start = match.end()
    if start < len(chunk):
        yield chunk[start:]


def _list_events(frame: bytes) -> list[ServerSentEvent]:
    decoder = SSEDecoder()
    return [*decoder.feed(frame), *decoder.close()]


def _is_readable(event: ServerSentEvent) -> bool:
    if event.data.strip() == b"[DONE]":
        return True
    try:
        event.json()
    except ValueError:
        return False
    return True


def _has_other_content(event: ServerSentEvent) -> bool:
    try:
        chunk = event.json()
    except ValueError:
        return False
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    parts = [each.get("delta") for each in _objects(choices)]
    return any(
        value not in _EMPTY
        for part in _objects(parts)
        for name, value in part.items()
        if name != "role"
    )


def _objects(values: Any) -> list[dict[str, Any]]:
    values = values if isinstance(values, list) else ()
    return [each for each in values if isinstance(each, dict)]


def _is_usage_only(frame: bytes) -> bool:
    """Whether it is the chunk that `stream_options.include_usage` adds."""
    if not _USAGE.search(frame):
        return False
    for event in _list_events(frame):  # a comment or a name may precede the data
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            return False
        if isinstance(chunk, dict) and chunk.get("choices") == []:
            return True
    return False
