"""Download of a file whose URL was entered into a conversation.

The URL is not trusted, so the client connects to public addresses only and sends no
account's headers, and each redirect is checked again. Size, time and number of
redirects are limited.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

import aiohttp
import httpx

from llm.conf import settings
from llm.errors import BadResponse, LLMError
from llm.http import connections
from llm.http.addresses import is_public, looks_like_address
from llm.http.decompression import decompress
from llm.http.outbound_hosts import is_listed

MAX_SIZE = 20 * 1024 * 1024  # bytes
MAX_SECONDS = 20.0  # for everything, redirects included
MAX_REDIRECTS = 3


class DownloadError(Exception):
    """The message completes a sentence, "… could not be fetched: …"."""


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    content_type: str  # as sent by its server, without parameters, in lower case
    data: bytes


async def fetch(
    url: str, *, max_size: int = MAX_SIZE, seconds: float = MAX_SECONDS
) -> DownloadedFile:
    """Download `url`, which is http or https. Raises DownloadError."""
    try:
        async with asyncio.timeout(seconds):
            return await _fetch(url, max_size)
    except TimeoutError as exc:
        raise DownloadError(f"its server took longer than {seconds:g} seconds") from exc
    except LLMError as exc:  # from the client's resolver
        raise _private_address_error() from exc
    except (httpx.InvalidURL, ValueError) as exc:
        raise DownloadError("its address is not a valid URL") from exc
    except (httpx.HTTPError, httpx.StreamError, aiohttp.ClientError, OSError) as exc:
        raise DownloadError(
            "its server cannot be reached, or closed the connection"
        ) from exc


async def _fetch(url: str, max_size: int) -> DownloadedFile:
    for _ in range(MAX_REDIRECTS + 1):
        result = await _request(_check_url(httpx.URL(url)), max_size)
        if isinstance(result, DownloadedFile):
            return result
        if url.lower().startswith("https:") and result.scheme != "https":
            raise DownloadError("its server redirects from https to http")
        url = str(result)
    raise DownloadError(f"its server redirects more than {MAX_REDIRECTS} times")


async def _request(url: httpx.URL, max_size: int) -> DownloadedFile | httpx.URL:
    """The file, or the URL it redirects to."""
    connect = settings.LLM_CONNECT_TIMEOUT
    async with connections.public_web_client().stream(
        "GET",
        url,
        headers={"Accept": "*/*", "Accept-Encoding": "identity"}
        | {"User-Agent": "parley"},
        timeout=httpx.Timeout(None, connect=connect, pool=connect),
    ) as response:
        if response.is_redirect:
            return url.join(response.headers.get("location", ""))
        if response.status_code != 200:
            raise DownloadError(f"its server returned HTTP {response.status_code}")
        kind = response.headers.get("content-type", "").partition(";")[0]
        data = await _body(response, max_size)
        return DownloadedFile(kind.strip().lower(), data)


async def _body(response: httpx.Response, max_size: int) -> bytes:
    """The decompressed body: some hosts compress although they are asked not to."""
    body = bytearray()
    try:
        async with aclosing(decompress(response)) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > max_size:
                    raise DownloadError(f"it is larger than {max_size // 1024**2} MB")
    except BadResponse as exc:
        raise DownloadError("its server compresses it in an unknown way") from exc
    return bytes(body)


def _check_url(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise DownloadError("only http and https URLs are allowed")
    if url.userinfo:
        raise DownloadError("its URL contains a user name")
    if not is_listed(url.host):
        raise DownloadError("this server may not reach its host")
    if looks_like_address(url.host) and not is_public(url.host):
        raise _private_address_error()
    return url


def _private_address_error() -> DownloadError:
    return DownloadError("its address is in a private network")
