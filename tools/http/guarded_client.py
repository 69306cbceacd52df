"""HTTP client of the tools, with protection against server-side request forgery.

Staff write a tool's URL, a model fills in parts of it, and an untrusted server may
redirect it. So `fetch` resolves each host name once and refuses every address that is
neither public nor in a network that staff allow for the tool. It connects to exactly
the address that it checked, while TLS and the Host header keep the name. It checks each
redirect in the same manner. Sizes and times are limited; proxies, netrc and cookies are
not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from llm.http.addresses import (
    Address,
    Network,
    is_metadata,
    is_public,
    looks_like_address,
    parse_address,
)
from llm.http.outbound_hosts import is_listed
from tools.errors import (
    AddressRefused,
    AnswerTooLarge,
    BrokenAnswer,
    ConnectionBroken,
    FetchError,
    FetchTimeout,
    Unreachable,
)
from tools.http.exchange import FetchedResponse, Limits, OutgoingRequest

#: Returns the addresses of a host name, as text. May raise OSError.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_METHOD_PRESERVING = frozenset({307, 308})
#: Headers that are kept on a redirect to another origin.
_CROSS_ORIGIN_HEADERS = frozenset(
    {"accept", "accept-language", "content-type", "user-agent"}
)
_USUAL_LIMITS = Limits()
_DEFAULT_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "parley"}


async def resolve_name(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def fetch(
    request: OutgoingRequest,
    *,
    allow: Collection[Network] = (),
    limits: Limits = _USUAL_LIMITS,
    resolve: Resolve = resolve_name,
) -> FetchedResponse:
    """The complete answer, whatever its status. Raises only FetchError."""
    try:
        async with asyncio.timeout(limits.total):
            for _ in range(limits.redirects + 1):
                url = check_url(request.url)
                with _convert_errors(limits):
                    addresses = await lookup(url, allow, limits, resolve)
                    answer = await _send(request, url, addresses, limits)
                if not limits.redirects:
                    return answer
                if (target := _redirect_target(answer, url)) is None:
                    return answer
                request = _build_redirect(request, url, answer.status, target)
    except TimeoutError as exc:
        raise FetchTimeout(
            f"the web server took longer than {limits.total:g} seconds."
        ) from exc
    raise BrokenAnswer(f"the web server redirects more than {limits.redirects} times.")


# Address checks


def check_url(text: str) -> URL:
    try:
        url = URL(text)
        host = url.raw_host
    except ValueError as exc:
        raise AddressRefused("the address is not a valid URL.") from exc
    if url.scheme not in ("http", "https") or not host:
        raise AddressRefused("only http and https URLs are allowed.")
    if url.user is not None or url.password is not None:
        raise AddressRefused("a URL with a user name is not allowed.")
    if looks_like_address(host) and parse_address(host) is None:
        raise AddressRefused("the address is a number in an unusual notation.")
    return url


async def lookup(
    url: URL, allow: Collection[Network], limits: Limits, resolve: Resolve
) -> list[Address]:
    """The addresses of the URL's host. Raises AddressRefused unless all are allowed."""
    host = (url.raw_host or "").partition("%")[0]
    if not is_listed(host):
        raise AddressRefused("this server may not reach that host.")
    found: Sequence[str] = [host]
    if not looks_like_address(host):
        async with asyncio.timeout(limits.connect):
            found = await resolve(host, url.port or 0)
    addresses = [parse_address(text) for text in found]
    allowed = [each for each in addresses if each and _is_allowed(each, allow)]
    if not found:
        raise Unreachable("the web server's name has no address.")
    if len(allowed) < len(found):
        raise AddressRefused
    return allowed


def _is_allowed(address: Address, allow: Collection[Network]) -> bool:
    if is_public(address):
        return True
    # A cloud's metadata address counts as allowed only if it is named by itself: a wide
    # network may contain it by accident.
    may_be_in_wide_network = not is_metadata(address)
    return any(
        address in network and (may_be_in_wide_network or network.num_addresses == 1)
        for network in allow
    )


