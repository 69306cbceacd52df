"""The deltas of a streamed response, decoded one read at a time."""

from __future__ import annotations

import asyncio

from llm.concurrency.worker_thread import run_off_loop
from llm.errors import BadResponse, TryAgain
from llm.http.exchange import MAX_BODY, UpstreamResponse
from llm.wire.codec import Decoder
from llm.wire.delta_reader import DeltaReader
from llm.wire.deltas import Delta
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.forwarding.frame_reader import FrameReader

#: The most bytes of one read that are decoded before the event loop runs other tasks.
#: Most reads contain one frame, but a host that sends 20 MB of tiny frames would
#: otherwise block all other streams for as long as its reads take.
MAX_CHUNK = 16 * 1024
#: An event with more bytes is decoded in a thread: 64 KB can be 3,000 items.
LARGE_EVENT = 32 * 1024


class StreamedDeltas:
    """Decodes a response whose first bytes, `start`, were read already."""

    __slots__ = ("_has_ended", "_is_closed", "_lost", "_reader", "_response", "_unread")

    def __init__(
        self,
        response: UpstreamResponse,
        decoder: Decoder,
        start: bytes,
        forwarded: ForwardedBody | None = None,
    ) -> None:
        """`forwarded` is the client's own body, if there is one."""
        self._response = response
        self._reader: DeltaReader | FrameReader
        if forwarded is not None and forwarded.wants_frames:
            self._reader = FrameReader(decoder, hides_usage=forwarded.hides_usage)
        else:
            self._reader = DeltaReader(decoder)
        self._unread = start
        self._has_ended = not start  # the response has no further bytes
        self._is_closed = False
        self._lost: TryAgain | None = None  # why the response broke off

    async def read(self) -> list[Delta] | None:
        """The deltas of the next read, which may be none; None after the last read.

        Raises LLMError, after the deltas that precede the error.
        """
        reader = self._reader
        if reader.error:
            raise reader.error
        if self._is_closed:
            return None
        if chunk := await self._read_chunk():
            if reader.waiting > LARGE_EVENT:
                if reader.waiting > MAX_BODY:
                    raise BadResponse(detail="An event of the answer is too large.")
                return await asyncio.to_thread(reader.feed, chunk)
            return reader.feed(chunk)
        self._is_closed = True
        return await run_off_loop(reader.waiting, reader.close, self._lost)

    async def _read_chunk(self) -> bytes:
        """The next bytes to decode; b"" at the end of the response."""
        chunk, self._unread = self._unread, b""
        if not chunk and not self._has_ended:
            try:
                chunk = await self._response.read()
            except TryAgain as exc:
                self._lost = exc
            self._has_ended = not chunk
        if len(chunk) <= MAX_CHUNK:
            return chunk
        await asyncio.sleep(0)  # other tasks run between the parts of a large read
        end = _end_of_frame(chunk)
        self._unread = chunk[end:]
        return chunk[:end]


def _end_of_frame(chunk: bytes) -> int:
    """The end of the last frame within MAX_CHUNK bytes, or MAX_CHUNK if there is
    none."""
    end = chunk.rfind(b"\n\n", 0, MAX_CHUNK) + 2
    return MAX_CHUNK if end < 2 else end
