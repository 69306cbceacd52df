"""The HTTP client, against respx for contents and a real server for disconnects."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import pytest
import respx
from django.test import override_settings

from llm.errors import (
    BadRequest,
    BadResponse,
    InvalidKey,
    LLMError,
    NoFreeConnection,
    ProviderDown,
    ProviderTimeout,
    RateLimited,
)
from llm.http import client, connections, exchange, streamed_deltas
from llm.http.client import ProviderCall, stream
from llm.http.streamed_deltas import MAX_CHUNK, StreamedDeltas
from llm.provider import Endpoint, Provider
from llm.wire.deltas import Delta, FinishDelta, StartDelta, TextDelta
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import user_message
from llm.wire.request import Request
from llm.wire.sse import ServerSentEvent

URL = "https://models.test/v1/say"
KEY = "sk-planted-secret"
PROMPT = "planted prompt"


class SayDecoder:
    ended = False

    def feed(self, event: ServerSentEvent) -> Iterable[Delta]:
        match event.json():
            case {"start": id}:
                yield StartDelta(id)
            case {"text": text}:
                yield TextDelta(0, text)
            case {"texts": texts}:
                yield from (TextDelta(0, text) for text in texts)
            case {"error": message}:
                raise RateLimited(detail=message)
            case {"odd": odd}:
                yield odd["no such key"]
            case "end":
                self.ended = True
                yield FinishDelta("stop")

    def close(self) -> Iterable[Delta]:
        if not self.ended:
            raise ProviderDown(detail="no end")
        return ()


class SayCodec:
    name = "say"

    def path(self, request: Request) -> str:
        return "/say"

    def encode(self, request: Request) -> dict[str, Any]:
        if not request.items:
            raise KeyError("items")
        return {"model": request.model, **request.extra}

    def decoder(self) -> SayDecoder:
        return SayDecoder()

    def decode(self, body: bytes) -> list[Delta]:
        return [TextDelta(0, json.loads(body)["text"]), FinishDelta("stop")]

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return RateLimited(detail=f"{status} {len(body)}")


PROVIDER = Provider(
    name="say",
    label="Say",
    base_url="https://models.test/v1",
    codecs={"say": SayCodec()},
    headers={"X-Version": "1"},
)
SELF = Provider(name="demo", label="Demo", base_url="self:/demo", codecs={})


def endpoint(base_url: str = "", **fields: Any) -> Endpoint:
    options = {"provider": PROVIDER, "codec": SayCodec(), "api_key": KEY, **fields}
    return Endpoint(base_url=base_url, **options)


def request(**fields: Any) -> Request:
    return Request(model="m", items=[user_message(PROMPT)], **fields)


def frames(*values: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(v).encode() for v in values)


ANSWER = frames({"start": "r1"}, {"text": "Hel"}, {"text": "lo"}, "end")


def text_in(batches: Iterable[list[Delta]]) -> str:
    return "".join(d.text for b in batches for d in b if isinstance(d, TextDelta))


async def listen(*args: Any) -> list[list[Delta]]:
    async with aclosing(stream(*args)) as batches:
        return [batch async for batch in batches]


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def provider() -> Iterable[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router


class Chunks(httpx.AsyncByteStream):
    """A body that comes in the given pieces; an exception among them is raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def aclose(self) -> None:
        self.closed = True


# What is sent


async def test_sends_the_codecs_body_with_every_header(provider: respx.MockRouter):
    route = provider.post(URL).respond(200, content=ANSWER)
    headers = {"X-Team": "blue"}
    await listen(endpoint(headers=headers), request(extra={"n": 1}))
    sent = route.calls.last.request
    assert json.loads(sent.content) == {"model": "m", "n": 1}
    assert sent.headers["Authorization"] == f"Bearer {KEY}"
    assert sent.headers["Accept"] == "text/event-stream"
    assert (sent.headers["X-Version"], sent.headers["X-Team"]) == ("1", "blue")


