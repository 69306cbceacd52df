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


class Intake:
    """Converts elements to frames. `whole` is the answer if it came in one object."""

    def __init__(self) -> None:
        self.whole: bytes | None = None
        self._form: Literal["", "pieces", "lines", "whole"] = ""
        self._first: list[bytes] = []  # elements of a kind that is not known yet
        self._sse = SSEDecoder()
        self._event = ""  # name of the event whose lines follow

    def feed(self, element: Any) -> list[ServerSentEvent]:
        """Raises TypeError for an element that is no part of a stream."""
        match element:
            case ServerSentEvent():
                return [element]
            case str():
                return self._text(element.encode(errors="surrogatepass"))
            case bytes() | bytearray() | memoryview():
                return self._text(bytes(element))
        return self._parsed(_plain(element))

    def close(self) -> list[ServerSentEvent]:
        """Return the remaining frames at the end of the source."""
        frames = self._begin("lines" if self._all_lines() else "pieces")
        if self._form == "pieces":
            frames += self._sse.close()
        if self.whole is not None and self.whole.lstrip().startswith(b"["):
            frames, self.whole = _listed(self.whole), None
        return frames

    # Text

    def _text(self, text: bytes) -> list[ServerSentEvent]:
        match self._form:
            case "pieces":
                return self._sse.feed(text)
            case "lines":
                return self._line(text)
            case "whole":
                self.whole = (self.whole or b"") + text
                return []
        self._first.append(text)
        if b"".join(self._first).lstrip()[:1] in (b"{", b"["):
            return self._begin("whole")
        if not self._all_lines():
            return self._begin("pieces")
        said = [line for line in self._first if line]
        return self._begin("lines") if len(said) > 1 else []

    def _all_lines(self) -> bool:
        return all(map(_is_line, self._first))

    def _begin(
        self, form: Literal["pieces", "lines", "whole"]
    ) -> list[ServerSentEvent]:
        if self._form:
            return []
        self._form = form
        first, self._first = self._first, []
        return [frame for text in first for frame in self._text(text)]

    def _line(self, line: bytes) -> list[ServerSentEvent]:
        """All four formats write an event's data in one line; blank lines may be
        missing."""
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

    def _parsed(self, event: Mapping[str, Any]) -> list[ServerSentEvent]:
        self._form = self._form or "whole"
        data = _json(event)
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


def _plain(element: Any) -> Mapping[str, Any]:
    """The JSON data of an SDK's object."""
    if isinstance(element, Mapping):
        return element
    dump = getattr(element, "model_dump", None)
    if dump is None:
        kind = type(element).__name__
        raise TypeError(f"A stream is bytes, lines or events, not {kind!r}.")
    told: Mapping[str, Any] = dump(mode="json", by_alias=True, exclude_unset=True)
    return told


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()  # half of a surrogate pair, escaped


def _listed(whole: bytes) -> list[ServerSentEvent]:
    """Split Gemini's stream in a JSON list. Other input is refused by the decoder."""
    try:
        events = json.loads(whole)
    except ValueError:
        return [ServerSentEvent(whole)]
    return [ServerSentEvent(_json(event)) for event in events]
