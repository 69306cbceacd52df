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
    Mapping,
)
from contextlib import aclosing, closing
from typing import Any, Generic, TypeVar

from llm.errors import LLMError
from llm.relay.conversion import (
    ChunkConverter,
    ChunkPair,
    Converter,
    EventConverter,
    Pair,
    RelayOptions,
)
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec

__all__ = ["SOURCES", "TARGETS", "ChunkPair", "Pair", "Relay", "relay", "relay_chunks"]

P = TypeVar("P")
#: Of bytes, lines, events (mappings or objects of an SDK), or one complete answer.
Source = Iterable[Any] | AsyncIterable[Any]

SOURCES: dict[str, Callable[[], Codec]] = {
    "anthropic": AnthropicCodec,
    "gemini": GeminiCodec,
    "openai": OpenAIChatCodec,
    "responses": OpenAIResponsesCodec,
}
TARGETS = ("anthropic", "gemini", "openai", "responses")
#: Other names of these formats.
_ALIASES = {
    "chat": "openai",
    "generate_content": "gemini",
    "messages": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "responses",
}


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
) -> Relay[Pair]:
    """Convert `source_stream` to the format `target`; read with `for` or `async for`.

    Text is passed on at once. Tool calls are held back until the answer has ended and
    they are complete, so that no client runs one that was cut off;
    `relay_tool_use_events` announces each as soon as its name is known.
    `relay_usage_events` adds the total usage, once, at the end. `source` may be a
    codec, for a host with a dialect. `model` and `id` replace the model of the source
    and a generated id; `custom_tools` are the client's tools that take free text.

    Raises ValueError for an unknown format and TypeError for a source that is no
    stream.
    """
    options = RelayOptions(
        model=model,
        id=id,
        buffer_tool_calls=buffer_tool_calls,
        announce=relay_tool_use_events,
        include_usage=relay_usage_events,
        custom_tools=frozenset(custom_tools),
    )
    target = _resolve_format(target, TARGETS)
    converter = EventConverter(_codec(source), target, options)
    return Relay(_stream_of(source_stream), converter)


def relay_chunks(
    source_stream: Source,
    source: str | Codec = "anthropic",
    *,
    model: str = "",
    id: str = "",
    buffer_tool_calls: bool = True,
    relay_tool_use_events: bool = False,
    relay_usage_events: bool = True,
    custom_tools: Iterable[str] = (),
) -> Relay[ChunkPair]:
    """Convert `source_stream` to Chat Completions, a pair for each chunk.

    A pair is the server-sent event as text, ready to be written, and the chunk as a
    `chat.completion.chunk` object (a `{"error": ...}` object if the answer failed). The
    last pair is `("data: [DONE]\\n\\n", {})`. Tool calls are whole, in the chunk before
    the one with `finish_reason: tool_calls`. Options as those of `relay`; announcements
    of calls are off. `collect` returns the final completion.

    Raises ValueError for an unknown format and TypeError for a source that is no
    stream.
    """
    options = RelayOptions(
        model=model,
        id=id,
        buffer_tool_calls=buffer_tool_calls,
        announce=relay_tool_use_events,
        include_usage=relay_usage_events,
        custom_tools=frozenset(custom_tools),
    )
    converter = ChunkConverter(_codec(source), options)
    return Relay(_stream_of(source_stream), converter)


def _codec(source: str | Codec) -> Codec:
    if isinstance(source, str):
        return SOURCES[_resolve_format(source, SOURCES)]()
    return source


def _stream_of(source: Any) -> Source:
    """`source`, in a list if it is one piece of a stream.

    Raises TypeError if it can be neither iterated nor read as one answer.
    """
    pieces = str | bytes | bytearray | memoryview | Mapping
    if isinstance(source, pieces) or hasattr(source, "model_dump"):
        return [source]
    if isinstance(source, Iterable | AsyncIterable):
        return source
    kind = type(source).__name__
    raise TypeError(
        f"The source of a relay is an iterable of bytes, lines or events, not {kind!r}."
    )


class Relay(Generic[P]):
    """The conversion of one answer, which can be read once.

    An error of the provider is sent to the client in the client's format, ends the
    stream in order, and is then in `error`. An exception of the source itself is sent
    to the client likewise, and then raised.
    """

    def __init__(self, source: Source, converter: Converter[P]) -> None:
        self._source = source
        self._converter = converter

    @property
    def error(self) -> LLMError | None:
        return self._converter.error

    def __iter__(self) -> Generator[P, None, None]:
        if not isinstance(self._source, Iterable):
            raise TypeError("Read an asynchronous source with `async for`.")
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

    async def __aiter__(self) -> AsyncGenerator[P, None]:
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


def _resolve_format(name: str, names: Iterable[str]) -> str:
    known = _ALIASES.get(name, name)
    if known not in names:
        raise ValueError(f"There is no format {name!r}; choose {', '.join(names)}.")
    return known
