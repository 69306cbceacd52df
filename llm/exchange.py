"""One HTTP exchange under our time limits: a request out, the bytes of its answer in.

Every read is timed on its own, so no timeout is held while the consumer works. All that
the network or its libraries raise ends here and leaves as an LLMError, whose text holds
neither the key nor a body.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp
import httpx
from django.conf import settings

from llm.clock import Clock
from llm.connections import Body, Client, Pieces
from llm.errors import BadResponse, CutOff, LLMError, ProviderDown, ProviderTimeout

MAX_WHOLE_ANSWER = 64 * 1024 * 1024  # bytes

_NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError)
#: With RuntimeError: our own `aclose` has shut the connection.
_READ_ERRORS = (*_NETWORK_ERRORS, RuntimeError)


async def ask(http: Client, message: httpx.Request, *, streams: bool) -> Answer:
    """Returns with the head of the answer; the caller closes it. Raises LLMError."""
    clock = Clock(streams=streams)
    try:
        return Answer(await _sent(http, message, clock), clock)
    except BaseException:
        clock.close()
        raise


class Answer:
    """An HTTP answer, read as it comes."""

    __slots__ = ("_clock", "_pieces", "_stream", "_unpacked", "response")

    def __init__(self, response: httpx.Response, clock: Clock) -> None:
        self.response = response
        self._stream = response.stream
        self._clock = clock
        self._pieces: Pieces | None = None
        self._unpacked: AsyncGenerator[bytes, None] | None = None
        if isinstance(response.stream, Body) and not _is_packed(response):
            self._pieces = response.stream.pieces
        if self._pieces is None:
            self._unpacked = _unpacked(response)

    def forget_head(self) -> None:
        """For who reads what may take minutes: `response` is no more."""
        del self.response

    async def read(self) -> bytes:
        """The bytes that have come, at least one; b"" at the end."""
        pieces, clock = self._pieces, self._clock
        try:
            if pieces is None:
                return await self._next()
            if (waiter := pieces.waiter()) is not None:
                clock.watch(waiter)
                await waiter
            clock.first_byte = None
            return pieces.take()
        except _READ_ERRORS as exc:
            raise _network_error(exc, "The stream was cut off.", CutOff) from exc

    async def rest(self, begun: bytes = b"", *, limit: int = MAX_WHOLE_ANSWER) -> bytes:
        """`begun` and all that follows, up to the first read beyond `limit`."""
        chunks, size = [begun], len(begun)
        while size <= limit and (chunk := await self.read()):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    async def aclose(self) -> None:
        self._clock.close()
        try:
            if self._unpacked is not None:
                await self._unpacked.aclose()
            if isinstance(self._stream, httpx.AsyncByteStream):
                await self._stream.aclose()
        except _NETWORK_ERRORS:
            pass  # hanging up on somebody who has hung up

    async def _next(self) -> bytes:
        if self._unpacked is None:
            return b""
        with self._clock:
            chunk = await anext(self._unpacked, b"")
        self._clock.first_byte = None
        return chunk


def _is_packed(response: httpx.Response) -> bool:
    """A host may pack what it was asked not to."""
    return "content-encoding" in response.headers


async def _unpacked(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    async for chunk in response.aiter_bytes():
        if chunk:
            yield chunk


async def _sent(http: Client, message: httpx.Request, clock: Clock) -> httpx.Response:
    try:
        with clock:
            try:
                return await http.ask(message)
            except aiohttp.ClientConnectionError as exc:
                if not _was_unsent(exc):
                    raise
                return await http.ask(message)
    except _NETWORK_ERRORS as exc:
        raise _network_error(exc, "The provider cannot be reached.") from exc


def _was_unsent(exc: aiohttp.ClientConnectionError) -> bool:
    """True where a kept connection had been shut, and no byte of ours has left."""
    return isinstance(exc.__cause__, aiohttp.ClientConnectionResetError)


def _network_error(
    exc: Exception, said: str, kind: type[LLMError] = ProviderDown
) -> LLMError:
    """Ours for an error of httpx, of aiohttp or of the system."""
    if isinstance(exc, TimeoutError | httpx.TimeoutException):
        seconds = settings.LLM_CONNECT_TIMEOUT
        return ProviderTimeout(detail=f"No connection within {seconds:g} s.")
    if isinstance(exc, aiohttp.ClientSSLError):
        return ProviderDown(detail="No safe connection: the certificate is refused.")
    if isinstance(exc, httpx.DecodingError | aiohttp.ClientResponseError):
        return BadResponse(detail=f"{type(exc).__name__}: this is no HTTP of ours.")
    return kind(detail=f"{said} ({type(exc).__name__})")
