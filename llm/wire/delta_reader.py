"""Decoding of a provider's stream: bytes in, deltas out, one pass for each read.

In: bytes as they come from the network, cut anywhere. Out: all their deltas, as one
list; a failure is stored in `error`, and the deltas before it are still returned.
Frames, JSON and decoder run without returning to the event loop.

Theory of the fast path: nearly every frame of many hosts equals the frame before except
for its text. When a frame was nothing but text, the bytes before and after that text
are remembered; a JSON string between the same bytes is the same object with another
text, so only that string is parsed from the next frame. That the string is the text,
and not an equal string elsewhere in the frame, has been verified: the decoder was given
the frame with another string in its place and returned that string. A frame that does
not match takes the normal path, and the next frame is compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import orjson

from llm.errors import BadResponse, LLMError
from llm.wire.codec import Decoder, PlainTextMatcher
from llm.wire.deltas import (
    MAX_ITEMS,
    AnnotationDelta,
    CloseDelta,
    Delta,
    ItemDelta,
    Key,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    is_well_formed,
    sanitize,
    too_many_items,
)
from llm.wire.sse import SSEDecoder

#: Exceptions of a decoder that meets JSON of an unexpected shape.
DECODE_ERRORS = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RecursionError,
)
_READ_ERRORS = (LLMError, *DECODE_ERRORS)
#: A complete frame, and its data.
_FRAME = re.compile(rb"(?:event: [^\r\n]*\n)?data: ([^\r\n]+)\n\n")
_TRIES = 8  # failed attempts to learn the common parts of frames


class DeltaReader:
    """The decoding of one stream. Nothing may be fed after an error."""

    __slots__ = (
        "_after",
        "_before",
        "_decoder",
        "_frames",
        "_items",
        "_least",
        "_make_delta",
        "_tries",
        "error",
        "good_events",
    )

    def __init__(self, decoder: Decoder) -> None:
        self.error: LLMError | None = None
        self.good_events = 0  # of the read that ended in an error, before it
        self._decoder = decoder
        self._frames = SSEDecoder()
        self._items = _ItemCount()
        # Only for decoders with the fast path: see `codec.PlainTextMatcher`.
        self._tries = _TRIES if hasattr(decoder, "match_plain_text") else 0
        self._make_delta: Callable[[str], Delta] | None = (
            None  # None: no frame to compare with
        )
        self._before = self._after = b""  # around the text, quotes included
        self._least = 0  # length of both together

    @property
    def waiting(self) -> int:
        """Bytes of an event that is not complete yet."""
        return self._frames.waiting

    def feed(self, chunk: bytes) -> list[Delta]:
        if (make_delta := self._make_delta) is not None:
            before, after = self._before, self._after
            if (
                chunk.startswith(before)
                and chunk.endswith(after)
                and len(chunk) >= self._least
            ):
                try:
                    text = orjson.loads(chunk[len(before) - 1 : 1 - len(after)])
                except orjson.JSONDecodeError:
                    if deltas := self._read_several(chunk, make_delta):
                        return deltas
                else:
                    self._tries = _TRIES
                    return [make_delta(text)] if text else []
            self._make_delta = None
        if self._tries and self._frames.is_between():
            return self._read_and_compare(chunk)
        return self._read(chunk)

    def _read_several(
        self, chunk: bytes, make_delta: Callable[[str], Delta]
    ) -> list[Delta]:
        """The deltas of several frames in one chunk; [] if any frame differs."""
        inside = chunk[len(self._before) : -len(self._after)]
        try:
            texts = [
                orjson.loads(b'"%b"' % text)
                for text in inside.split(self._after + self._before)
            ]
        except orjson.JSONDecodeError:
            return []  # perhaps only `ServerSentEvent` can parse it
        return [make_delta(text) for text in texts if text]

    def _read_and_compare(self, chunk: bytes) -> list[Delta]:
        """Decode `chunk` normally, and remember it for comparison with the next one."""
        deltas = self._read(chunk)
        if len(deltas) == 1 and self.error is None:
            delta = deltas[0]
            if type(delta) is TextDelta and (frame := _FRAME.fullmatch(chunk)):
                self._tries -= 1
                self._learn(chunk, frame.start(1), delta.text)
        return deltas

    def _learn(self, frame: bytes, data_at: int, text: str) -> None:
        other = f"{text}."
        try:
            encoded, encoded_other = orjson.dumps(text), orjson.dumps(other)
            at = frame.index(encoded, data_at)
            before, after = frame[: at + 1], frame[at + len(encoded) - 1 :]
            data = orjson.loads(
                b"%b%b%b" % (before[data_at:-1], encoded_other, after[1:-2])
            )
        except (TypeError, ValueError):
            return  # written in another form, or not found
        plain: PlainTextMatcher | None = getattr(
            self._decoder, "match_plain_text", None
        )
        match = plain(data) if plain else None
        if match is not None and match[0] == other:
            self._before, self._after, self._make_delta = before, after, match[1]
            self._least = len(before) + len(after)

    def _read(self, chunk: bytes) -> list[Delta]:
        deltas: list[Delta] = []
        decode, count = self._decoder.feed, 0
        try:
            for event in self._frames.feed(chunk):
                deltas += decode(event)
                count += 1
        except _READ_ERRORS as exc:
            self.error = _error_of(exc)
            self.good_events = count
        for delta in deltas:
            # Nearly all deltas lengthen the same plain text and need no check.
            if (
                type(delta) is not TextDelta
                or type(delta.text) is not str
                or delta.key != self._items.current
            ):
                return self._check_deltas(deltas)
        return deltas

    def close(self, lost: LLMError | None = None) -> list[Delta]:
        """Return the last deltas. A connection `lost` after the end of the answer is no
        error."""
        deltas: list[Delta] = []
        try:
            for event in () if lost else self._frames.close():
                deltas += self._decoder.feed(event)
        except _READ_ERRORS as exc:
            self.error = _error_of(exc)
        if self.error is None:
            try:
                for delta in self._decoder.close():  # keeps deltas before an error
                    deltas.append(delta)
            except _READ_ERRORS as exc:
                self.error = lost or _error_of(exc)
        return self._check_deltas(deltas)

    def _check_deltas(self, deltas: list[Delta]) -> list[Delta]:
        for number, delta in enumerate(deltas):
            try:
                _check(delta, self._items)
            except LLMError as exc:
                self.error = exc
                return deltas[:number]
        return deltas


def decode_body(
    decode: Callable[[bytes], Iterable[Delta]], body: bytes
) -> tuple[list[Delta], LLMError | None]:
    """Decode and check an unstreamed answer: its deltas, and the error after them."""
    deltas: list[Delta] = []
    items = _ItemCount()
    try:
        for delta in decode(body):
            _check(delta, items)
            deltas.append(delta)
    except _READ_ERRORS as exc:
        return deltas, _error_of(exc)
    return deltas, None


class _ItemCount:
    """The items that an answer's deltas open, as `delta_item_stream` opens them."""

    __slots__ = ("_open", "_total", "current")

    def __init__(self) -> None:
        self.current: Key | None = None  # of the message or reasoning being written
        self._open: set[Key] = set()  # other items that are open
        self._total = 0

    def add(self, delta: Delta) -> None:
        """Raises BadResponse at one item too many."""
        match delta:
            case TextDelta() | RefusalDelta() | ReasoningDelta() | AnnotationDelta():
                if delta.key != self.current:
                    self.current = delta.key
                    self._count()
            case ToolCallDelta() | ItemDelta():
                if delta.key not in self._open:
                    self._open.add(delta.key)
                    self._count()
                    if isinstance(delta, ToolCallDelta):
                        self.current = None
                if isinstance(delta, ItemDelta) and delta.done:
                    self._open.discard(delta.key)
            case CloseDelta():
                self._open.discard(delta.key)
                if delta.key == self.current:
                    self.current = None

    def _count(self) -> None:
        self._total += 1
        if self._total > MAX_ITEMS:
            raise too_many_items()


def _check(delta: Delta, items: _ItemCount) -> None:
    """Sanitize a delta and count its item. Raises LLMError if it is not well formed,
    or opens one item too many."""
    if not is_well_formed(delta):
        raise invalid_delta_error(delta)
    try:
        sanitize(delta)
    except ValueError as exc:
        raise decode_error(exc) from exc
    items.add(delta)


def invalid_delta_error(delta: Delta) -> BadResponse:
    kind = type(delta).__name__
    return BadResponse(detail=f"{kind} with an unexpected shape in the response.")


def _error_of(exc: Exception) -> LLMError:
    return exc if isinstance(exc, LLMError) else decode_error(exc)


def decode_error(exc: Exception) -> BadResponse:
    error = BadResponse(detail=f"{type(exc).__name__} while reading the answer.")
    error.__cause__ = exc
    return error
