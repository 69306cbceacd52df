"""Conversion of decoded deltas to what a relay yields, without reading the source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from llm.errors import LLMError, ProviderDown
from llm.relay.source_reader import SourceReader
from llm.wire.codec import Codec
from llm.wire.delta_reader import DECODE_ERRORS, decode_error, invalid_delta_error
from llm.wire.deltas import Delta, StartDelta, is_well_formed, sanitize
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.generate_content_writer import (
    GenerateContentWriter,
    generate_content_of,
)
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.facades.sse_frames import DONE, data_frame
from llm.wire.items import Event, new_id
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import ServerSentEvent

#: The frames for the client (often one, sometimes none) and the canonical event.
Pair = tuple[bytes, Event]
#: A server-sent event as text, and its chunk.
ChunkPair = tuple[str, dict[str, Any]]
P = TypeVar("P")
Writer = ChatWriter | GenerateContentWriter | MessagesWriter | ResponsesWriter

_PREFIXES = {
    "anthropic": "msg_",
    "gemini": "",
    "openai": "chatcmpl-",
    "responses": "resp_",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    model: str  # "" to use the source's
    id: str  # "" to generate one
    buffer_tool_calls: bool
    announce: bool
    include_usage: bool
    custom_tools: frozenset[str]


class Converter(ABC, Generic[P]):
    """Converts elements of the source to pairs: all of a relay except the reading."""

    def __init__(self, codec: Codec, target: str, options: RelayOptions) -> None:
        self.error: LLMError | None = None
        self._codec = codec
        self._target = target
        self._options = options
        self._reader = SourceReader()
        self._decoder = codec.decoder()
        self._id = options.id or _PREFIXES[target] + new_id("").removeprefix("_")
        self._start = StartDelta()
        self._stop_sequence: str | None = None
        self._builder: ResponseBuilder | None = None  # None until the model is known
        self._writer: Writer | None = None

    @property
    def ended(self) -> bool:
        return self._builder is not None and self._builder.ended

    def feed(self, element: Any) -> list[P]:
        """Raises TypeError for an element that is no part of a stream."""
        frames = self._reader.feed(element)
        return self._decode_safely(lambda: self._decode(frames))

    def close(self) -> list[P]:
        pairs = self._decode_safely(self._decode_rest)
        if self.ended:
            return pairs
        builder = self._begin(pairs)
        events = builder.end_call()
        paused = builder.finish is not None and builder.finish.reason == "pause"
        if isinstance(self._writer, MessagesWriter):
            self._writer.stop_sequence = self._stop_sequence
        events += builder.complete("paused" if paused else None)
        return pairs + self._write_events(events)

    def break_off(self, exc: Exception) -> list[P]:
        """End the stream after an exception of the source."""
        if isinstance(exc, LLMError):
            return self._fail(exc)
        error = ProviderDown(detail=f"The source raised {type(exc).__name__}.")
        return self._fail(error)

    def answer(self) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        assert self._builder is not None
        response, options = self._builder.response(), self._options
        arguments: dict[str, Any] = {"custom_tools": options.custom_tools}
        match self._target:
            case "openai":
                return chat_completion_of(response, id=self._id, **arguments)
            case "anthropic":
                arguments |= {
                    "proofs": self._proofs,
                    "stop_sequence": self._stop_sequence,
                }
                return message_of(response, id=self._id, **arguments)
            case "gemini":
                arguments["proofs"] = self._proofs
                return generate_content_of(response, id=self._id, **arguments)
        return response

    # From the source

    def _decode_safely(self, decode: Callable[[], Iterator[Delta]]) -> list[P]:
        """Convert the deltas before an error, then the error."""
        deltas: list[Delta] = []
        try:
            for delta in decode():
                if not is_well_formed(delta):
                    raise invalid_delta_error(delta)
                sanitize(delta)
                deltas.append(delta)
        except LLMError as exc:
            return self._feed_deltas(deltas) + self._fail(exc)
        except DECODE_ERRORS as exc:
            return self._feed_deltas(deltas) + self._fail(decode_error(exc))
        return self._feed_deltas(deltas)

    def _decode(self, frames: Iterable[ServerSentEvent]) -> Iterator[Delta]:
        for frame in frames:
            if b'"stop_sequence"' in frame.data and self._codec.name == "anthropic":
                self._note_stop(frame.json())
            yield from self._decoder.feed(frame)

    def _decode_rest(self) -> Iterator[Delta]:
        yield from self._decode(self._reader.close())
        if (whole := self._reader.whole) is None:
            yield from self._decoder.close()
        else:
            yield from self._codec.decode(whole)
            if b'"stop_sequence"' in whole:
                self._note_stop(ServerSentEvent(whole).json())

    def _note_stop(self, data: Any) -> None:
        """Record the stop sequence, which is no delta: only the Anthropic API reports
        it, and only to its own clients."""
        fields = data.get("delta") or data if isinstance(data, dict) else {}
        if isinstance(fields, dict) and isinstance(fields.get("stop_sequence"), str):
            self._stop_sequence = fields["stop_sequence"]

    def _feed_deltas(self, deltas: list[Delta]) -> list[P]:
        if self._builder is None:
            for delta in deltas:
                if isinstance(delta, StartDelta):
                    self._start = StartDelta(
                        delta.response_id, delta.model or self._start.model
                    )
            if all(isinstance(delta, StartDelta) for delta in deltas):
                return []
        pairs: list[P] = []
        builder = self._begin(pairs)
        return pairs + self._write_events(builder.feed(deltas))

    # To the target

    def _begin(self, pairs: list[P]) -> ResponseBuilder:
        """The builder; `pairs` get the opening events of a new response."""
        if self._builder is not None:
            return self._builder
        builder = self._builder = ResponseBuilder(
            id=self._id if self._target == "responses" else new_id("resp"),
            model=self._options.model or self._start.model or "unknown",
        )
        self._writer = self._new_writer(builder)
        pairs += self._write_events(builder.start())
        builder.begin_call()
        return builder

    def _new_writer(self, builder: ResponseBuilder) -> Writer:
        options, response = self._options, builder.response()
        if self._target == "responses":
            return ResponsesWriter(buffer_tool_calls=options.buffer_tool_calls)
        arguments: dict[str, Any] = {
            "id": self._id,
            "model": response["model"],
            "buffer_tool_calls": options.buffer_tool_calls,
            "announce": options.announce,
            "custom_tools": options.custom_tools,
        }
        if self._target == "anthropic":
            return MessagesWriter(**arguments, proofs=self._proofs)
        arguments["include_usage"] = options.include_usage
        if self._target == "gemini":
            return GenerateContentWriter(**arguments, proofs=self._proofs)
        return ChatWriter(**arguments, created=response["created_at"])

    @property
    def _proofs(self) -> dict[str, Any] | None:
        """Proofs are valid only for a client of the API that issued them."""
        assert self._builder is not None
        return self._builder.proofs if self._codec.name == self._target else None

    def _fail(self, exc: LLMError) -> list[P]:
        self.error = exc
        pairs: list[P] = []
        builder = self._begin(pairs)
        return pairs + self._write_events(builder.fail(exc))

    @abstractmethod
    def _write_events(self, events: Iterable[Event]) -> list[P]:
        """The pairs for these events."""


class EventConverter(Converter[Pair]):
    """Pairs of frames and the canonical event that they come from."""

    def _write_events(self, events: Iterable[Event]) -> list[Pair]:
        assert self._writer is not None
        return [(self._writer.feed_bytes((event,)), event) for event in events]


class ChunkConverter(Converter[ChunkPair]):
    """Pairs of a server-sent event as text and its chunk of Chat Completions."""

    def __init__(self, codec: Codec, options: RelayOptions) -> None:
        super().__init__(codec, "openai", options)

    def _write_events(self, events: Iterable[Event]) -> list[ChunkPair]:
        assert isinstance(self._writer, ChatWriter)
        chunks = self._writer.feed(events)
        pairs = [(data_frame(chunk).decode(), chunk) for chunk in chunks]
        if self._writer.ended and chunks:
            pairs.append((DONE.decode(), {}))
        return pairs