async def test_a_cookie_of_one_account_is_not_shown_by_the_next(
    provider: respx.MockRouter,
):
    cookie = {"Set-Cookie": "account=one; Path=/"}
    route = provider.post(URL).respond(200, content=ANSWER, headers=cookie)
    await listen(endpoint(), request())
    await listen(endpoint(api_key="sk-other"), request())
    assert "Cookie" not in route.calls.last.request.headers


@pytest.mark.parametrize("key", ["sk-\n", "sk-…", "sk-\x00", " sk-1"])
async def test_a_key_no_header_can_carry_is_refused_unsaid(key: str):
    with pytest.raises(InvalidKey) as caught:
        await listen(endpoint(api_key=key), request())
    assert "sk-" not in str(caught.value) + caught.value.detail


class QuotingCodec(SayCodec):
    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> LLMError:
        return BadRequest(detail=body.decode())


async def test_a_key_that_the_host_quotes_is_masked_in_the_error(
    provider: respx.MockRouter,
):
    secrets = {"X-Partner": "partner-secret"}
    text = f"Bad field; sent {KEY}, partner-secret, Bearer eyJhbGciOiJIUzI1NiJ9.e30"
    provider.post(URL).respond(400, content=text)
    with pytest.raises(BadRequest) as caught:
        await listen(endpoint(codec=QuotingCodec(), secret_headers=secrets), request())
    said = caught.value.host_report["message"]
    assert said.startswith("Bad field; sent ")
    assert not any(each in said for each in (KEY, "partner-secret", "eyJhbG"))


@pytest.mark.parametrize("value", ["half \ud83d", 2**64, {1, 2}])
async def test_a_request_that_json_cannot_carry_is_a_bad_request(value: Any):
    with pytest.raises(BadRequest, match="JSON cannot represent"):
        await listen(endpoint(), request(extra={"x": value}))


async def test_a_request_that_the_codec_cannot_encode_is_a_bad_request():
    with pytest.raises(BadRequest, match="cannot represent"):
        await listen(endpoint(), Request(model="m", items=[]))


async def test_the_demo_is_found_at_this_servers_own_address(
    provider: respx.MockRouter, settings: Any
):
    settings.SELF_URL = "http://127.0.0.1:8123"
    route = provider.post("http://127.0.0.1:8123/demo/say")
    route.respond(200, content=ANSWER)
    await listen(endpoint(provider=SELF), request())
    await listen(endpoint("http://127.0.0.1:8123/demo", provider=SELF), request())
    assert route.call_count == 2


# What comes back


async def test_one_list_for_each_read(provider: respx.MockRouter):
    body = Chunks(b": waiting\n\n", ANSWER[:50], ANSWER[50:53], ANSWER[53:])
    provider.post(URL).mock(return_value=httpx.Response(200, stream=body))
    batches = await listen(endpoint(), request())
    assert [len(batch) for batch in batches] == [2, 2]
    assert text_in(batches) == "Hello"
    assert body.closed


async def turns(counted: list[int]) -> None:
    """Counts turns of the event loop."""
    while True:
        counted[0] += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", [frames(*[{"text": "x"}] * 20_000, "end")])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_other_tasks_run_during_a_read_of_many_frames(
    provider: respx.MockRouter, answer: bytes, end: bytes
):
    body = answer.replace(b"\n", end)
    provider.post(URL).respond(content=body)
    counted, seen, batches = [0], [], []
    ticking = asyncio.create_task(turns(counted))
    async with aclosing(stream(endpoint(), request())) as answered:
        async for deltas in answered:
            batches.append(deltas)
            seen.append(counted[0])
    ticking.cancel()
    assert text_in(batches) == "x" * 20_000
    assert len(batches) >= len(body) / MAX_CHUNK
    assert max(map(len, batches)) <= MAX_CHUNK / len(b'data: {"text":"x"}')
    assert len(set(seen)) == len(seen)