class _PinnedResolver(AbstractResolver):
    """Resolves every name to the addresses that were checked."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass


# One request and its answer


async def _send(
    request: OutgoingRequest, url: URL, addresses: Sequence[Address], limits: Limits
) -> FetchedResponse:
    async with (
        _session(addresses, limits) as session,
        session.request(
            request.method,
            url,
            headers=_headers(request),
            data=request.body,
            allow_redirects=False,
        ) as response,
    ):
        return FetchedResponse(
            status=response.status,
            url=str(url),
            reason=response.reason or "",
            headers={name.lower(): text for name, text in response.headers.items()},
            content_type=response.content_type.lower(),
            charset=response.charset or "",
            body=await _body(response, limits.size) if limits.reads_body else b"",
        )


def _headers(request: OutgoingRequest) -> CIMultiDict[str]:
    headers = CIMultiDict(_DEFAULT_HEADERS)
    headers.update(request.headers)
    headers.update(request.secret_headers)
    return headers


def _session(addresses: Sequence[Address], limits: Limits) -> aiohttp.ClientSession:
    """A session for one request: a reused connection would skip the address check."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            ssl=ssl_context(),
            resolver=_PinnedResolver(addresses),
            use_dns_cache=False,
            force_close=True,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect),
        trust_env=False,
        skip_auto_headers=["Content-Type"],
    )


@cache
def ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.method == "HEAD" or _is_redirect(response.status, response.headers):
        return b""
    too_large = AnswerTooLarge(f"the answer is larger than {limit:,} bytes.")
    if (response.content_length or 0) > limit:
        raise too_large
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)


# Redirects


def _is_redirect(status: int, headers: Mapping[str, str]) -> bool:
    return status in _REDIRECTS and "location" in headers


def _redirect_target(answer: FetchedResponse, url: URL) -> URL | None:
    if not _is_redirect(answer.status, answer.headers):
        return None
    try:
        target = url.join(URL(answer.headers["location"]))
    except ValueError as exc:
        raise BrokenAnswer("the web server redirects to an invalid URL.") from exc
    return check_url(str(target))


def _build_redirect(
    request: OutgoingRequest, url: URL, status: int, target: URL
) -> OutgoingRequest:
    if url.scheme == "https" and target.scheme == "http":
        raise AddressRefused("a redirect from https to http is not followed.")
    request = replace(request, url=str(target))
    if _becomes_get(request.method, status):
        headers = _without(request.headers, "content-type")
        request = replace(request, method="GET", headers=headers, body=None)
    if target.origin() != url.origin():
        harmless = {
            name: text
            for name, text in request.headers.items()
            if name.lower() in _CROSS_ORIGIN_HEADERS
        }
        request = replace(request, headers=harmless, secret_headers={})
    return request


def _becomes_get(method: str, status: int) -> bool:
    """Whether the redirect changes the method to GET, as in browsers.

    Source: https://fetch.spec.whatwg.org/#http-redirect-fetch
    """
    if method in ("GET", "HEAD") or status in _METHOD_PRESERVING:
        return False
    return status == 303 or method == "POST"


def _without(headers: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: text for key, text in headers.items() if key.lower() != name}


# Errors

_BROKEN_OFF = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)


@contextmanager
def _convert_errors(limits: Limits) -> Iterator[None]:
    """Convert exceptions of the network and its libraries to FetchError.

    Their messages are left out, because they contain addresses.
    """
    try:
        yield
    except FetchError:
        raise
    except TimeoutError as exc:
        raise FetchTimeout(
            f"the web server could not be reached within {limits.connect:g} seconds."
        ) from exc
    except aiohttp.ClientSSLError as exc:
        raise Unreachable("the web server's certificate is invalid.") from exc
    except aiohttp.ClientConnectorError as exc:
        raise Unreachable from exc
    except socket.gaierror as exc:
        raise Unreachable("the web server's name cannot be resolved.") from exc
    except (aiohttp.ClientError, OSError) as exc:
        kind = ConnectionBroken if isinstance(exc, _BROKEN_OFF) else BrokenAnswer
        raise kind(
            f"the web server's answer cannot be read ({type(exc).__name__})."
        ) from exc
    except ValueError as exc:  # a header or a name that cannot be sent
        raise AddressRefused("this cannot be sent over HTTP.") from exc
