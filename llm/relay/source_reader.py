"""Conversion of the input of a relay to the frames that decoders read.

In: bytes cut anywhere, lines with or without their ends, parsed events, or one complete
answer. Out: `ServerSentEvent`. The kind of input is recognised by the first elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from llm.wire.sse import ServerSentEvent, SSEDecoder

_FIELD = re.compile(rb"(?:event|id|retry|error):[^\r\n]*|:[^\r\n]*")
_DATA = re.compile(rb"data: ?([^\r\n]*)")
_DONE = b"[DONE]"


class SourceReader:
    """Converts elements to frames. `whole` is the answer if it came in one object."""

    def __init__(self) -> None:
        self.whole: bytes | None = None
        self._kind: Literal["", "pieces", "lines", "whole"] = ""
        self._first: list[bytes] = []  # elements of a kind that is not known yet
        self._sse = SSEDecoder()
        self._event = ""  # name of the event whose lines follow

    def feed(self, element: Any) -> list[ServerSentEvent]:
        """Raises TypeError for an element that is no part of a stream."""
        match element:
            case ServerSentEvent():
                return [element]
            case str():
                return self._feed_text(element.encode(errors="surrogatepass"))
            case bytes() | bytearray() | memoryview():
                return self._feed_text(bytes(element))
        return self._feed_object(_to_mapping(element))

    def close(self) -> list[ServerSentEvent]:
        """Return the remaining frames at the end of the source."""
        frames = self._start("lines" if self._all_lines() else "pieces")
        if self._kind == "pieces":
            frames += self._sse.close()
        if self.whole is not None and self.whole.lstrip().startswith(b"["):
            frames, self.whole = _split_list(self.whole), None
        return frames

    # Text

    def _feed_text(self, text: bytes) -> list[ServerSentEvent]:
        match self._kind:
            case "pieces":
                return self._sse.feed(text)
            case "lines":
                return self._feed_line(text)
            case "whole":
                self.whole = (self.whole or b"") + text
                return []
        self._first.append(text)
        if b"".join(self._first).lstrip()[:1] in (b"{", b"["):
            return self._start("whole")
        if not self._all_lines():
            return self._start("pieces")
        lines = [line for line in self._first if line]
        return self._start("lines") if len(lines) > 1 else []

    def _all_lines(self) -> bool:
        return all(map(_is_line, self._first))

    def _start(
        self, kind: Literal["pieces", "lines", "whole"]
    ) -> list[ServerSentEvent]:
        if self._kind:
            return []
        self._kind = kind
        first, self._first = self._first, []
        return [frame for text in first for frame in self._feed_text(text)]

    def _feed_line(self, line: bytes) -> list[ServerSentEvent]:
        """A `data:` line is taken for a whole event, without a blank line after it: all
        four formats write data in one line, and recordings may lack blank lines."""
        line = line.rstrip(b"\r\n")
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                self._event = value.decode(errors="replace")
            case b"data" | b"error":
                event = "error" if name == b"error" else self._event or "message"
                self._event = ""
                return [ServerSentEvent(value, event)] if value else []
        return []

    # Objects

    def _feed_object(self, event: Mapping[str, Any]) -> list[ServerSentEvent]:
        self._kind = self._kind or "whole"
        data = _dump_json(event)
        if _is_whole(event):
            self.whole = data
            return []
        return [ServerSentEvent(data)]


def _is_line(text: bytes) -> bool:
    """True for a line without its end. A cut piece of bytes may look like one too."""
    if not text or _FIELD.fullmatch(text):
        return True
    if (data := _DATA.fullmatch(text)) is None:
        return False
    return data[1].startswith(_DONE) or _is_json(data[1])


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_whole(event: Mapping[str, Any]) -> bool:
    match event:
        case {"object": "chat.completion"} | {"type": "message", "content": list()}:
            return True
    return event.get("object") == "response" and "type" not in event


def _to_mapping(element: Any) -> Mapping[str, Any]:
    """The JSON data of an SDK's object."""
    if isinstance(element, Mapping):
        return element
    dump = getattr(element, "model_dump", None)
    if dump is None:
        kind = type(element).__name__
        raise TypeError(f"A stream is bytes, lines or events, not {kind!r}.")
    dumped: Mapping[str, Any] = dump(mode="json", by_alias=True, exclude_unset=True)
    return dumped


def _dump_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # half of a surrogate pair, escaped


def _split_list(whole: bytes) -> list[ServerSentEvent]:
    """Split Gemini's stream in a JSON list. Other input is refused by the decoder."""
    try:
        events = json.loads(whole)
    except ValueError:
        return [ServerSentEvent(whole)]
    return [ServerSentEvent(_dump_json(event)) for event in events]
