"""The one place that talks HTTP to a provider. It knows no provider's format.

Each event loop has its own HTTP clients, opened when first needed and shut by `aclose`:
one for addresses that may lie in our own network, one that refuses to connect there.
Every read is timed on its own, so no timeout is held while the consumer works. All that
the network or its libraries raise ends here and leaves as an LLMError, whose text holds
neither the key nor a body.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import aiohttp
import httpx
import orjson
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from django.conf import settings
from httpx_aiohttp import AiohttpTransport

from llm.addresses import is_public, looks_like_address
from llm.errors import (
    BadRequest,
    BadResponse,
    InvalidKey,
    LLMError,
    ProviderDown,
    ProviderTimeout,
    TryAgain,
)
from llm.provider import Endpoint, Route, bearer
from llm.wire.classify import request_id
from llm.wire.codec import Decoder
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    ItemDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.request import Request
from llm.wire.sse import ServerSentEvent, SSEDecoder

MAX_ERROR_BODY = 1024 * 1024  # bytes; what comes after them is not read
MAX_WHOLE_ANSWER = 64 * 1024 * 1024  # bytes

#: What a decoder stumbles with over a shape nobody has seen yet.
_STUMBLES = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError)


@dataclass(slots=True)
class Call:
    """What there is to tell about one provider call; `stream` fills it in."""

    started_at: float = 0.0  # time.monotonic()
    ttft: float | None = None  # seconds to the first delta with content
    latency: float | None = None  # seconds to the end, whatever it was
    http_status: int | None = None
    request_id: str = ""  # the provider's, for its support
    error: LLMError | None = None
    # What `llm.policy` adds; a call made without it has none of these.
    attempt: int = 1
    continues: bool = False  # tells the rest of what the call before it began to
    route: Route | None = None
    earlier: list[Call] = field(default_factory=list)  # attempts that came to nothing
    degraded: list[str] = field(default_factory=list)  # what was asked differently
    start: StartDelta | None = None  # these where the caller did not hear them, or
    usage: UsageDelta | None = None  # heard more than this call said
    finish: FinishDelta | None = None

    def saw(self, deltas: list[Delta]) -> None:
        if self.ttft is None and any(map(_has_content, deltas)):
            self.ttft = time.monotonic() - self.started_at


async def stream(
    endpoint: Endpoint,
    request: Request,
    call: Call | None = None,
    *,
    decoder: Decoder | None = None,
) -> AsyncGenerator[list[Delta], None]:
    """One provider call: a list of deltas for each read from the network.

    Raises LLMError and nothing else. Read it inside `aclosing`: closing it hangs up. A
    request that is not to stream gives one list, once the whole answer is there. A
    `decoder` of the endpoint's codec may have heard the beginning of this answer.
    """
    call = call or Call()
    call.started_at = time.monotonic()
    try:
        async with (
            _ask(endpoint, request, call) as answer,
            aclosing(_deltas(endpoint, request, answer, decoder)) as batches,
        ):
            async for deltas in batches:
                call.saw(deltas)
                yield deltas
    except LLMError as exc:
        exc.provider = exc.provider or endpoint.provider.name
        exc.upstream_status = exc.upstream_status or call.http_status
        exc.request_id = exc.request_id or call.request_id or None
        call.error = exc
        raise
    finally:
        call.latency = time.monotonic() - call.started_at


def _has_content(delta: Delta) -> bool:
    match delta:
        case TextDelta(text=text) | RefusalDelta(text=text) | ReasoningDelta(text=text):
            return bool(text)
        case ToolCallDelta() | ItemDelta():
            return True
    return False


async def get(endpoint: Endpoint, path: str) -> bytes:
    """What the provider has at `path`, which may hold a query.

    Raises LLMError and nothing else.
    """
    url, ours = _address(endpoint, endpoint.at(path))
    # Some codecs tell their version in headers, whatever is asked.
    told = _told(endpoint, Request(model="", items=(), stream=False))
    headers = _headers(endpoint, told | await _proof(endpoint), streams=False)
    message = httpx.Request(
        "GET", url, headers=headers, extensions={"timeout": _timeouts()}
    )
    with closing(_Clock(streams=False)) as clock:
        answer = _Answer(await _send(_client(private=ours), message, clock), clock)
        try:
            if not answer.response.is_success:
                raise await _refusal(endpoint, answer)
            body = await answer.rest()
        finally:
            await answer.aclose()
    _check_size(body)
    return body


def outside() -> httpx.AsyncClient:
    """This event loop's client for the open web.

    It connects to no private address, whatever a name leads to: its resolver raises
    BadRequest. What looks like an address is not resolved: ask `addresses` about it.
    """
    return _client(private=False)


async def aclose() -> None:
    """Shut this event loop's connections. A later call opens new ones."""
    for http in _clients.pop(asyncio.get_running_loop(), {}).values():
        await http.aclose()


