"""Fetching files from foreign addresses, and the guard of private networks."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import respx

from llm.http import client
from llm.http.fetch import DownloadedFile, DownloadError, fetch

URL = "https://pictures.test/cat.png"


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


async def refused(url: str = URL, **limits: float) -> str:
    with pytest.raises(DownloadError) as caught:
        await fetch(url, **limits)
    return str(caught.value)


def compressed(packed: bytes, encodings: str) -> httpx.Response:
    """A body that nobody has read, as it comes from the network."""

    async def pieces() -> AsyncIterator[bytes]:
        yield packed

    headers = {"content-encoding": encodings}
    return httpx.Response(200, content=pieces(), headers=headers)


async def test_a_file_is_fetched_with_its_type(web):
    kind = {"content-type": "Image/PNG; charset=x"}
    got = web.get(URL).respond(200, content=b"bytes", headers=kind)
    assert await fetch(URL) == DownloadedFile("image/png", b"bytes")
    sent = got.calls.last.request.headers
    assert not {"authorization", "x-api-key", "cookie", "referer"} & set(sent)


async def test_redirects_are_followed_and_counted(web):
    web.get(URL).respond(302, headers={"location": "/moved.png"})
    web.get("https://pictures.test/moved.png").respond(200, content=b"here")
    assert (await fetch(URL)).data == b"here"
    web.get("https://pictures.test/loop").respond(302, headers={"location": "/loop"})
    message = await refused("https://pictures.test/loop")
    assert message == "its server redirects more than 3 times"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("http://pictures.test/cat.png", "its server redirects from https to http"),
        ("https://127.0.0.1/x", "its address is in a private network"),
        ("https://169.254.169.254/x", "its address is in a private network"),
        ("https://2130706433/x", "its address is in a private network"),
        ("file:///etc/passwd", "its server redirects from https to http"),
    ],
)
async def test_a_redirect_leads_nowhere_that_an_address_may_not(web, target, why):
    web.get(URL).respond(302, headers={"location": target})
    assert await refused() == why


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "10.0.0.7",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "localhost",
    ],
)
async def test_our_own_network_is_out_of_bounds(host: str):
    assert await refused(f"http://{host}:9/x") == "its address is in a private network"


async def test_a_name_that_leads_into_our_network_is_not_followed(monkeypatch):
    """Without a mock between: this is the resolver that connects."""

    async def found(*args: object, **kwargs: object):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 80))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    message = await refused("http://innocent.test/x")
    assert message == "its address is in a private network"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://somebody:secret@pictures.test/", "its URL contains a user name"),
        ("ftp://pictures.test/", "only http and https URLs are allowed"),
        ("https://", "only http and https URLs are allowed"),
        ("https://[::1/", "its address is not a valid URL"),
    ],
)
async def test_an_odd_address_is_refused(url: str, why: str):
    assert await refused(url) == why


async def test_no_more_is_read_than_fits(web):
    web.get(URL).respond(200, content=b"x" * 3_000_000)
    assert await refused(max_size=2 * 1024 * 1024) == "it is larger than 2 MB"


async def test_the_size_limit_applies_to_decompressed_content(web):
    packed = gzip.compress(b"\0" * 5_000_000)
    assert len(packed) < 10_000
    web.get(URL).mock(side_effect=[compressed(packed, "gzip")])
    assert await refused(max_size=1024 * 1024) == "it is larger than 1 MB"


@pytest.mark.parametrize("encodings", ["gzip, gzip", "gzip, gzip, gzip", "br"])
async def test_content_is_decompressed_only_once(web, encodings: str):
    packed = gzip.compress(gzip.compress(b"\0" * 5_000_000))
    web.get(URL).mock(side_effect=[compressed(packed, encodings)])
    assert await refused() == "its server compresses it in an unknown way"


async def test_a_compressed_file_is_decompressed(web):
    packed = gzip.compress(b"bytes")
    web.get(URL).mock(side_effect=[compressed(packed, "gzip")])
    assert (await fetch(URL)).data == b"bytes"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(404), "its server returned HTTP 404"),
        (httpx.Response(500), "its server returned HTTP 500"),
        (httpx.Response(204), "its server returned HTTP 204"),
        (
            httpx.ConnectError("x"),
            "its server cannot be reached, or closed the connection",
        ),
        (
            httpx.ReadError("x"),
            "its server cannot be reached, or closed the connection",
        ),
    ],
)
async def test_a_failed_fetch_names_its_reason(web, answer, why: str):
    web.get(URL).mock(side_effect=[answer])
    assert await refused() == why


async def test_a_server_that_takes_its_time_is_left(web):
    async def slow(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    web.get(URL).mock(side_effect=slow)
    assert await refused(seconds=0.05) == "its server took longer than 0.05 seconds"
