"""Connections to providers: httpx in front, aiohttp behind it, two clients a loop.

One client is for addresses that may lie in our own network, the other refuses to
connect there. Both share nothing between accounts: no cookies, no redirects, nothing
from the environment. A call leaves by `Client.ask`, which is `httpx.AsyncClient.send`
without what no call here has a use for: each of cookie jar, redirects, authentication
and hooks costs as much as to write the request.

aiohttp's errors come out as they are; whoever asks knows them beside those of httpx.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache, lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy

import aiohttp
import httpx
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from django.conf import settings
from multidict import CIMultiDict

from llm.addresses import is_public
from llm.errors import BadRequest

KEPT = 30  # seconds that an idle connection stays


def private_address() -> BadRequest:
    return BadRequest(
        "The provider's address lies in a private network; the staff must allow that "
        "for this provider or correct the address."
    )


class Body(httpx.AsyncByteStream):
    """The bytes of an answer. `read` gives what has come, and b"" at the end.

    Iterating goes through five generators for each of httpx's layers; `read` through
    none.
    """

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.read: Callable[[], Awaitable[bytes]] = answer.content.readany

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read():
            yield chunk

    async def aclose(self) -> None:
        self._answer.release()
        await self._answer.wait_for_close()


class Transport(httpx.AsyncBaseTransport):
    """Requests of httpx, sent by aiohttp. Raises `aiohttp.ClientError`, OSError."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        times = request.extensions.get("timeout", {})
        answer = await self._session.request(
            request.method,
            str(request.url),
            headers=_spelled(tuple(request.headers.raw)),
            data=await request.aread() or None,
            allow_redirects=False,
            timeout=_timeout(times.get("connect"), times.get("pool")),
        )
        return httpx.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=Body(answer),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        await self._session.close()


@lru_cache(maxsize=1_000)
def _spelled(headers: tuple[tuple[bytes, bytes], ...]) -> CIMultiDict[str]:
    """As aiohttp wants them, who copies them. An account's are always the same."""
    return CIMultiDict((name.decode(), text.decode()) for name, text in headers)


@cache
def _timeout(connect: float | None, pool: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, connect=pool)


class Client(httpx.AsyncClient):
    async def ask(self, request: httpx.Request) -> httpx.Response:
        """The head of the answer; its body is read, and closed, by who asks.

        The answer does not hold on to the request, which may be large.
        """
        transport = self._transport_for_url(request.url)
        return await transport.handle_async_request(request)


def client(*, private: bool) -> Client:
    """This event loop's client, opened when first needed."""
    loop = asyncio.get_running_loop()
    opened = _clients.get(loop)
    if opened is None:
        for ended in [other for other in _clients if other.is_closed()]:
            del _clients[ended]
        opened = _clients[loop] = {}
    if private not in opened:
        opened[private] = _new_client(private)
    return opened[private]


async def aclose() -> None:
    """Shut this event loop's connections. A later call opens new ones."""
    for http in _clients.pop(asyncio.get_running_loop(), {}).values():
        await http.aclose()


_clients: dict[asyncio.AbstractEventLoop, dict[bool, Client]] = {}


def _new_client(private: bool) -> Client:
    connector = aiohttp.TCPConnector(
        # Here, as the transport leaves httpx's own limits to its connector.
        limit=settings.LLM_MAX_CONNECTIONS,
        keepalive_timeout=KEPT,
        ssl=_ssl_context(),
        resolver=ThreadedResolver() if private else _PublicResolver(),
    )
    # No cookie jar anywhere: accounts share the client, and must not share cookies.
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,  # httpx does it
    )
    return Client(
        transport=Transport(session),
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
            raise private_address()
        return found
