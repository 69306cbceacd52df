"""The bytes of a provider's stream in, deltas out: one pass for each read.

In: bytes as they come from the network, cut anywhere. Out: all that they say, as one
list; what went wrong stands in `error`, and what came before it counts. Frames, JSON
and decoder are gone through without a step of the event loop between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llm.errors import BadResponse, LLMError
from llm.wire.codec import Decoder
from llm.wire.deltas import Delta, is_sound
from llm.wire.sse import ServerSentEvent, SSEDecoder

#: What a decoder stumbles with over a shape nobody has seen yet.
STUMBLES = (ValueError, KeyError, TypeError, AttributeError, IndexError)


class Reader:
    """One stream. Nothing is fed after an error."""

    __slots__ = ("_decoder", "_frames", "error")

    def __init__(self, decoder: Decoder) -> None:
        self.error: LLMError | None = None
        self._decoder = decoder
        self._frames = SSEDecoder()

    def feed(self, chunk: bytes) -> list[Delta]:
        return self._decoded(self._frames.feed(chunk))

    def close(self, lost: LLMError | None = None) -> list[Delta]:
        """The last deltas. A connection `lost` after the last word is no loss."""
        deltas = self._decoded(() if lost else self._frames.close())
        if self.error is None:
            last: list[Delta] = []
            try:
                for delta in self._decoder.close():  # what comes before an error counts
                    last.append(delta)
            except LLMError as exc:
                self.error = lost or exc
            except STUMBLES as exc:
                self.error = lost or stumbled(exc)
            deltas += self._sound(last)
        return deltas

    def _decoded(self, events: Iterable[ServerSentEvent]) -> list[Delta]:
        deltas: list[Delta] = []
        decode = self._decoder.feed
        try:
            for event in events:
                deltas += decode(event)
        except LLMError as exc:
            self.error = exc
        except STUMBLES as exc:
            self.error = stumbled(exc)
        return self._sound(deltas)

    def _sound(self, deltas: list[Delta]) -> list[Delta]:
        for number, delta in enumerate(deltas):
            if not is_sound(delta):
                self.error = unsound(delta)
                return deltas[:number]
        return deltas


def whole(decode: Callable[[bytes], list[Delta]], body: bytes) -> list[Delta]:
    """All that an answer says that is no stream. Raises LLMError."""
    try:
        deltas = decode(body)
    except STUMBLES as exc:
        raise stumbled(exc) from exc
    for delta in deltas:
        if not is_sound(delta):
            raise unsound(delta)
    return deltas


def unsound(delta: Delta) -> BadResponse:
    kind = type(delta).__name__
    return BadResponse(detail=f"{kind} of another shape while reading the answer.")


def stumbled(exc: Exception) -> BadResponse:
    error = BadResponse(detail=f"{type(exc).__name__} while reading the answer.")
    error.__cause__ = exc
    return error
