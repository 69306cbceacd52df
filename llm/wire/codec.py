"""The faces every wire format implements. None does IO.

Some formats have more to say. A codec may have `headers(request)`, what it tells in
headers; `degraded(request)`, the options it only comes near to; `follows(part, url)`,
whether its host fetches what is at an address (without it: yes). A decoder whose
provider tells long answers in portions is `Portioned`. One that knows events which are
nothing but text has `plain`, a `Plain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from llm.errors import LLMError
from llm.wire.deltas import Delta
from llm.wire.request import Request
from llm.wire.sse import ServerSentEvent

#: The text of an event's JSON that is nothing but text, as things stand, and how to
#: tell another in its place. None for any other event; hearing one changes nothing.
Plain = Callable[[Any], tuple[str, Callable[[str], Delta]] | None]


class Decoder(Protocol):
    """One provider call's stream. Made new for each call; keeps that call's state."""

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        """Raises LLMError for an error the provider reports inside the stream."""
        ...

    def close(self) -> Iterable[Delta]:
        """The bytes have ended. Raises ProviderDown where the message had not."""
        ...


@runtime_checkable
class Portioned(Decoder, Protocol):
    """A decoder whose provider tells long answers in portions."""

    @property
    def continuation(self) -> Mapping[str, Any]:
        """What the same request must say besides to be told the rest; {} for none."""
        ...

    def go_on(self) -> None:
        """The next bytes are the rest of this answer."""
        ...


@runtime_checkable
class BackgroundCodec(Protocol):
    """A codec whose host continues a response without a connection. The `path` of a
    request that resumes one is read with GET."""

    def cancel_path(self, response_id: str) -> str:
        """Where a POST ends the response."""
        ...


class Codec(Protocol):
    @property
    def name(self) -> str: ...

    def path(self, request: Request) -> str:
        """The URL's path below the provider's base URL."""
        ...

    def encode(self, request: Request) -> dict[str, Any]:
        """The JSON body. Raises BadRequest for what this format cannot say."""
        ...

    def decoder(self) -> Decoder: ...

    def decode(self, body: bytes) -> list[Delta]:
        """A whole answer that did not stream. Raises LLMError, as `feed` does."""
        ...

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        """What an HTTP answer of 4xx or 5xx means. Never raises itself."""
        ...
