"""HTTP connections to providers: httpx messages over aiohttp, two transports an event
loop.

One transport may connect to private addresses, the other refuses to. Neither shares
anything between accounts: no cookies, no redirects, nothing from the environment. Calls
of models use a transport directly: an `httpx.AsyncClient` would look for cookies,
redirects and authentication in each exchange. httpx's own transport spends twice the
CPU a chunk, and with 500 open streams a new request costs 24 ms, because its pool
searches all connections (docs/decisions/0004).

Errors of aiohttp are not converted; the caller handles them beside those of httpx. Two
are added. `IdleConnectionClosed`: the host closed an idle connection while a request
was being sent over it; such a request may be sent again, with `NEW_CONNECTION`.
`UnansweredRequest`: the host closed the connection so long after the request that it
may have processed it, and bills it.

`Slots` limits the number of open requests to providers. It is in front of aiohttp's
pool, because a timeout of that pool's own limit cannot be distinguished from a host
that does not answer.

A body is read from aiohttp's own `StreamReader` (`Body.content`, by the response
extension `BODY`), without the five generators of httpx's layers in between.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from io import BytesIO
from typing import Any

import aiohttp
import httpx
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from aiohttp.streams import StreamReader
from multidict import CIMultiDict

from llm.concurrency.per_loop import PerLoop
from llm.conf import settings
from llm.errors import BadRequest, NoFreeConnection
from llm.http.address_problems import PRIVATE_NETWORK
from llm.http.addresses import is_public
from llm.http.outbound_hosts import check_listed
from llm.provider import DIRECT

IDLE_TIMEOUT = (
    4.0  # seconds an idle connection is open; many servers close them after 5
)
#: aiohttp writes bytes at once: with more of them (pictures) the event loop would stand
#: still, which aiohttp warns of.
_LARGE_BODY = 500_000  # bytes
#: Idle timeouts for hosts that announce their own: one second less than announced,
#: rounded down to one of these values, as each value has its own connection pool.
_IDLE_TIMEOUTS = (0.0, 1.0, 2.0, IDLE_TIMEOUT, 9.0, 14.0, 29.0, 59.0)
_KEEP_ALIVE = re.compile(r"\btimeout\s*=\s*(\d{1,20})", re.IGNORECASE)
#: Seconds after which a host that closes a connection has seen the request: an idle one
#: that is closed shows within a round trip.
CLOSE_TIME = 2.0
_MAX_HOSTS = 1_000  # whose idle timeouts are cached
#: A request extension: open a new connection for this request.
NEW_CONNECTION = "parley.fresh"
#: A request extension: the `Connection` of the account.
CONNECTION = "parley.connection"
#: A response extension: the `Body`. A mocked response has none.
BODY = "parley.body"


def private_address_error() -> BadRequest:
    return BadRequest(PRIVATE_NETWORK)


class Body(httpx.AsyncByteStream):
    """The bytes of a response body. Iterate over it, or read its `content` directly."""

    __slots__ = ("_answer", "content")

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.content: StreamReader = answer.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.content.iter_any():
            yield piece

    async def aclose(self) -> None:
        self._answer.release()
        await self._answer.wait_for_close()


def take_unread(content: StreamReader) -> bytes:
    """Remove and return the bytes that arrived before a connection was cut.

    aiohttp raises the error first and has no documented way to read them afterwards.
    """
    buffer: Any = getattr(content, "_buffer", [])  # an empty body has none
    unread = b"".join(buffer)
    if unread:
        buffer.clear()
    return unread


class IdleConnectionClosed(aiohttp.ClientConnectionError):
    """A reused connection was closed at once, before the first byte of an answer."""


class UnansweredRequest(aiohttp.ClientConnectionError):
    """The connection was closed instead of an answer, after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"closed after {seconds:.1f} s")
        self.seconds = seconds


@dataclass(slots=True)
class _Trace:
    """What aiohttp reports about one request."""

    reused: bool = False  # an earlier request used the same connection
    sent_at: float | None = None  # time.monotonic(), once there is a connection

    @property
    def seconds(self) -> float:
        return 0.0 if self.sent_at is None else time.monotonic() - self.sent_at


class Transport(httpx.AsyncBaseTransport):
    """Sends requests of httpx with aiohttp. Raises `aiohttp.ClientError`, OSError."""

    def __init__(self, resolver: ThreadedResolver) -> None:
        self._resolver = resolver
        self._sessions: dict[float, aiohttp.ClientSession] = {}  # by idle timeout
        self._idle_times: dict[tuple[str, str, int | None], float] = {}  # by host

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if settings.OUTBOUND_HOSTS:
            check_listed(url.host)
        host = (url.scheme, url.host, url.port)
        is_fresh = request.extensions.get(NEW_CONNECTION, False)
        idle_time = 0.0 if is_fresh else self._idle_times.get(host, IDLE_TIMEOUT)
        times = request.extensions.get("timeout", {})
        connection = request.extensions.get(CONNECTION, DIRECT)
        trace = _Trace()
        data = await request.aread()
        try:
            answer = await self.session(idle_time).request(
                request.method,
                str(url),
                headers=_to_multidict(tuple(request.headers.raw)),
                data=BytesIO(data) if len(data) > _LARGE_BODY else data or None,
                allow_redirects=False,
                timeout=_timeout(times.get("connect"), times.get("pool")),
                trace_request_ctx=trace,
                proxy=connection.proxy_url or None,
                ssl=_ssl_context(connection.ca_certificates),
            )
        except aiohttp.ClientConnectionError as exc:
            if isinstance(exc, TimeoutError):
                raise
            if trace.seconds > CLOSE_TIME:
                raise UnansweredRequest(trace.seconds) from exc
            if trace.reused and not _has_answered(exc):
                raise IdleConnectionClosed(str(exc)) from exc
            raise
        if keep_alive := answer.headers.get("Keep-Alive"):
            self._store_idle_timeout(host, parse_idle_timeout(keep_alive))
        body = Body(answer)
        return httpx.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=body,
            extensions={"http_version": b"HTTP/1.1", BODY: body},
        )

    def session(self, idle_time: float = IDLE_TIMEOUT) -> aiohttp.ClientSession:
        """The session whose idle connections stay open for `idle_time` seconds; with 0
        each request opens a connection."""
        if (session := self._sessions.get(idle_time)) is None:
            session = _new_session(self._resolver, idle_time)
            self._sessions[idle_time] = session
        return session

    async def aclose(self) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def _store_idle_timeout(
        self, host: tuple[str, str, int | None], idle_time: float
    ) -> None:
        if len(self._idle_times) >= _MAX_HOSTS and host not in self._idle_times:
            self._idle_times.clear()
        self._idle_times[host] = idle_time