# One answer


class _Answer:
    """An HTTP answer that is read under our time limits."""

    def __init__(self, response: httpx.Response, clock: _Clock) -> None:
        self.response = response
        self._clock = clock
        self._chunks = response.aiter_bytes()

    async def read(self) -> bytes:
        """The bytes that have come, at least one; b"" at the end."""
        try:
            with self._clock:
                async for chunk in self._chunks:
                    if chunk:
                        self._clock.first_byte = None
                        return chunk
        except TimeoutError as exc:
            raise self._clock.expired() from exc
        except (*_NETWORK_ERRORS, RuntimeError) as exc:
            # aiohttp's RuntimeError: our own `aclose` has shut the connection.
            raise _network_error(exc, "The stream was cut off.") from exc
        return b""

    async def rest(self, begun: bytes = b"", *, limit: int = MAX_WHOLE_ANSWER) -> bytes:
        """`begun` and all that follows, up to the first read beyond `limit`."""
        chunks, size = [begun], len(begun)
        while size <= limit and (chunk := await self.read()):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    async def aclose(self) -> None:
        try:
            await self._chunks.aclose()  # type: ignore[attr-defined]
            await self.response.aclose()
        except _NETWORK_ERRORS:
            pass  # hanging up on somebody who has hung up


class _Clock:
    """The time limits of one call, by the event loop's clock. Held around each wait.

    A timer set for every chunk, as `asyncio.timeout` does, costs as much as to decode
    it. Here one timer stays: a wait only moves its end, at which the timer looks when
    it rings.
    """

    def __init__(self, *, streams: bool) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._idle = settings.LLM_IDLE_TIMEOUT
        self._deadline = now + settings.LLM_TOTAL_TIMEOUT
        #: None once it has come. An answer in one piece begins when it is finished.
        self.first_byte: float | None = (
            now + settings.LLM_FIRST_BYTE_TIMEOUT if streams else self._deadline
        )
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelling = 0  # requests that the task had before it waited
        self._until = math.inf  # when that wait has been too long
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._rang = False

    def __enter__(self) -> None:
        """Begin to wait. Never to be held around a yield."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._waiting, self._cancelling = task, task.cancelling()
        when = self.first_byte
        if when is None:
            when = self._loop.time() + self._idle
        self._until = min(when, self._deadline)
        if self._until < self._rings_at:
            self._set_timer()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: object,
    ) -> None:
        """Raises TimeoutError for our own cancellation, and for no one else's."""
        task, self._waiting = self._waiting, None
        if not self._rang:
            return
        self._rang = False
        assert task is not None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exc

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def expired(self) -> ProviderTimeout:
        if self._loop.time() >= self._deadline:
            said = f"Not finished within {settings.LLM_TOTAL_TIMEOUT:g} s."
        elif self.first_byte is not None:
            said = f"No answer within {settings.LLM_FIRST_BYTE_TIMEOUT:g} s."
        else:
            said = f"Silent for {self._idle:g} s."
        return ProviderTimeout(detail=said)

    def _set_timer(self) -> None:
        self.close()
        self._rings_at = self._until
        self._timer = self._loop.call_at(self._until, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        if self._waiting is None:
            return  # the next wait sets it again
        if self._loop.time() < self._until:
            self._set_timer()
        else:
            self._rang = True
            self._waiting.cancel()


@asynccontextmanager
async def _ask(
    endpoint: Endpoint, request: Request, call: Call
) -> AsyncIterator[_Answer]:
    proof = await _proof(endpoint)
    with closing(_Clock(streams=request.stream)) as clock:
        http, message = _message(endpoint, request, proof)
        answer = _Answer(await _send(http, message, clock), clock)
        try:
            response = answer.response
            call.http_status = response.status_code
            call.request_id = (request_id(response.headers) or "")[:200]
            if not response.is_success:
                raise await _refusal(endpoint, answer)
            yield answer
        finally:
            await answer.aclose()


async def _send(
    http: httpx.AsyncClient, message: httpx.Request, clock: _Clock
) -> httpx.Response:
    """The head of the answer."""
    try:
        with clock:
            try:
                return await http.send(message, stream=True)
            except httpx.TransportError as exc:
                if not _was_unsent(exc):
                    raise
                return await http.send(message, stream=True)
    except TimeoutError as exc:
        raise clock.expired() from exc
    except _NETWORK_ERRORS as exc:
        raise _network_error(exc, "The provider cannot be reached.") from exc


def _was_unsent(exc: httpx.TransportError) -> bool:
    """True where a kept connection had been shut, and no byte of ours has left."""
    cause = exc.__cause__
    return isinstance(cause, aiohttp.ClientConnectionError) and isinstance(
        cause.__cause__, aiohttp.ClientConnectionResetError
    )


async def _refusal(endpoint: Endpoint, answer: _Answer) -> LLMError:
    response = answer.response
    if response.status_code == 401 and endpoint.credentials:
        shown = response.request.headers.get("Authorization", "")
        endpoint.credentials.forget(shown.removeprefix("Bearer "))
    if response.is_redirect:
        return BadResponse(
            "The provider's address leads elsewhere; the staff must correct it."
        )
    try:
        body = await answer.rest(limit=MAX_ERROR_BODY)
    except TryAgain:
        body = b""  # the status alone must do
    body = body[:MAX_ERROR_BODY]
    return endpoint.codec.error(response.status_code, response.headers, body)


# Bytes to deltas


async def _deltas(
    endpoint: Endpoint, request: Request, answer: _Answer, decoder: Decoder | None
) -> AsyncGenerator[list[Delta], None]:
    begun = await _beginning(answer) if request.stream else b""
    # Some hosts stream as application/json, others answer a stream with one JSON
    # object (an error as a rule): what comes first tells them apart, not the header.
    if not request.stream or begun.lstrip()[:1] in (b"{", b"[", b"<"):
        body = await answer.rest(begun)
        yield _whole(endpoint, body)
        return
    sse, decoder = SSEDecoder(), decoder or endpoint.codec.decoder()
    chunk, lost = begun, None
    while chunk:
        deltas, error = _fed(decoder, sse.feed(chunk))
        if deltas:
            yield deltas
        if error:
            raise error
        try:
            chunk = await answer.read()
        except TryAgain as exc:
            chunk, lost = b"", exc
    deltas, error = _closed(decoder, sse, lost)
    if deltas:
        yield deltas
    if error:
        raise error


async def _beginning(answer: _Answer) -> bytes:
    """Enough to see the first byte that is not blank."""
    begun = b""
    while not begun.lstrip(b"\xef\xbb\xbf \t\r\n") and (chunk := await answer.read()):
        begun += chunk
    return begun.removeprefix(b"\xef\xbb\xbf")


def _fed(
    decoder: Decoder, events: Iterable[ServerSentEvent]
) -> tuple[list[Delta], LLMError | None]:
    """What the events say, and the error among them: what came before it counts."""
    deltas: list[Delta] = []
    try:
        for event in events:
            deltas.extend(decoder.feed(event))
    except LLMError as exc:
        return deltas, exc
    except _STUMBLES as exc:
        return deltas, _stumbled(exc)
    return deltas, None


def _closed(
    decoder: Decoder, sse: SSEDecoder, lost: LLMError | None
) -> tuple[list[Delta], LLMError | None]:
    """The last deltas. A connection lost after the last word is no loss."""
    deltas, error = _fed(decoder, () if lost else sse.close())
    if error:
        return deltas, error
    try:
        deltas.extend(decoder.close())
    except LLMError as exc:
        return deltas, lost or exc
    except _STUMBLES as exc:
        return deltas, lost or _stumbled(exc)
    return deltas, None


def _whole(endpoint: Endpoint, body: bytes) -> list[Delta]:
    _check_size(body)
    if body.lstrip()[:1] == b"<":
        raise BadResponse(
            "The provider's address answers with a web page; the staff must correct it."
        )
    try:
        return endpoint.codec.decode(body)
    except _STUMBLES as exc:
        raise _stumbled(exc) from exc


def _check_size(body: bytes) -> None:
    if len(body) > MAX_WHOLE_ANSWER:
        raise BadResponse(detail="The answer is too large.")


def _stumbled(exc: Exception) -> BadResponse:
    error = BadResponse(detail=f"{type(exc).__name__} while reading the answer.")
    error.__cause__ = exc
    return error


# The message we send


def _message(
    endpoint: Endpoint, request: Request, proof: Mapping[str, str]
) -> tuple[httpx.AsyncClient, httpx.Request]:
    """The client to send with and what to send. Raises BadRequest."""
    try:
        wire = endpoint.codec.encode(request)
    except _STUMBLES as exc:
        raise BadRequest(
            "The conversation holds something that this model cannot be told.",
            detail=f"{type(exc).__name__} while writing the request.",
        ) from exc
    try:
        body = orjson.dumps(wire)
    except orjson.JSONEncodeError as exc:
        raise BadRequest(
            "The request holds something that JSON cannot carry.", detail=str(exc)
        ) from exc
    url, ours = _address(endpoint, endpoint.url(request))
    told = {**_told(endpoint, request), **proof}
    return _client(private=ours), httpx.Request(
        "POST",
        url,
        content=body,
        headers=_headers(endpoint, told, streams=request.stream),
        extensions={"timeout": _timeouts()},
    )


def _address(endpoint: Endpoint, text: str) -> tuple[httpx.URL, bool]:
    """`text` as a URL, and whether it may lie in our own network.

    It may where it stands in our code, where the staff say so, and where it is this
    server itself (`self:`, the demo).
    """
    own = endpoint.provider.base_url.startswith("self:")
    if text.startswith("self:"):
        text = settings.SELF_URL + text.removeprefix("self:")
    ours = (
        endpoint.allow_private_network
        or not endpoint.base_url
        or (own and text.startswith(f"{settings.SELF_URL}/"))
    )
    return _url(text, private=ours), ours


def _url(text: str, *, private: bool) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as exc:
        raise _no_address() from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise _no_address()
    if not private:
        _check_literal(url.host)
    return url


async def _proof(endpoint: Endpoint) -> dict[str, str]:
    """The headers that show who we are: with our key, or with a token for it."""
    if endpoint.credentials is not None:
        return bearer(await endpoint.credentials.token(partial(_post, endpoint)))
    key = endpoint.api_key
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidKey("The API key has a character no key has; enter it anew.")
    return endpoint.provider.auth(key)


async def _post(
    endpoint: Endpoint, text: str, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """What somebody who issues tokens for this account answers. Raises LLMError."""
    private = endpoint.allow_private_network
    message = httpx.Request(
        "POST",
        _url(text, private=private),
        data=form,
        headers={"Accept": "application/json", "User-Agent": "parley"},
        extensions={"timeout": _timeouts()},
    )
    with closing(_Clock(streams=True)) as clock:
        answer = _Answer(await _send(_client(private=private), message, clock), clock)
        try:
            body = await answer.rest(limit=MAX_ERROR_BODY)
        finally:
            await answer.aclose()
    return answer.response.status_code, body


def _headers(
    endpoint: Endpoint, told: Mapping[str, str], *, streams: bool
) -> dict[str, str]:
    return {
        "Accept": "text/event-stream" if streams else "application/json",
        # Compressed streams arrive in lumps, and cost time to unpack.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "parley",
        **endpoint.provider.headers,
        **told,
        **endpoint.headers,
    }


def _told(endpoint: Endpoint, request: Request) -> dict[str, str]:
    """What a codec says in headers: a version, betas. Most say all in the body."""
    tell = getattr(endpoint.codec, "headers", None)
    return tell(request) if tell else {}


def _timeouts() -> dict[str, float | None]:
    """For the transport: connecting only, reads are timed by `_Clock`."""
    connect = settings.LLM_CONNECT_TIMEOUT
    return {"connect": connect, "pool": connect, "read": None, "write": None}


# The clients

_clients: dict[asyncio.AbstractEventLoop, dict[bool, httpx.AsyncClient]] = {}


def _client(*, private: bool) -> httpx.AsyncClient:
    loop = asyncio.get_running_loop()
    clients = _clients.get(loop)
    if clients is None:
        for ended in [other for other in _clients if other.is_closed()]:
            del _clients[ended]
        clients = _clients[loop] = {}
    if private not in clients:
        clients[private] = _new_client(private)
    return clients[private]


def _new_client(private: bool) -> httpx.AsyncClient:
    context = _ssl_context()
    connector = aiohttp.TCPConnector(
        # Here, as the transport leaves httpx's own limits to its connector.
        limit=settings.LLM_MAX_CONNECTIONS,
        keepalive_timeout=30,  # seconds
        ssl=context,
        resolver=ThreadedResolver() if private else _PublicResolver(),
    )
    # No cookie jar anywhere: accounts share the client, and must not share cookies.
    session = aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )
    return httpx.AsyncClient(
        transport=AiohttpTransport(verify=context, client=session),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        trust_env=False,
    )


@cache
def _ssl_context() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a call's whole way."""
    return httpx.create_ssl_context(trust_env=False)


class _PublicResolver(ThreadedResolver):
    """Resolves a name to public addresses only; those are what is connected to."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not all(is_public(entry["host"]) for entry in found):
            raise _private_address()
        return found


def _check_literal(host: str) -> None:
    """What looks like an address is not resolved, so it is checked here."""
    if looks_like_address(host) and not is_public(host):
        raise _private_address()


# Errors


def _network_error(exc: Exception, said: str) -> LLMError:
    """Ours for an error of httpx, of aiohttp or of the system."""
    # httpx-aiohttp calls every lost connection a timeout; aiohttp's own error, which
    # is the cause, knows better.
    cause = exc.__cause__ if isinstance(exc.__cause__, aiohttp.ClientError) else exc
    if isinstance(cause, TimeoutError | httpx.TimeoutException):
        seconds = settings.LLM_CONNECT_TIMEOUT
        return ProviderTimeout(detail=f"No connection within {seconds:g} s.")
    if isinstance(cause, aiohttp.ClientSSLError):
        return ProviderDown(detail="No safe connection: the certificate is refused.")
    if isinstance(cause, httpx.DecodingError | aiohttp.ClientResponseError):
        return BadResponse(detail=f"{type(cause).__name__}: this is no HTTP of ours.")
    return ProviderDown(detail=f"{said} ({type(cause).__name__})")


def _no_address() -> BadRequest:
    return BadRequest("The provider's address is not a URL; the staff must correct it.")


def _private_address() -> BadRequest:
    return BadRequest(
        "The provider's address lies in a private network; the staff must allow that "
        "for this provider or correct the address."
    )
