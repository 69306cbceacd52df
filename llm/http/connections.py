"""HTTP clients for providers: the httpx API over aiohttp, two clients an event loop.

One client may connect to private addresses, the other refuses to. Neither shares
anything between accounts: no cookies, no redirects, nothing from the environment. Calls
use `Client.send_request` instead of `httpx.AsyncClient.send`: cookie jar, redirects,
authentication and hooks are not needed here, and each costs as much as writing the
request.

Errors of aiohttp are not converted; the caller handles them beside those of httpx. One
is added: `IdleConnectionClosed`, for a host that closed an idle connection while a
request was being sent over it. Such a request may be sent again, with `NEW_CONNECTION`.

`Slots` limits the number of open requests to providers. It is in front of aiohttp's
pool, because a timeout of that pool's own limit cannot be distinguished from a host
that does not answer.

A body is read from aiohttp's own `StreamReader` (`Body.content`), without the five
generators of httpx's layers in between.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache, lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import aiohttp
import httpx
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from aiohttp.streams import StreamReader
from django.conf import settings
from multidict import CIMultiDict

from llm.errors import BadRequest, NoFreeConnection
from llm.http.addresses import is_public

IDLE_TIMEOUT = (
    4.0  # seconds an idle connection is open; many servers close them after 5
)
#: Idle timeouts for hosts that announce their own: one second less than announced,
#: rounded down to one of these values, as each value has its own connection pool.
_IDLE_TIMEOUTS = (0.0, 1.0, 2.0, IDLE_TIMEOUT, 9.0, 14.0, 29.0, 59.0)
_KEEP_ALIVE = re.compile(r"\btimeout\s*=\s*(\d{1,20})", re.IGNORECASE)
_MAX_HOSTS = 1_000  # whose idle timeouts are cached
#: A request extension: open a new connection for this request.
NEW_CONNECTION = "parley.fresh"


def private_address_error() -> BadRequest:
    return BadRequest(
        "The provider's address lies in a private network; the staff must allow that "
        "for this provider or correct the address."
    )


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
    """A reused connection was closed before the first byte of an answer."""


@dataclass(slots=True)
class _Trace:
    """What aiohttp reports about one request."""

    reused: bool = False  # an earlier request used the same connection


class Transport(httpx.AsyncBaseTransport):
    """Sends requests of httpx with aiohttp. Raises `aiohttp.ClientError`, OSError."""

    def __init__(self, resolver: ThreadedResolver) -> None:
        self._resolver = resolver
        self._sessions: dict[float, aiohttp.ClientSession] = {}  # by idle timeout
        self._idle_times: dict[tuple[str, str, int | None], float] = {}  # by host

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        host = (url.scheme, url.host, url.port)
        is_fresh = request.extensions.get(NEW_CONNECTION, False)
        idle_time = 0.0 if is_fresh else self._idle_times.get(host, IDLE_TIMEOUT)
        times = request.extensions.get("timeout", {})
        trace = _Trace()
        try:
            answer = await self.session(idle_time).request(
                request.method,
                str(url),
                headers=_to_multidict(tuple(request.headers.raw)),
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=_timeout(times.get("connect"), times.get("pool")),
                trace_request_ctx=trace,
            )
        except aiohttp.ClientConnectionError as exc:
            if trace.reused and not _has_answered(exc):
                raise IdleConnectionClosed(str(exc)) from exc
            raise
        if keep_alive := answer.headers.get("Keep-Alive"):
            self._store_idle_timeout(host, parse_idle_timeout(keep_alive))
        headers = answer.raw_headers
        return httpx.Response(
            answer.status,
            headers=headers,
            stream=Body(answer),
            extensions={"http_version": b"HTTP/1.1"},
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
    """True if part of a response came, or the host may be processing the request."""
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        # "Partially parsed HTTP message (optional)"; without one it is None or a text:
        # https://docs.aiohttp.org/en/stable/client_reference.html#client-exceptions
        return exc.message is not None and not isinstance(exc.message, str)
    return isinstance(exc, TimeoutError)


@lru_cache(maxsize=1_000)
def _to_multidict(headers: tuple[tuple[bytes, bytes], ...]) -> CIMultiDict[str]:
    """Convert headers for aiohttp, which copies them. They are the same for all
    requests of an account."""
    return CIMultiDict((name.decode(), text.decode()) for name, text in headers)


@cache
def _timeout(connect: float | None, pool: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, connect=pool)


class Client(httpx.AsyncClient):
    async def send_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` and return the head of the response; the caller reads and
        closes the body.

        The response does not reference the request, which may be large.
        """
        transport = self._transport_for_url(request.url)
        return await transport.handle_async_request(request)


def client(*, private: bool) -> Client:
    """This event loop's client, opened when first needed."""
    loop = asyncio.get_running_loop()
    clients = _clients.get(loop)
    if clients is None:
        for ended in [other for other in _clients if other.is_closed()]:
            del _clients[ended]
        clients = _clients[loop] = {}
    if private not in clients:
        clients[private] = _new_client(private)
    return clients[private]


async def aclose() -> None:
    """Close this event loop's connections. A later call opens new ones."""
    loop = asyncio.get_running_loop()
    _slots.pop(loop, None)
    for http in _clients.pop(loop, {}).values():
        await http.aclose()


_clients: dict[asyncio.AbstractEventLoop, dict[bool, Client]] = {}


def _new_client(private: bool) -> Client:
    return Client(
        transport=Transport(ThreadedResolver() if private else _PublicResolver()),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        trust_env=False,
    )


def _new_session(resolver: ThreadedResolver, idle_time: float) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # `Slots` limits requests
        **({"keepalive_timeout": idle_time} if idle_time else {"force_close": True}),
        ssl=_ssl_context(),
        resolver=resolver,
    )
    # No cookie jar: accounts share the client and must not share cookies.
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,  # httpx does it
        trace_configs=[_tracing()],
    )


def _tracing() -> aiohttp.TraceConfig:
    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(_note_reuse)
    return config


async def _note_reuse(session: Any, context: Any, params: Any) -> None:
    context.trace_request_ctx.reused = True


class Slots:
    """Limits the number of open requests to providers to `LLM_MAX_CONNECTIONS`.

    Requests beyond the limit wait in order, for up to `LLM_CONNECTION_WAIT` seconds.
    """

    __slots__ = ("_free", "waiting")

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(settings.LLM_MAX_CONNECTIONS)
        self.waiting = 0  # requests

    async def acquire(self) -> None:
        """Raises NoFreeConnection."""
        if not self._free.locked():
            await self._free.acquire()  # does not wait
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(settings.LLM_CONNECTION_WAIT):
                await self._free.acquire()
        except TimeoutError:
            raise NoFreeConnection(retry_after=1.0) from None
        finally:
            self.waiting -= 1

    def release(self) -> None:
        self._free.release()


def slots() -> Slots:
    """This event loop's slots."""
    loop = asyncio.get_running_loop()
    own_slots = _slots.get(loop)
    if own_slots is None:
        for ended in [other for other in _slots if other.is_closed()]:
            del _slots[ended]
        own_slots = _slots[loop] = Slots()
    return own_slots


_slots: dict[asyncio.AbstractEventLoop, Slots] = {}


@cache
def _ssl_context() -> ssl.SSLContext:
    """Created once: loading the certificates takes longer than a whole call."""
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