async def test_other_tasks_run_during_an_event_of_many_deltas(
    provider: respx.MockRouter,
):
    provider.post(URL).respond(content=frames({"texts": ["x"] * 5_000}, "end"))
    counted, seen, batches = [0], [], []
    ticking = asyncio.create_task(turns(counted))
    async with aclosing(stream(endpoint(), request())) as answered:
        async for deltas in answered:
            batches.append(deltas)
            seen.append(counted[0])
    ticking.cancel()
    assert text_in(batches) == "x" * 5_000
    assert max(map(len, batches)) == client.MAX_DELTAS
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", ""])
async def test_a_stream_is_known_by_its_first_byte(
    provider: respx.MockRouter, content_type: str
):
    body = Chunks(b"\xef\xbb\xbf", b"\n", *(bytes([byte]) for byte in ANSWER))
    answer = httpx.Response(200, stream=body, headers={"Content-Type": content_type})
    provider.post(URL).mock(return_value=answer)
    assert text_in(await listen(endpoint(), request())) == "Hello"


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
@pytest.mark.parametrize(
    "before", [b"", b"\xef\xbb\xbf", b": hello\n\n", b"\ndata:\n\n"]
)
async def test_an_unrequested_stream_is_decoded(
    provider: respx.MockRouter, before: bytes, content_type: str
):
    answer = httpx.Response(
        200, content=before + ANSWER, headers={"Content-Type": content_type}
    )
    provider.post(URL).mock(return_value=answer)
    [deltas] = await listen(endpoint(), request(stream=False))
    assert text_in([deltas]) == "Hello"
    assert deltas[-1] == FinishDelta("stop")


async def test_an_unrequested_stream_that_breaks_off_is_a_lost_connection(
    provider: respx.MockRouter,
):
    answer = httpx.Response(200, content=frames({"text": "Hel"}))
    provider.post(URL).mock(return_value=answer)
    with pytest.raises(ProviderDown):
        await listen(endpoint(), request(stream=False))


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_json_is_decoded_whole(
    provider: respx.MockRouter, streams: bool, content_type: str
):
    body = Chunks(b"\n ", b'{"text"', b':"Hello"}')
    answer = httpx.Response(200, stream=body, headers={"Content-Type": content_type})
    provider.post(URL).mock(return_value=answer)
    batches = await listen(endpoint(), request(stream=streams))
    assert batches == [[TextDelta(0, "Hello"), FinishDelta("stop")]]


async def test_a_call_records_its_facts(provider: respx.MockRouter):
    headers = {"request-id": "req_1"}
    provider.post(URL).respond(200, content=ANSWER, headers=headers)
    call = ProviderCall()
    await listen(endpoint(), request(), call)
    assert call.started_at
    assert call.ttft is not None
    assert call.latency is not None
    assert 0 <= call.ttft <= call.latency
    assert (call.http_status, call.request_id, call.error) == (200, "req_1", None)


async def test_a_call_without_content_has_no_time_to_it(provider: respx.MockRouter):
    provider.post(URL).respond(200, content=frames({"start": "r"}, {"text": ""}, "end"))
    call = ProviderCall()
    await listen(endpoint(), request(), call)
    assert call.ttft is None


# Errors


async def test_an_error_status_is_the_codecs_to_read(provider: respx.MockRouter):
    provider.post(URL).respond(429, content=b"slow", headers={"x-request-id": "r9"})
    call = ProviderCall()
    with pytest.raises(RateLimited) as caught:
        await listen(endpoint(), request(), call)
    error = caught.value
    assert error.detail == "429 4"
    assert (error.provider, error.upstream_status, error.request_id) == (
        "say",
        429,
        "r9",
    )
    assert call.error is error
    assert call.http_status == 429


async def test_of_an_error_no_more_than_its_first_megabyte_is_read(
    provider: respx.MockRouter,
):
    pieces = [b"x" * 65536] * 17 + [AssertionError("read on")]
    provider.post(URL).mock(return_value=httpx.Response(500, stream=Chunks(*pieces)))
    with pytest.raises(RateLimited) as caught:
        await listen(endpoint(), request())
    assert caught.value.detail == f"500 {exchange.MAX_ERROR_BODY}"


