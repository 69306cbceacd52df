"""One HTTP exchange under our time limits: sends a request, reads the response body.

Every read has its own timeout, so none is running while the consumer works. All errors
of the network and its libraries are converted to an LLMError here, whose text contains
neither the key nor a body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from http import HTTPStatus

import aiohttp
import httpx

from llm.conf import settings
from llm.errors import (
    BadResponse,
    ConnectTimeout,
    CutOff,
    LLMError,
    ProviderDown,
    ProviderTimeout,
)
from llm.http import connection_problems as problems
from llm.http import connections
from llm.http.connections import (
    BODY,
    CONNECTION,
    NEW_CONNECTION,
    Body,
    IdleConnectionClosed,
    Slots,
    Transport,
    UnansweredRequest,
    take_unread,
)
from llm.http.decompression import decompress, is_compressed
from llm.http.recording import Recording
from llm.http.timers import ResponseTimer
from llm.provider import DIRECT, Connection

MAX_BODY = 64 * 1024 * 1024  # bytes
MAX_ERROR_BODY = 1024 * 1024  # bytes; the rest is not read

_NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError)
#: RuntimeError: our own `aclose` has closed the connection.
_READ_ERRORS = (*_NETWORK_ERRORS, RuntimeError)


async def send_request(
    transport: Transport,
    message: httpx.Request,
    *,
    streams: bool,
    on_slot: Callable[[], None] = lambda: None,
    recording: Recording | None = None,
) -> UpstreamResponse:
    """Send the request and return after the head of the host's response, which the
    caller closes. Raises LLMError.

    `on_slot` is called when the request is one of the `LLM_MAX_CONNECTIONS` open ones;
    it may still have to connect. `recording` receives the response as it is read.
    """
    loop = asyncio.get_running_loop()
    slots = connections.slots.of[loop]
    await slots.acquire()
    on_slot()
    connection = message.extensions.get(CONNECTION, DIRECT)
    timer = ResponseTimer(loop, streams=streams, connection=connection)
    try:
        response = await _send(transport, message, timer)
        await _check_proxy(response, message)
        if recording is not None:
            return RecordedResponse(response, timer, slots, recording)
        return UpstreamResponse(response, timer, slots)
    except BaseException:
        timer.close()
        slots.release()
        raise


class UpstreamResponse:
    """A response whose body is read as it arrives."""

    __slots__ = ("_content", "_decompressed", "_slots", "_stream", "_timer", "response")

    def __init__(
        self, response: httpx.Response, timer: ResponseTimer, slots: Slots
    ) -> None:
        self.response = response
        self._slots: Slots | None = slots  # None after its slot is released
        #: Not `response.stream`, which refers to the request, which may be large.
        self._stream = response.extensions.get(BODY, response.stream)
        self._timer = timer
        self._content: aiohttp.StreamReader | None = None
        self._decompressed: AsyncGenerator[bytes, None] | None = None
        if isinstance(self._stream, Body) and not is_compressed(response):
            self._content = self._stream.content
        if self._content is None:
            self._decompressed = decompress(response)

    def discard_head(self) -> None:
        """Free `response` and its request, for bodies that may take minutes to read."""
        del self.response

    async def read(self) -> bytes:
        """The available bytes, at least one; b"" at the end."""
        try:
            if self._content is None:
                return await self._read_decompressed()
            with self._timer:
                piece = await self._content.readany()
            self._timer.first_byte = None
            return piece
        except _READ_ERRORS as exc:
            if self._content is not None and (unread := take_unread(self._content)):
                return unread  # the next read raises
            raise _network_error(exc, problems.CUT_OFF, CutOff) from exc

    async def read_rest(self, start: bytes = b"", *, limit: int = MAX_BODY) -> bytes:
        """Return `start` and the rest of the body, to the first read beyond `limit`."""
        chunks, size = [start], len(start)
        while size <= limit and (chunk := await self.read()):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    async def aclose(self) -> None:
        self._timer.close()
        if self._slots is not None:
            self._slots.release()
            self._slots = None
        try:
            if self._decompressed is not None:
                await self._decompressed.aclose()
            if isinstance(self._stream, httpx.AsyncByteStream):
                await self._stream.aclose()
        except _NETWORK_ERRORS:
            pass  # the host has closed the connection already

    async def _read_decompressed(self) -> bytes:
        if self._decompressed is None:
            return b""
        with self._timer:
            chunk = await anext(self._decompressed, b"")
        self._timer.first_byte = None
        return chunk


class RecordedResponse(UpstreamResponse):
    """A response that is recorded while it is read."""

    __slots__ = ("_recording",)

    def __init__(
        self,
        response: httpx.Response,
        timer: ResponseTimer,
        slots: Slots,
        recording: Recording,
    ) -> None:
        super().__init__(response, timer, slots)
        self._recording = recording
        recording.note_response(response)

    async def read(self) -> bytes:
        chunk = await super().read()
        self._recording.note_chunk(chunk)
        return chunk


async def _send(
    transport: Transport, message: httpx.Request, timer: ResponseTimer
) -> httpx.Response:
    try:
        with timer:
            try:
                return await transport.handle_async_request(message)
            except IdleConnectionClosed:
                # The host closed an idle connection, before it read the request.
                message.extensions = {**message.extensions, NEW_CONNECTION: True}
                return await transport.handle_async_request(message)
    except _NETWORK_ERRORS as exc:
        raise _connection_error(exc, message) from exc


def _connection_error(exc: Exception, message: httpx.Request) -> LLMError:
    """Convert an error before the head of a response."""
    connection: Connection = message.extensions.get(CONNECTION, DIRECT)
    proxy = connection.proxy_url
    if isinstance(exc, httpx.ConnectTimeout | aiohttp.ConnectionTimeoutError):
        times = message.extensions.get("timeout", {})
        seconds = times.get("connect") or settings.LLM_CONNECT_TIMEOUT
        return ConnectTimeout(detail=problems.NOT_CONNECTED.format(seconds=seconds))
    # The name of a host behind a proxy is resolved by the proxy.
    is_unknown_proxy = bool(proxy) and isinstance(exc, aiohttp.ClientConnectorDNSError)
    if is_unknown_proxy or isinstance(exc, aiohttp.ClientProxyConnectionError):
        return ProviderDown(detail=problems.NO_PROXY)
    if isinstance(exc, aiohttp.ClientHttpProxyError):
        return ProviderDown(detail=problems.PROXY_REFUSES.format(status=exc.status))
    if isinstance(exc, aiohttp.ClientSSLError):
        return ProviderDown(detail=_describe_tls(exc, proxy))
    if isinstance(exc, UnansweredRequest):
        return ProviderTimeout(
            detail=problems.LEFT.format(seconds=round(exc.seconds, 1))
        )
    return _network_error(exc, problems.NOT_REACHED)


async def _check_proxy(response: httpx.Response, message: httpx.Request) -> None:
    """Raises ProviderDown, and closes the response, if the proxy wants a password.

    For https:// the answer comes through a tunnel, so from the host: without a tunnel
    aiohttp raises an error.
    """
    connection: Connection = message.extensions.get(CONNECTION, DIRECT)
    if not connection.proxy_url or message.url.scheme != "http":
        return
    if response.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        with suppress(*_NETWORK_ERRORS):  # the proxy has closed the connection already
            await response.aclose()
        raise ProviderDown(
            detail=problems.PROXY_REFUSES.format(status=response.status_code)
        )


def _network_error(
    exc: Exception,
    sentence: str,
    kind: type[LLMError] = ProviderDown,
) -> LLMError:
    """Convert an error of httpx, aiohttp or the system."""
    name = type(exc).__name__
    if isinstance(exc, TimeoutError | httpx.TimeoutException):
        # The host may have received the request and be processing it.
        return ProviderTimeout(detail=problems.STALLED.format(error=name))
    if isinstance(exc, httpx.DecodingError | aiohttp.ClientResponseError):
        return BadResponse(detail=f"{name}: the response is not valid HTTP.")
    return kind(detail=sentence.format(error=name))


#: OpenSSL's reasons where the peer sends no TLS, or has no version that we accept.
_NO_TLS_REASONS = {
    "WRONG_VERSION_NUMBER",
    "UNSUPPORTED_PROTOCOL",
    "TLSV1_ALERT_PROTOCOL_VERSION",
}


def _describe_tls(exc: aiohttp.ClientSSLError, proxy_url: str) -> str:
    is_proxy = _is_at(exc, proxy_url)
    sentences = problems.PROXY_TLS if is_proxy else problems.SERVER_TLS
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        code = getattr(exc.certificate_error, "verify_code", None) or 0
        return sentences.certificates.get(code, sentences.other_certificate)
    has_no_tls = getattr(exc.os_error, "reason", None) in _NO_TLS_REASONS
    return sentences.no_tls if has_no_tls else sentences.handshake_failed


def _is_at(exc: aiohttp.ClientSSLError, url: str) -> bool:
    """Whether the connection to this address failed. To a host behind a proxy, aiohttp
    makes two, whose errors are of the same class."""
    if not url:
        return False
    address = httpx.URL(url)
    host = address.raw_host.decode()  # as aiohttp has it, for any alphabet
    return (exc.host, exc.port) == (host, address.port or 443)