def parse_idle_timeout(keep_alive: str | None) -> float:
    """Seconds to keep an idle connection, from the host's `Keep-Alive` header."""
    found = _KEEP_ALIVE.search(keep_alive or "")
    if found is None:
        return IDLE_TIMEOUT
    longest = int(found[1]) - 1
    return max((each for each in _IDLE_TIMEOUTS if each <= longest), default=0.0)


def _has_answered(exc: aiohttp.ClientConnectionError) -> bool:
    """Whether part of a response came."""
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        # "Partially parsed HTTP message (optional)"; without one it is None or a text:
        # https://docs.aiohttp.org/en/stable/client_reference.html#client-exceptions
        return exc.message is not None and not isinstance(exc.message, str)
    return False


@lru_cache(maxsize=1_000)
def _to_multidict(headers: tuple[tuple[bytes, bytes], ...]) -> CIMultiDict[str]:
    """Convert headers for aiohttp, which copies them. They are the same for all
    requests of an account."""
    return CIMultiDict((name.decode(), text.decode()) for name, text in headers)


@cache
def _timeout(connect: float | None, pool: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, connect=pool)


def transport(*, private: bool) -> Transport:
    """This event loop's transport, opened when first needed."""
    transports = loop_transports.of[asyncio.get_running_loop()]
    if private not in transports:
        resolver = ThreadedResolver() if private else _PublicResolver()
        transports[private] = Transport(resolver)
        _closings()
    return transports[private]


def public_web_client() -> httpx.AsyncClient:
    """A client for URLs on the public web, over this event loop's connections; it need
    not be closed.

    It connects to no private address, even if a public name resolves to one: its
    resolver raises BadRequest. Hosts that look like an address are not resolved: check
    them with `addresses` first.
    """
    return httpx.AsyncClient(
        transport=transport(private=False),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        trust_env=False,
    )


async def aclose() -> None:
    """Close this event loop's connections. A later call opens new ones."""
    slots.pop()
    for each in (loop_transports.pop() or {}).values():
        await each.aclose()


def _close_with_loop() -> AsyncGenerator[None, None]:
    """Close the running loop's connections when it ends: `asyncio.run` and servers
    close all asynchronous generators that have begun."""
    closing = _wait_to_close()
    with suppress(StopIteration):
        closing.__anext__().send(None)  # begins, up to its `yield`
    return closing


async def _wait_to_close() -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await aclose()


loop_transports: PerLoop[dict[bool, Transport]] = PerLoop(dict)
_closings: PerLoop[AsyncGenerator[None, None]] = PerLoop(_close_with_loop)


def _new_session(resolver: ThreadedResolver, idle_time: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # `Slots` limits requests
        **({"keepalive_timeout": idle_time} if idle_time else {"force_close": True}),
        ssl=_ssl_context(""),
        resolver=resolver,
    )
    # No cookie jar: accounts share the client and must not share cookies.
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,  # `exchange` and httpx do it
        trace_configs=[_tracing()],
    )


def _tracing() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(_note_reuse)
    config.on_connection_create_end.append(_note_connection)
    return config


async def _note_reuse(session: Any, context: Any, params: Any) -> None:
    trace = context.trace_request_ctx
    trace.reused, trace.sent_at = True, time.monotonic()


async def _note_connection(session: Any, context: Any, params: Any) -> None:
    context.trace_request_ctx.sent_at = time.monotonic()


class Slots:
    """Limits the number of open requests to providers to `LLM_MAX_CONNECTIONS`.

    Requests beyond the limit wait in order, for up to `LLM_CONNECTION_WAIT` seconds.
    """

    __slots__ = ("_free", "open", "waiting")

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(settings.LLM_MAX_CONNECTIONS)
        self.open = 0  # requests
        self.waiting = 0  # requests

    async def acquire(self) -> None:
        """Raises NoFreeConnection."""
        if not self._free.locked():
            await self._free.acquire()  # does not wait
            self.open += 1
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(settings.LLM_CONNECTION_WAIT):
                await self._free.acquire()
            self.open += 1
        except TimeoutError:
            raise NoFreeConnection(retry_after=1.0) from None
        finally:
            self.waiting -= 1

    def release(self) -> None:
        self.open -= 1
        self._free.release()


slots = PerLoop(Slots)


@lru_cache(maxsize=100)
def _ssl_context(ca_certificates: str) -> ssl.SSLContext:
    """Created once: loading the certificates takes longer than a whole call."""
    if ca_certificates:
        return ssl.create_default_context(cadata=ca_certificates)
    return httpx.create_ssl_context(trust_env=False)


class _PublicResolver(ThreadedResolver):
    """Resolves names to public addresses only, which are then used to connect."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if not all(is_public(entry["host"]) for entry in found):
            raise private_address_error()
        return found