async def test_an_event_of_any_length_does_not_fill_the_memory(
    provider: respx.MockRouter,
):
    pieces = [b"data: ", *[b"x" * 65536] * 1025, AssertionError("read on")]
    provider.post(URL).mock(return_value=httpx.Response(200, stream=Chunks(*pieces)))
    with pytest.raises(BadResponse) as caught:
        await listen(endpoint(), request())
    assert caught.value.detail == "An event of the answer is too large."


async def test_an_error_with_a_truncated_body_keeps_its_status(
    provider: respx.MockRouter,
):
    body = Chunks(b"half", httpx.ReadError("gone"))
    provider.post(URL).mock(return_value=httpx.Response(503, stream=body))
    with pytest.raises(RateLimited, match="rate limit") as caught:
        await listen(endpoint(), request())
    assert caught.value.detail == "503 0"


async def test_an_error_inside_the_stream_keeps_earlier_text(
    provider: respx.MockRouter,
):
    content = frames({"text": "Hel"}, {"error": "busy"}, {"text": "lo"})
    provider.post(URL).respond(200, content=content)
    async with aclosing(stream(endpoint(), request())) as batches:
        assert text_in([await anext(batches)]) == "Hel"
        with pytest.raises(RateLimited):
            await anext(batches)


@pytest.mark.parametrize("content", [frames({"odd": {}}), b"data: {not json\n\n"])
async def test_an_undecodable_answer_is_a_bad_response(
    provider: respx.MockRouter, content: bytes
):
    provider.post(URL).respond(200, content=content)
    with pytest.raises(BadResponse):
        await listen(endpoint(), request())


async def test_a_web_page_is_no_answer(provider: respx.MockRouter):
    provider.post(URL).respond(200, html="<!doctype html><p>Hello</p>")
    with pytest.raises(BadResponse, match="web page"):
        await listen(endpoint(), request())


async def test_a_redirect_is_not_followed(provider: respx.MockRouter):
    provider.post(URL).respond(307, headers={"Location": "https://elsewhere.test/"})
    with pytest.raises(BadResponse, match="redirects to another"):
        await listen(endpoint(), request())


async def test_an_end_without_the_last_word_is_a_loss(provider: respx.MockRouter):
    provider.post(URL).respond(200, content=frames({"text": "Hel"}))
    with pytest.raises(ProviderDown):
        await listen(endpoint(), request())


async def test_a_last_event_without_its_blank_line_counts(provider: respx.MockRouter):
    provider.post(URL).respond(200, content=ANSWER.rstrip(b"\n"))
    assert FinishDelta("stop") in (await listen(endpoint(), request()))[-1]


async def test_a_connection_lost_after_the_last_word_is_no_loss(
    provider: respx.MockRouter,
):
    body = Chunks(ANSWER, httpx.ReadError("reset"))
    provider.post(URL).mock(return_value=httpx.Response(200, stream=body))
    assert text_in(await listen(endpoint(), request())) == "Hello"


@pytest.mark.parametrize(
    ("raised", "ours"),
    [
        (httpx.ConnectError("no such host"), ProviderDown),
        (httpx.ReadError("reset"), ProviderDown),
        (httpx.RemoteProtocolError("what?"), ProviderDown),
        (httpx.ConnectTimeout("slow"), ProviderTimeout),
        (httpx.PoolTimeout("full"), ProviderTimeout),
        (OSError("no route"), ProviderDown),
    ],
)
async def test_every_network_error_is_ours(
    provider: respx.MockRouter, raised: Exception, ours: type[LLMError]
):
    provider.post(URL).mock(side_effect=raised)
    with pytest.raises(ours) as caught:
        await listen(endpoint(), request())
    assert caught.value.__cause__ is raised


# Addresses


