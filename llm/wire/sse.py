"""Server-Sent Events, decoding and encoding, without IO.

Bytes go in as they come from the network, cut anywhere; events come out. Lines end with
LF, CRLF or CR and with nothing else: JSON carries U+2028 and U+0085 unescaped, so
`str.splitlines` would cut inside strings. llama.cpp's invented field `error:` becomes
an event of the name "error". A JSON object in the stream without any field name is an
event too: Google writes an error so, over several lines. An event without data has no
information for any decoder and is left out: hosts send an empty `data:` as a heartbeat.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from llm.wire.bounded_json import MAX_VALUES, check_values, loads, loads_lenient
from llm.wire.items import Event

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
#: Lines that are stored separately. Between two joins other threads can run.
_MAX_LINES = 10_000


@dataclass(slots=True)
class ServerSentEvent:
    data: bytes
    event: str = "message"
    id: str = ""

    def json(self) -> Any:
        """The data as JSON. Raises ValueError if it is invalid or too large."""
        if len(self.data) > MAX_VALUES:
            check_values(self.data)
        try:
            return orjson.loads(self.data)
        except orjson.JSONDecodeError:
            # orjson refuses half a surrogate pair and broken UTF-8; hosts send both.
            return loads_lenient(self.data.decode(errors="replace"))


class SSEDecoder:
    """Bytes in, events out. A chunk may end anywhere, even inside a UTF-8 character."""

    __slots__ = (
        "_after_cr",
        "_bare",
        "_blocks",
        "_data",
        "_event",
        "_last_id",
        "_started",
        "_tail",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting = 0  # bytes of an event that is not complete yet
        self._tail: list[bytes] = []
        self._after_cr = False
        self._started = False
        self._data: list[bytes] = []
        self._blocks: list[bytes] = []  # joined blocks of earlier lines
        self._bare = False  # `_data` holds lines that came without "data:"
        self._event = ""
        self._last_id = ""

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that `chunk` completes, in order."""
        if (
            chunk[:6] == b"data: "
            and chunk.find(b"\n") == len(chunk) - 2
            and chunk[-1:] == b"\n"
            and chunk.find(b"\r") < 0
            # Same as `is_between`, inlined because this path runs for most chunks.
            and not (self._tail or self._data or self._event or self._after_cr)
        ):  # the usual chunk: one frame of one line
            self._started = True
            data = chunk[6:-2]
            return [ServerSentEvent(data, "message", self._last_id)] if data else []
        if not chunk:
            return []
        self.waiting += len(chunk)
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a "\r\n" cut in two
        self._after_cr = chunk.endswith(b"\r")
        has_cr = chunk.find(b"\r") >= 0  # faster than `in`
        if not has_cr and chunk.find(b"\n") < 0:
            self._tail.append(chunk)
            return []  # a frame of megabytes is joined once, not with every piece
        if self._tail:
            chunk = b"".join([*self._tail, chunk])
            has_cr = has_cr or b"\r" in chunk
        if not self._started:
            chunk = chunk.removeprefix(_BOM)
            self._started = True
        if has_cr or self._data or self._event:
            return self._lines(chunk)
        return self._frames(chunk)

    def is_between(self) -> bool:
        """Whether the decoder is between two events and has no byte of the next one."""
        return not (self._tail or self._data or self._event or self._after_cr)

    def _frames(self, buffer: bytes) -> list[ServerSentEvent]:
        """Fast path of `_lines`, for use between two events: nearly every frame is a
        line of data, or two with its name."""
        whole, _, rest = buffer.rpartition(b"\n\n")
        events: list[ServerSentEvent] = []
        for frame in whole.split(b"\n\n"):
            name = b""
            if frame[:6] == b"data: ":
                data = frame[6:]
            else:
                name, _, data = frame.partition(b"\ndata: ")
                if name[:7] != b"event: " or b"\n" in name:
                    return self._lines(buffer)
            if not data or data.find(b"\n") >= 0:
                return self._lines(buffer)
            event = name[7:].decode(errors="replace") if name else ""
            events.append(ServerSentEvent(data, event or "message", self._last_id))
        if b"\n" in rest:
            return events + self._lines(rest)
        self._tail = [rest] if rest else []
        self.waiting = len(rest)
        return events

    def _lines(self, buffer: bytes) -> list[ServerSentEvent]:
        lines = _LINE_END.split(buffer) if b"\r" in buffer else buffer.split(b"\n")
        last = lines.pop()
        self._tail = [last] if last else []
        events: list[ServerSentEvent] = []
        for line in lines:
            if event := self._line(line):
                events.append(event)
        if events or not self._data:
            self.waiting = len(last)
        return events

    def close(self) -> list[ServerSentEvent]:
        """End the stream; an event whose last blank line is missing still counts.

        The standard drops it, but some hosts do end their streams without it.
        """
        line, self._tail = b"".join(self._tail), []
        if not self._started:
            line = line.removeprefix(_BOM)
        events = [event] if line and (event := self._line(line)) else []
        if event := self._line(b""):
            events.append(event)
        return events

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if line.startswith(b"data:"):
            if self._bare:
                self._data, self._blocks, self._bare = [], [], False
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._append_data(value)
            return None
        if not line:
            data, event, bare = self._data, self._event, self._bare
            self._data, self._event, self._bare = [], "", False
            if not data:
                return None
            if self._blocks:
                data, self._blocks = [*self._blocks, *data], []
            whole = data[0] if len(data) == 1 else b"\n".join(data)
            if not whole or (bare and not _is_json(whole)):
                return None
            return ServerSentEvent(whole, event or "message", self._last_id)
        if not self._bare and not line.startswith((b"{", b"[")):
            self._field(line)
            return None
        ended = None
        if self._data and not self._bare:
            ended = self._line(b"")  # the blank line after it is missing
        self._append_data(line)
        self._bare = True
        return ended

    def _append_data(self, line: bytes) -> None:
        if len(self._data) >= _MAX_LINES:
            self._blocks.append(b"\n".join(self._data))
            self._data = []
        self._data.append(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                self._event = value.decode(errors="replace")
            case b"data":
                self._append_data(value)
            case b"id" if b"\0" not in value:
                self._last_id = value.decode(errors="replace")
            case b"error":
                # llama.cpp behind GPUStack: "error: {...}" instead of "data:".
                self._event = "error"
                self._append_data(value)


def _is_json(data: bytes) -> bool:
    try:
        loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def encode(event: Event, data: bytes, id: str = "") -> bytes:
    """One canonical event as one frame; `data` is the encoded event."""
    head = (
        f"id: {id}\nevent: {event['type']}\ndata: "
        if id
        else f"event: {event['type']}\ndata: "
    )
    return b"%b%b\n\n" % (head.encode(), data)


def comment(text: str = "") -> bytes:
    """A heartbeat, which keeps proxies from closing the stream."""
    return f": {text}\n\n".encode()
