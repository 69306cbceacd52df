"""Conversion of a provider's stream to the format of another API.

    for line, event in relay(response.iter_bytes(), "anthropic", "openai"):
        client.write(line)

In: a stream in any of the four wire formats, as bytes (cut anywhere), as lines, as
parsed events or as one complete answer. Out: a pair for each canonical event: the bytes
for the client (often one frame, sometimes none or several) and the event itself, for
the program. Nothing here does IO: the source is read as the relay is read.
`docs/relay.md` has the examples.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

from llm.errors import LLMError, ProviderDown
from llm.relay.source_reader import SourceReader
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.delta_reader import DECODE_ERRORS, decode_error, invalid_delta_error
from llm.wire.deltas import Delta, StartDelta, is_well_formed, sanitize
from llm.wire.facades.chat_writer import ChatWriter, chat_completion_of
from llm.wire.facades.messages_writer import MessagesWriter, message_of
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event, new_id
from llm.wire.response import ResponseBuilder
from llm.wire.sse import ServerSentEvent

Pair = tuple[bytes, Event]
#: Of bytes, lines, events (mappings or objects of an SDK), or one complete answer.
Source = Iterable[Any] | AsyncIterable[Any]

SOURCES: dict[str, Callable[[], Codec]] = {
    "anthropic": AnthropicCodec,
    "gemini": GeminiCodec,
    "openai": OpenAIChatCodec,
    "responses": OpenAIResponsesCodec,
}
TARGETS = ("anthropic", "openai", "responses")
#: Other names of these formats.
_ALIASES = {
    "chat": "openai",
    "generate_content": "gemini",
    "messages": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "responses",
}
_PREFIXES = {"anthropic": "msg_", "openai": "chatcmpl-", "responses": "resp_"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    model: str  # "" to use the source's
    id: str  # "" to generate one
    buffer_tool_calls: bool
    announce: bool
    include_usage: bool
    custom_tools: frozenset[str]


def relay(
    source_stream: Source,
    source: str | Codec = "anthropic",
    target: str = "openai",
    *,
    model: str = "",
    id: str = "",
    buffer_tool_calls: bool = True,
    relay_tool_use_events: bool = True,
    relay_usage_events: bool = True,
    custom_tools: Iterable[str] = (),
) -> Relay:
    """Convert `source_stream` to the format `target`; read with `for` or `async for`.

    Text is passed on at once. Tool calls are held back until the answer has ended and
    they are complete, so that no client runs one that was cut off;
    `relay_tool_use_events` announces each as soon as its name is known.
    `relay_usage_events` adds the total usage, once, at the end. `source` may be a
    codec, for a host with a dialect. `model` and `id` replace the model of the source
    and a generated id; `custom_tools` are the client's tools that take free text.

    Raises ValueError for an unknown format.
    """
    options = RelayOptions(
        model=model,
        id=id,
        buffer_tool_calls=buffer_tool_calls,
        announce=relay_tool_use_events,
        include_usage=relay_usage_events,
        custom_tools=frozenset(custom_tools),
    )
    codec = (
        SOURCES[_resolve_format(source, SOURCES)]()
        if isinstance(source, str)
        else source
    )
    return Relay(source_stream, codec, _resolve_format(target, TARGETS), options)


class Relay:
    """The conversion of one answer, which can be read once.

    An error of the provider is sent to the client in the client's format, ends the
    stream in order, and is then in `error`. An exception of the source itself is sent
    to the client likewise, and then raised.
    """

    def __init__(
        self, source: Source, codec: Codec, target: str, options: RelayOptions
    ) -> None:
        self._source = source
        self._converter = _Converter(codec, target, options)

    @property
    def error(self) -> LLMError | None:
        return self._converter.error

    def __iter__(self) -> Generator[Pair, None, None]:
        if not isinstance(self._source, Iterable):
            raise TypeError("An asynchronous source is read with `async for`.")
        elements, converter = iter(self._source), self._converter
        try:
            while not converter.ended:
                try:
                    element = next(elements)
                except StopIteration:
                    yield from converter.close()
                except Exception as exc:  # the caller's source may raise anything
                    yield from converter.break_off(exc)
                    raise
                else:
                    yield from converter.feed(element)
        finally:
            if isinstance(elements, Generator):
                elements.close()  # this closes its connection

    async def __aiter__(self) -> AsyncGenerator[Pair, None]:
        if isinstance(self._source, Iterable):
            with closing(iter(self)) as pairs:
                for pair in pairs:
                    yield pair
            return
        elements, converter = aiter(self._source), self._converter
        try:
            while not converter.ended:
                try:
                    element = await anext(elements)
                except StopAsyncIteration:
                    converted = converter.close()
                except Exception as exc:  # as above
                    for pair in converter.break_off(exc):
                        yield pair
                    raise
                else:
                    converted = converter.feed(element)
                for pair in converted:
                    yield pair
        finally:
            if isinstance(elements, AsyncGenerator):
                await elements.aclose()

    def collect(self) -> dict[str, Any]:
        """The whole answer in the target's format. Raises LLMError."""
        for _ in self:
            pass
        return self._converter.answer()

    async def acollect(self) -> dict[str, Any]:
        """Like `collect`, for an asynchronous source."""
        async with aclosing(aiter(self)) as pairs:
            async for _ in pairs:
                pass
        return self._converter.answer()


class _Converter:
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
        self._writer: ChatWriter | MessagesWriter | ResponsesWriter | None = None

    @property
    def ended(self) -> bool:
        return self._builder is not None and self._builder.ended

    def feed(self, element: Any) -> list[Pair]:
        """Raises TypeError for an element that is no part of a stream."""
        frames = self._reader.feed(element)
        return self._decode_safely(lambda: self._decode(frames))

    def close(self) -> list[Pair]:
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

    def break_off(self, exc: Exception) -> list[Pair]:
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
        return response

    # From the source

    def _decode_safely(self, decode: Callable[[], Iterator[Delta]]) -> list[Pair]:
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

    def _feed_deltas(self, deltas: list[Delta]) -> list[Pair]:
        if self._builder is None:
            for delta in deltas:
                if isinstance(delta, StartDelta):
                    self._start = StartDelta(
                        delta.response_id, delta.model or self._start.model
                    )
            if all(isinstance(delta, StartDelta) for delta in deltas):
                return []
        pairs: list[Pair] = []
        builder = self._begin(pairs)
        return pairs + self._write_events(builder.feed(deltas))

    # To the target

    def _begin(self, pairs: list[Pair]) -> ResponseBuilder:
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

    def _new_writer(
        self, builder: ResponseBuilder
    ) -> ChatWriter | MessagesWriter | ResponsesWriter:
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
        return ChatWriter(
            **arguments,
            created=response["created_at"],
            include_usage=options.include_usage,
        )

    @property
    def _proofs(self) -> dict[str, Any] | None:
        """Proofs are valid only for a client of the API that issued them."""
        assert self._builder is not None
        return self._builder.proofs if self._codec.name == "anthropic" else None

    def _fail(self, exc: LLMError) -> list[Pair]:
        self.error = exc
        pairs: list[Pair] = []
        builder = self._begin(pairs)
        return pairs + self._write_events(builder.fail(exc))

    def _write_events(self, events: Iterable[Event]) -> list[Pair]:
        assert self._writer is not None
        return [(self._writer.feed_bytes((event,)), event) for event in events]


def _resolve_format(name: str, names: Iterable[str]) -> str:
    known = _ALIASES.get(name, name)
    if known not in names:
        raise ValueError(f"There is no format {name!r}; choose {', '.join(names)}.")
    return known
