"""The bytes of an answer, over real connections."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import gzip
import re
import ssl
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp.streams import StreamReader
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from llm.errors import LLMError, ProviderDown, ProviderTimeout
from llm.generation.retry_policy import RETRIED_CODES
from llm.http import connections, exchange
from llm.http.connection_problems import describe_connection_problem
from llm.http.connections import BODY, Body
from tests.recording import Recording

Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"
TEXT = b"".join(b"data: %d\n\n" % n for n in range(500))
LARGE = bytes(range(256)) * 40_000  # 10 MB, more than any buffer on the way


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def sized(data: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(data) + data


def chunked(data: bytes, size: int = 97) -> bytes:
    head = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(map(chunk, pieces_of(data, size))) + b"0\r\n\r\n"


def until_closed(data: bytes) -> bytes:
    return OK + b"Connection: close\r\n\r\n" + data


def cut(answer: bytes, size: int) -> Write:
    """Writes `answer` in pieces of `size`, each with a packet of its own."""

    async def write(writer: asyncio.StreamWriter) -> None:
        for piece in pieces_of(answer, size):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return write


@asynccontextmanager
async def server(
    *answers: Write, safe: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[int]]]:
    """A server of one answer after another, on the connections that clients open; each
    connection is closed after the last of them. Its address, and the numbers of the
    connections of its requests."""
    ports: list[int] = []
    left = list(answers)
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        number = opened
        try:
            while left and await reader.readuntil(b"\r\n\r\n"):
                ports.append(number)
                await left.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # our client has hung up
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=safe)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http{'s' if safe else ''}://localhost:{port}/", ports
        await connections.aclose()


async def send(url: str, method: str = "GET") -> exchange.UpstreamResponse:
    message = httpx.Request(method, url)
    return await exchange.send_request(
        connections.transport(private=True), message, streams=True
    )


async def read(url: str, method: str = "GET") -> bytes:
    answer = await send(url, method)
    try:
        return await answer.read_rest()
    finally:
        await answer.aclose()


def reader_of(answer: exchange.UpstreamResponse) -> StreamReader:
    stream = answer.response.extensions[BODY]
    assert isinstance(stream, Body)
    return stream.content


async def test_a_body_that_is_being_read_holds_no_request():
    message = httpx.Request("POST", "http://localhost", content=b"a long question")
    async with server(cut(chunked(TEXT), 97)) as (url, _):
        message.url = httpx.URL(url)
        references = [weakref.ref(message)]
        gc.disable()  # what is freed here is freed without it
        try:
            answer = await exchange.send_request(
                connections.transport(private=True), message, streams=True
            )
            references.append(weakref.ref(answer.response))
            del message
            answer.discard_head()
            assert [reference() for reference in references] == [None, None]
            assert await answer.read_rest() == TEXT
        finally:
            gc.enable()
            await answer.aclose()


@pytest.mark.filterwarnings("error")  # aiohttp warns of a loop that stands still
async def test_a_large_body_is_sent_whole_in_pieces():
    heads, bodies = [], []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        bodies.append(await reader.readexactly(len(LARGE)))
        writer.write(sized(b"Hello"))
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        message = httpx.Request("POST", f"http://localhost:{port}/", content=LARGE)
        transport = connections.transport(private=True)
        answer = await exchange.send_request(transport, message, streams=True)
        assert await answer.read_rest() == b"Hello"
        await answer.aclose()
        await connections.aclose()
    assert b"content-length: %d\r\n" % len(LARGE) in heads[0].lower()
    assert b"transfer-encoding" not in heads[0].lower()
    assert bodies == [LARGE]


# What comes


@pytest.mark.parametrize("size", [1, 2, 3, 7, 98, 1000, 100_000])
@pytest.mark.parametrize("framed", [sized, chunked, until_closed])
async def test_any_cut_of_the_answer_gives_the_same_bytes(
    framed: Callable[[bytes], bytes], size: int
):
    async with server(cut(framed(TEXT), size)) as (url, _):
        assert await read(url) == TEXT


@pytest.mark.parametrize("framed", [sized, chunked, until_closed])
async def test_a_packed_answer_is_unpacked(framed: Callable[[bytes], bytes]):
    answer = framed(gzip.compress(TEXT)).replace(
        b"OK\r\n", b"OK\r\nContent-Encoding: gzip\r\n", 1
    )
    async with server(cut(answer, 50)) as (url, _):
        assert await read(url) == TEXT


@pytest.mark.parametrize(
    "answer", [sized(b""), b"HTTP/1.1 204 No Content\r\n\r\n", chunked(b"")]
)
async def test_an_answer_may_have_no_body(answer: bytes):
    async with server(cut(answer, 100)) as (url, _):
        assert await read(url) == b""


async def test_each_read_gives_what_has_come_so_far():
    more = asyncio.Event()

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(b"")[:-5] + chunk(b"one ") + chunk(b"and ") + b"3\r\ntw")
        await more.wait()
        writer.write(b"o\r\n" + b"0\r\n\r\n")

    async with server(write) as (url, _):
        answer = await send(url)
        content = b""
        while content != b"one and tw":
            content += await answer.read()
        more.set()
        assert [await answer.read(), await answer.read()] == [b"o", b""]
        assert await answer.read() == b""
        await answer.aclose()


async def test_an_answer_over_tls(tmp_path: Path, monkeypatch: Any):
    ours, theirs = safe_contexts(tmp_path)
    monkeypatch.setattr(connections, "_ssl_context", lambda _: theirs)
    async with server(cut(chunked(TEXT), 7), safe=ours) as (url, _):
        assert await read(url) == TEXT


def safe_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server on localhost, and of a client that trusts it and no other."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    both = folder / "server.pem"
    both.write_bytes(certificate + secret)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(both)
    return ours, ssl.create_default_context(cadata=certificate.decode())


# How it ends


@pytest.mark.parametrize("framed", [sized, chunked])
async def test_content_before_a_truncation_is_not_lost(
    framed: Callable[[bytes], bytes],
):
    async with server(cut(framed(TEXT)[:-100], 100_000)) as (url, _):
        answer = await send(url)
        content = reader_of(answer)
        while content.exception() is None:  # it has all come, unread
            await asyncio.sleep(0)
        received = await answer.read()
        assert received == TEXT[: len(received)]
        assert len(received) >= len(TEXT) - 100
        with pytest.raises(ProviderDown):
            await answer.read()
        await answer.aclose()


async def test_an_invalid_chunk_is_one_of_our_errors():
    answer = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"one") + b"zz\r\n"
    async with server(cut(answer, 1000)) as (url, _):
        with pytest.raises(LLMError):
            await read(url)


@pytest.mark.parametrize("framed", [sized, chunked])
async def test_a_connection_read_to_its_end_is_used_again(
    framed: Callable[[bytes], bytes],
):
    answers = [cut(framed(TEXT), 1000)] * 3
    async with server(*answers) as (url, ports):
        assert [await read(url) for _ in answers] == [TEXT] * 3
    assert ports == [1, 1, 1]


async def test_a_connection_left_in_the_middle_is_not_used_again():
    answers = [cut(chunked(LARGE, 10_000), 100_000), cut(sized(TEXT), 1000)]
    async with server(*answers) as (url, ports):
        answer = await send(url)
        assert await answer.read()
        await answer.aclose()
        assert await read(url) == TEXT
    assert ports == [1, 2]


async def test_cancelling_a_read_loses_nothing():
    more = asyncio.Event()

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(b"")[:-5])
        await more.wait()
        writer.write(chunk(b"one") + b"0\r\n\r\n")

    async with server(write) as (url, _):
        answer = await send(url)
        reading = asyncio.ensure_future(answer.read())
        await asyncio.sleep(0)
        reading.cancel()
        more.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert [await answer.read(), await answer.read()] == [b"one", b""]
        await answer.aclose()


# Connections that are reused


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """As a host that closes an idle connection while a request is on its way."""
    writer.close()


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def keeping(seconds: int) -> Write:
    head = b"OK\r\nKeep-Alive: timeout=%d, max=100\r\n" % seconds
    return cut(sized(TEXT).replace(b"OK\r\n", head, 1), 100_000)


@pytest.mark.parametrize("closes", [hang_up, reset])
async def test_a_reused_connection_that_closes_is_replaced_by_a_fresh_one(
    closes: Write,
):
    ordinary = cut(sized(TEXT), 1000)
    async with server(ordinary, closes, ordinary) as (url, ports):
        assert await read(url, "POST") == TEXT
        assert await read(url, "POST") == TEXT
    assert ports == [1, 1, 2]


async def test_a_request_is_sent_again_once_and_no_more():
    ordinary = cut(sized(TEXT), 1000)
    async with server(ordinary, hang_up, hang_up) as (url, ports):
        assert await read(url, "POST") == TEXT
        with pytest.raises(ProviderDown):
            await read(url, "POST")
    assert ports == [1, 1, 2]


async def test_a_fresh_connection_that_closes_has_failed():
    async with server(hang_up, cut(sized(TEXT), 1000)) as (url, ports):
        with pytest.raises(ProviderDown):
            await read(url, "POST")
    assert ports == [1]


async def test_a_request_is_not_repeated_after_the_first_byte():
    async def begin(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-")
        await writer.drain()
        writer.close()

    async with server(cut(sized(TEXT), 1000), begin) as (url, ports):
        assert await read(url, "POST") == TEXT
        with pytest.raises(ProviderDown):
            await read(url, "POST")
    assert ports == [1, 1]


@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_request_that_was_worked_on_is_not_repeated(
    earlier: int, monkeypatch: pytest.MonkeyPatch
):
    """The host may bill it: a load balancer lost patience, a worker was killed."""
    monkeypatch.setattr(connections, "CLOSE_TIME", 0.0)
    ordinary = cut(sized(TEXT), 1000)
    async with server(*[ordinary] * earlier, hang_up, ordinary) as (url, ports):
        for _ in range(earlier):
            assert await read(url, "POST") == TEXT
        with pytest.raises(ProviderTimeout) as caught:
            await read(url, "POST")
    assert caught.value.code not in RETRIED_CODES
    assert re.fullmatch(
        r"The connection was closed after \d+(\.\d)? s of work\.", caught.value.detail
    )
    assert describe_connection_problem(caught.value.detail)
    assert ports == [1] * (earlier + 1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 4),
        ("max=100", 4),
        ("timeout=abc", 4),
        ("timeout=60, max=1000", 59),
        ("Timeout=5", 4),
        ("timeout=30", 29),
        ("timeout=3", 2),
        ("timeout=4", 2),
        ("timeout=1", 0),
        ("timeout=0", 0),
        ("timeout=99999999999999999999", 59),
    ],
)
def test_how_long_an_idle_connection_is_reused(header: str | None, seconds: float):
    assert connections.parse_idle_timeout(header) == seconds


async def test_a_host_may_limit_how_long_idle_connections_are_reused():
    answers = [keeping(60), keeping(60), keeping(1), keeping(1), keeping(1)]
    async with server(*answers) as (url, ports):
        for _ in answers:
            assert await read(url, "POST") == TEXT
    assert ports == [1, 2, 2, 3, 4]


# Slow peers


@pytest.mark.parametrize(
    ("text", "send_as"),
    [
        (LARGE, sized),
        (LARGE, until_closed),
        (LARGE, partial(chunked, size=100_000)),
        (LARGE[:1_000_000], partial(chunked, size=3)),
    ],
    ids=["sized", "until closed", "chunked", "in many chunks"],
)
async def test_an_unread_body_is_not_fetched(
    text: bytes, send_as: Callable[[bytes], bytes]
):
    answers = [cut(send_as(text), 100_000), cut(sized(LARGE), 100_000)]
    async with server(*answers) as (url, _):
        open_answer = await send(url)
        # While this one is read, all of the first could be fetched as well.
        assert await read(url) == LARGE
        content = reader_of(open_answer)
        assert not content.is_eof()
        assert content.total_bytes < 2 * 1024 * 1024
        assert await open_answer.read_rest() == text
        await open_answer.aclose()


async def test_the_rest_of_an_answer_is_read_while_the_next_one_comes():
    """The connection goes to the next one as soon as an answer has all come."""
    async with server(cut(sized(TEXT), 10_000), cut(sized(LARGE), 100_000)) as (
        url,
        ports,
    ):
        first = await send(url)
        while not reader_of(first).is_eof():
            await asyncio.sleep(0)
        second = await send(url)
        assert await first.read_rest() == TEXT
        assert await second.read_rest() == LARGE
        await first.aclose()
        await second.aclose()
    assert ports == [1, 1]


@pytest.mark.parametrize("is_closed_before", [False, True])
def test_connections_end_with_their_event_loop(
    thief: Recording, caplog: pytest.LogCaptureFixture, is_closed_before: bool
):
    """A program that calls `asyncio.run` does not know of our connections."""

    async def fetch() -> int:
        transport = connections.transport(private=True)
        answer = await transport.handle_async_request(httpx.Request("GET", thief.url))
        await answer.aread()
        if is_closed_before:
            await connections.aclose()
        return answer.status_code

    for _ in range(2):
        assert asyncio.run(fetch()) == 200
    gc.collect()
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []
