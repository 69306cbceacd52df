"""The protocols that every wire format implements. Implementations do no IO.

Some formats implement optional methods. A codec may have `headers(request)`, extra
request headers; `degraded(request)`, the options that it only approximates;
`fetches(part, url)`, whether its host downloads the file at `url` (without the method:
yes). A decoder whose provider splits long answers over several requests is a
`ContinuableDecoder`. A decoder that can recognise events that are nothing but text has
`match_plain_text`, a `PlainTextMatcher`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from llm.errors import LLMError
from llm.wire.deltas import Delta
from llm.wire.request import Request
from llm.wire.sse import ServerSentEvent

#: Takes an event's JSON. Returns its text and a function that makes a delta of any
#: other text in its place, or None where the event is more than text. Has no side
#: effects.
PlainTextMatcher = Callable[[Any], tuple[str, Callable[[str], Delta]] | None]


class Decoder(Protocol):
    """Decodes the stream of one provider call; created for each call, holds its
    state."""

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error the provider reports inside the stream."""
        ...

    def close(self) -> Iterable[Delta]:
        """Called when the stream has ended. Raises ProviderDown if the message has
        not."""
        ...


class ContinuableDecoder(Decoder, Protocol):
    """A decoder whose provider splits a long answer over several requests."""

    @property
    def continuation(self) -> Mapping[str, Any]:
        """Fields to add to the same request to get the rest; {} when there is no
        rest."""
        ...

    def continue_answer(self) -> None:
        """Tell the decoder that the next bytes continue this answer."""
        ...


@runtime_checkable
class CountingCodec(Protocol):
    """A codec of a wire format that has an endpoint which counts a prompt's tokens."""

    def count_path(self, request: Request) -> str:
        """The path to POST to."""
        ...

    def encode_count(self, request: Request) -> dict[str, Any]:
        """The body, with what the prompt consists of. Raises LLMError."""
        ...

    def decode_count(self, body: bytes) -> int | None:
        """The tokens that the answer states; None if it states none."""
        ...


@runtime_checkable
class BackgroundCodec(Protocol):
    """A codec whose host continues a response without a connection.

    A request with `resumes` is sent as a GET to its `path`.
    """

    def cancel_path(self, response_id: str) -> str:
        """The path to POST to in order to cancel the response."""
        ...


@runtime_checkable
class StrictFormatCodec(Protocol):
    """A codec of a wire format in which the schema of an answer may be `strict`."""

    @property
    def strict_formats(self) -> bool:
        """Whether the host is known to accept that."""
        ...


@runtime_checkable
class EnforcedFormatCodec(Protocol):
    """A codec whose host enforces the schema of an answer without being asked to."""

    @property
    def unenforced_keywords(self) -> frozenset[str]:
        """Keywords of JSON Schema that the host ignores."""
        ...


@runtime_checkable
class RenamingCodec(Protocol):
    """A codec of a wire format that does not allow every name of a tool."""

    def renamed_tools(self, request: Request) -> Mapping[str, str]:
        """Map the names sent to the host to the declared ones, where they differ."""
        ...


class Codec(Protocol):
    @property
    def name(self) -> str: ...

    def path(self, request: Request) -> str:
        """The URL's path below the provider's base URL."""
        ...

    def encode(self, request: Request) -> dict[str, Any]:
        """The JSON body. Raises BadRequest for a request this format cannot express."""
        ...

    def decoder(self) -> Decoder: ...

    def decode(self, body: bytes) -> Iterator[Delta]:
        """Decode a complete, unstreamed answer. Raises LLMError, as `feed` does, after
        the deltas before the error."""
        ...

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        """Classify an HTTP answer of 4xx or 5xx. Never raises."""
        ...