@pytest.mark.parametrize(
    "base_url",
    [
        "http://127.0.0.1:9",
        "http://localhost:9",
        "http://127.1:9",
        "http://2130706433:9",
        "http://0x7f.1:9",
        "http://0.0.0.0:9",
        "http://10.0.0.7",
        "http://100.64.0.1",
        "http://169.254.169.254/latest",
        "http://[::1]:9",
        "http://[::ffff:127.0.0.1]:9",
        "http://[fe80::1]:9",
        "http://[64:ff9b::7f00:1]:9",
    ],
)
async def test_our_own_network_is_out_of_bounds(base_url: str):
    with pytest.raises(BadRequest, match="private network"):
        await listen(endpoint(base_url), request())


@pytest.mark.parametrize("base_url", ["models", "ftp://models.test", "http://", "h:[x"])
async def test_an_invalid_address_is_reported(base_url: str):
    with pytest.raises(BadRequest, match="not a URL"):
        await listen(endpoint(base_url), request())


# How it ends: a real server

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def server(answer: Handler) -> AsyncIterator[str]:
    """The base URL of a server that reads a request and then calls the given
    function."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        await reader.readexactly(size)
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"


def local(base_url: str) -> Endpoint:
    return endpoint(base_url, allow_private_network=True)


async def hang(reader: asyncio.StreamReader) -> None:
    """Until the other side hangs up."""
    await reader.read()


@pytest.mark.parametrize("window", [31, 15, -15])
async def test_others_run_while_a_packed_answer_is_unpacked(window: int):
    body = b"\n" * 2_000_000 + frames({"text": "x" * 4_000_000}, "end")
    name = b"gzip" if window > 15 else b"deflate"

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(wbits=window)
        packed = packer.compress(body) + packer.flush()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(packed))
        writer.write(b"Content-Encoding: %b\r\n\r\n" % name + packed)
        await writer.drain()

    counted = [0]
    async with server(answer) as url:
        ticking = asyncio.create_task(turns(counted))
        assert text_in(await listen(local(url), request())) == "x" * 4_000_000
        ticking.cancel()
    assert counted[0] >= len(body) / 65_536


async def test_a_whole_answer_over_a_real_connection():
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED)
        for byte in ANSWER:
            writer.write(chunk(bytes([byte])))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with server(answer) as url:
        assert text_in(await listen(local(url), request())) == "Hello"


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, br"])
async def test_an_unrequested_content_encoding_is_named(encoding: bytes, streams: bool):
    match = "unsupported content encoding .*" + encoding.decode()[-2:]

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        head = HEAD + b"Content-Encoding: " + encoding + b"\r\n"
        writer.write(head + b"Content-Length: 4\r\n\r\n\x8b\x00\x80!")

    async with server(answer) as url:
        with pytest.raises(BadResponse, match=match):
            await listen(local(url), request(stream=streams))


@pytest.mark.parametrize("status", [b"500 Oops", b"429 Slow"])
async def test_a_compressed_error_keeps_its_status(status: bytes):
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 " + status + b"\r\nContent-Encoding: br\r\n"
        writer.write(head + b"Content-Length: 4\r\n\r\n\x8b\x00\x80!")

    async with server(answer) as url:
        with pytest.raises(RateLimited) as caught:
            await listen(local(url), request())
    assert caught.value.detail == f"{status[:3].decode()} 0"


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200",
        HEAD + b"Content-Length: 9999\r\n\r\n" + frames({"text": "Hel"}),
        CHUNKED + chunk(frames({"text": "Hel"})),
        CHUNKED + b"ffff\r\ndata: ",
    ],
)
async def test_a_connection_cut_anywhere_is_the_provider_down(start: bytes):
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(start)

    async with server(answer) as url:
        with pytest.raises(ProviderDown) as caught:
            await listen(local(url), request())
    error = caught.value
    assert KEY not in repr(error) + error.detail
    assert PROMPT not in repr(error) + error.detail


@pytest.mark.parametrize("piece", [b"x" * 10_000, b"data: 1\n" * 1_000])
@pytest.mark.parametrize("wants_frames", [False, True])
async def test_an_endless_event_is_read_up_to_a_limit(
    provider: respx.MockRouter,
    monkeypatch: pytest.MonkeyPatch,
    piece: bytes,
    wants_frames: bool,
):
    monkeypatch.setattr(streamed_deltas, "MAX_BODY", 100_000)
    count = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal count
        while True:
            count += 1
            yield piece

    provider.post(URL).mock(side_effect=[httpx.Response(200, content=pieces())])
    answer = await exchange.send_request(
        connections.transport(private=False), httpx.Request("POST", URL), streams=True
    )
    forwarded = ForwardedBody(
        api="say", fields={}, convert=lambda _: None, wants_frames=wants_frames
    )
    streamed = StreamedDeltas(answer, SayDecoder(), await answer.read(), forwarded)

    async def read_to_end() -> None:
        while await streamed.read() is not None:
            assert count < 20

    with pytest.raises(BadResponse, match="invalid response"):
        await read_to_end()
    await answer.aclose()


async def test_a_reply_that_is_not_http_is_a_bad_response():
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.test ESMTP\r\n\r\n")

    async with server(answer) as url:
        with pytest.raises(BadResponse):
            await listen(local(url), request())


async def test_a_closed_port_is_provider_down():
    async with server(hang) as url:
        pass
    with pytest.raises(ProviderDown):
        await listen(local(url), request())


@pytest.mark.parametrize(
    ("limit", "start", "text_in"),
    [
        ("FIRST_BYTE", b"", "No answer within"),
        ("FIRST_BYTE", CHUNKED, "No answer within"),
        ("IDLE", CHUNKED + chunk(frames({"text": "Hel"})), "Silent for"),
        ("TOTAL", CHUNKED + chunk(frames({"text": "Hel"})), "Not finished within"),
    ],
)
async def test_each_timeout_disconnects_and_is_named(
    limit: str, start: bytes, text_in: str
):
    hung_up = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(start)
        await hang(reader)
        hung_up.set()

    async with server(answer) as url:
        with (
            override_settings(**{f"LLM_{limit}_TIMEOUT": 0.05}),
            pytest.raises(ProviderTimeout) as caught,
        ):
            await listen(local(url), request())
        await hung_up.wait()
    assert caught.value.detail.startswith(text_in)


async def test_the_prompt_of_a_request_that_timed_out_may_cost():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        await hang(reader)

    call = ProviderCall()
    async with server(answer) as url:
        with (
            override_settings(LLM_FIRST_BYTE_TIMEOUT=0.05),
            pytest.raises(ProviderTimeout),
        ):
            await listen(local(url), request(extra={"filler": "x" * 400}), call)
    assert call.http_status is None
    assert call.prompt_tokens > 100


async def test_the_prompt_of_a_request_that_was_left_unanswered_may_cost():
    received = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        received.set()
        await hang(reader)

    sent, waiting = ProviderCall(), ProviderCall()
    more = request(extra={"filler": "x" * 400})
    with override_settings(LLM_MAX_CONNECTIONS=1):
        async with server(answer) as url:
            calls = [
                asyncio.ensure_future(listen(local(url), more, call))
                for call in (sent, waiting)
            ]
            await received.wait()
            while not connections.slots().waiting:
                await asyncio.sleep(0)
            for call in reversed(calls):
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    assert sent.prompt_tokens > 100
    assert waiting.prompt_tokens == 0  # it was never sent


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"]
)
async def test_the_prompt_of_a_request_that_failed_costs_nothing(start: bytes):
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(start)

    call = ProviderCall()
    async with server(answer) as url:
        with pytest.raises(LLMError):
            await listen(local(url), request(), call)
    assert call.prompt_tokens == 0


async def test_a_full_pool_of_connections_is_our_own_error():
    """It is no fact about the provider, which got no request."""
    busy = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(CHUNKED)
        busy.set()
        await hang(reader)

    with override_settings(LLM_MAX_CONNECTIONS=1, LLM_CONNECTION_WAIT=0.05):
        async with server(answer) as url:
            first, second = ProviderCall(), ProviderCall()
            reading = asyncio.ensure_future(listen(local(url), request(), first))
            await busy.wait()
            with pytest.raises(NoFreeConnection) as caught:
                await listen(local(url), request(), second)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
    assert caught.value.provider == ""
    assert (first.has_slot, second.has_slot) == (True, False)
    assert second.started_at == 0  # no request that a row would record


async def test_a_waiting_request_gets_the_next_free_connection():
    busy, free = asyncio.Event(), asyncio.Event()
    request_count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        nonlocal request_count
        request_count += 1
        writer.write(CHUNKED)
        busy.set()
        await free.wait()
        writer.write(chunk(ANSWER))
        writer.write(b"0\r\n\r\n")

    with override_settings(LLM_MAX_CONNECTIONS=1):
        async with server(answer) as url:
            first = asyncio.ensure_future(listen(local(url), request()))
            await busy.wait()
            second = asyncio.ensure_future(listen(local(url), request()))
            while not connections.slots().waiting:
                await asyncio.sleep(0)
            assert request_count == 1
            free.set()
            assert text_in(await first) == text_in(await second) == "Hello"
    assert request_count == 2


async def test_a_connection_is_free_again_whatever_became_of_the_request():
    with override_settings(LLM_MAX_CONNECTIONS=1, LLM_CONNECTION_WAIT=0.05):
        for _ in range(2):
            with pytest.raises(ProviderDown):
                await listen(local("http://127.0.0.1:1"), request())


async def test_closing_the_generator_hangs_up():
    hung_up = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(CHUNKED + chunk(frames({"text": "Hel"})))
        await hang(reader)
        hung_up.set()

    call = ProviderCall()
    async with server(answer) as url:
        async with aclosing(stream(local(url), request(), call)) as batches:
            assert text_in([await anext(batches)]) == "Hel"
        await hung_up.wait()
    assert call.latency is not None
    assert call.error is None


@pytest.mark.parametrize("start", [b"", CHUNKED, CHUNKED + chunk(frames("x"))])
async def test_cancelling_hangs_up(start: bytes):
    requested, hung_up = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(start)
        await writer.drain()
        requested.set()
        await hang(reader)
        hung_up.set()

    async with server(answer) as url:
        listening = asyncio.ensure_future(listen(local(url), request()))
        await requested.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        await hung_up.wait()


async def test_closing_the_client_ends_what_streams():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(CHUNKED + chunk(frames({"text": "Hel"})))
        await hang(reader)

    async with (
        server(answer) as url,
        aclosing(stream(local(url), request())) as batches,
    ):
        await anext(batches)
        await client.aclose()
        with pytest.raises(ProviderDown):
            await anext(batches)


async def test_a_connection_is_used_again():
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        nonlocal connections
        connections += 1
        length = b"Content-Length: %d\r\n\r\n" % len(ANSWER)
        writer.write(HEAD + length + ANSWER)
        while await reader.read(65536):
            writer.write(HEAD + length + ANSWER)

    async with server(answer) as url:
        await listen(local(url), request())
        await listen(local(url), request())
        await client.aclose()
    assert connections == 1


async def test_a_stale_pooled_connection_is_no_failure():
    """The server's farewell arrives while the next request is about to be written."""

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)

    async with server(answer) as url:
        for _ in range(5):
            assert text_in(await listen(local(url), request())) == "Hello"


def test_every_event_loop_has_a_client_of_its_own():
    async def once() -> str:
        async with server(one_answer) as url:
            try:
                return text_in(await listen(local(url), request()))
            finally:
                await client.aclose()

    async def one_answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER)

    assert [asyncio.run(once()), asyncio.run(once())] == ["Hello", "Hello"]


def test_no_repr_shows_the_key():
    assert KEY not in repr(endpoint(headers={"X-Key": KEY}))
