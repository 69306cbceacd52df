"""Writer of Responses streams and answers: a filter of canonical events.

The format is canonical, so most events are sent unchanged. Left out are extensions
(events and items whose type begins with `parley:`) and the rounds of tools that ran
here: calls of `server_tools` and the outputs. `output_index` and `sequence_number` are
counted without them. With `receipts` nothing is left out.

Source: https://www.openresponses.org/specification#streaming
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Protocol

from llm.wire.facades.errors import client_error
from llm.wire.facades.sse_frames import DONE, event_frame, frame_of_data
from llm.wire.items import Event, Item
from llm.wire.response_builder import TERMINAL

_DELTA = "response.function_call_arguments.delta"
_EXTENSION = "parley:"
_BEGIN = b'{"type":"%b","sequence_number":%d,'  # of most events, as JSON


class EncodedDelta(Protocol):
    """A delta event whose JSON exists already."""

    type: str
    sequence: int  # its sequence_number
    data: bytes  # the event as JSON

    @property
    def event(self) -> Event: ...


class ResponsesWriter:
    """One response as a stream. `feed` returns events, `feed_bytes` the same as frames.

    Over a WebSocket each event of `feed` is a message. `starting_after` leaves out
    events that the client already has: the stream is fed from its beginning. With
    `buffer_tool_calls` the arguments of a call are sent in one piece when it is
    complete.
    """

    def __init__(
        self,
        *,
        server_tools: Container[str] = (),
        receipts: bool = False,
        buffer_tool_calls: bool = False,
        starting_after: int = -1,  # sequence number
    ) -> None:
        self.ended = False
        self._is_closed = False  # `[DONE]` was sent
        self._server_tools = server_tools
        self._receipts = receipts
        self._buffer = buffer_tool_calls
        self._starting_after = starting_after
        self._number = 0
        self._shown_count = 0  # items sent
        self._has_same_indexes = True  # all items have the client's index
        self._client_indexes: dict[int, int | None] = {}  # output_index to the client's

    def feed(self, events: Iterable[Event]) -> list[Event]:
        return [output for event in events for output in self._convert(event)]

    def feed_bytes(self, events: Iterable[Event | EncodedDelta]) -> bytes:
        """The frames of `feed`'s events; the last is `[DONE]`, also for a client that
        has all events. A delta is not encoded again if only its number changes."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, dict):
                frames += map(event_frame, self.feed((event,)))
            elif (frame := self._frame_of_delta(event)) is not None:
                frames.append(frame)
            else:
                frames += map(event_frame, self.feed((event.event,)))
        if self.ended and not self._is_closed:
            self._is_closed = True
            frames.append(DONE)
        return b"".join(frames)

    def whole(self, response: Mapping[str, Any]) -> dict[str, Any]:
        """`response` filtered in the same manner, for an unstreamed answer."""
        shown = [item for item in response["output"] if self.is_shown(item)]
        whole = {**response, "output": shown}
        if error := response.get("error"):
            whole["error"] = client_error(error)
        return whole

    def _frame_of_delta(self, delta: EncodedDelta) -> bytes | None:
        """None if more than its number may change."""
        kind, data = delta.type.encode(), delta.data
        begin = _BEGIN % (kind, delta.sequence)
        if not (
            self._has_same_indexes
            and self._starting_after < 0
            and not self._buffer
            and not delta.type.startswith(_EXTENSION)
            and data.startswith(begin)
        ):
            return None
        number, self._number = self._number, self._number + 1
        return frame_of_data(kind, _BEGIN % (kind, number) + data[len(begin) :])

    def _convert(self, event: Event) -> list[Event]:
        kind = event["type"]
        if kind.startswith(_EXTENSION) and not self._receipts:
            return []
        if (index := event.get("output_index")) is not None:
            if kind == "response.output_item.added":
                self._assign_index(index, event["item"])
            if (client_index := self._client_indexes.get(index)) is None:
                return []
            if client_index != index:
                event = {**event, "output_index": client_index}
            if self._buffer and kind.startswith("response.function_call_arguments."):
                return self._whole_arguments(event)
        elif kind == "error":
            event = {**event, "error": client_error(event["error"])}
        elif kind in TERMINAL:
            self.ended = True
            event = {**event, "response": self.whole(event["response"])}
        return self._renumber(event)

    def _assign_index(self, index: int, item: Item) -> None:
        shown = self.is_shown(item)
        self._has_same_indexes &= shown and index == self._shown_count
        self._client_indexes[index] = self._shown_count if shown else None
        self._shown_count += shown

    def is_shown(self, item: Item) -> bool:
        if self._receipts:
            return True
        kind = item["type"]
        if kind == "function_call":
            return item.get("name") not in self._server_tools
        return kind != "function_call_output" and not kind.startswith(_EXTENSION)

    def _whole_arguments(self, event: Event) -> list[Event]:
        if event["type"] == _DELTA:
            return []
        address = {n: event[n] for n in ("item_id", "output_index")}
        delta = {"type": _DELTA, "sequence_number": 0, **address}
        whole = {**delta, "delta": event["arguments"]}
        return [*self._renumber(whole), *self._renumber(event)]

    def _renumber(self, event: Event) -> list[Event]:
        number, self._number = self._number, self._number + 1
        if number <= self._starting_after:
            return []
        if event["sequence_number"] != number:
            event = {**event, "sequence_number": number}
        return [event]
