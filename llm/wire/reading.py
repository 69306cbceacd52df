"""The bytes of a provider's stream in, deltas out: one pass for each read.

In: bytes as they come from the network, cut anywhere. Out: all that they say, as one
list; what went wrong stands in `error`, and what came before it counts. Frames, JSON
and decoder are gone through without a step of the event loop between them.
"""

from __future__ import annotations

from collections.abc import Callable

from llm.errors import BadResponse, LLMError
from llm.wire.codec import Decoder
from llm.wire.deltas import Delta, TextDelta, is_sound
from llm.wire.sse import SSEDecoder

#: What a decoder stumbles with over a shape nobody has seen yet.
STUMBLES = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_WRONG = (LLMError, *STUMBLES)


class Reader:
    """One stream. Nothing is fed after an error."""

    __slots__ = ("_decode", "_decoder", "_frames", "_split", "error")

    def __init__(self, decoder: Decoder) -> None:
        self.error: LLMError | None = None
        self._decoder = decoder
        self._frames = SSEDecoder()
        self._split, self._decode = self._frames.feed, decoder.feed

    def feed(self, chunk: bytes) -> list[Delta]:
        deltas: list[Delta] = []
        decode = self._decode
        try:
            for event in self._split(chunk):
                deltas += decode(event)
        except _WRONG as exc:
            self.error = _error_of(exc)
        for delta in deltas:
            # Nearly all there is: no detours.
            if type(delta) is not TextDelta or type(delta.text) is not str:
                return self._sound(deltas)
        return deltas

    def close(self, lost: LLMError | None = None) -> list[Delta]:
        """The last deltas. A connection `lost` after the last word is no loss."""
        deltas: list[Delta] = []
        try:
            for event in () if lost else self._frames.close():
                deltas += self._decode(event)
        except _WRONG as exc:
            self.error = _error_of(exc)
        if self.error is None:
            try:
                for delta in self._decoder.close():  # what comes before an error counts
                    deltas.append(delta)
            except _WRONG as exc:
                self.error = lost or _error_of(exc)
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


def _error_of(exc: Exception) -> LLMError:
    return exc if isinstance(exc, LLMError) else stumbled(exc)


def stumbled(exc: Exception) -> BadResponse:
    error = BadResponse(detail=f"{type(exc).__name__} while reading the answer.")
    error.__cause__ = exc
    return error
