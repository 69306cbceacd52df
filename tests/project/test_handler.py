"""Django under ASGI: one call in one thread, and told of its beginning and its end."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncGenerator, Iterator
from io import BytesIO
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from conversations.access.admission import request_size
from project.server.django_handler import Handler

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[tuple[str, str]] = []  # what happened, and in which thread
closed: list[str] = []


def _note(what: str) -> None:
    seen.append((what, threading.current_thread().name))


def plain(request: HttpRequest) -> HttpResponse:
    _note("view")
    response = HttpResponse(request.body[::-1])
    response["X-Said"] = "é"
    response.set_cookie("a", "b")
    return response


def measured(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request_size(request)}")


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(BytesIO(b"x" * 200_000))


class _Endless(StreamingHttpResponse):
    def close(self) -> None:
        closed.append("stream")
        super().close()


def endless(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"first"
        await asyncio.get_running_loop().create_future()

    return _Endless(parts())


urlpatterns = [
    path(f"{view.__name__}/", view) for view in (plain, measured, broken, file, endless)
]


@pytest.fixture(autouse=True)
def _heard(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    seen.clear()
    closed.clear()

    def began(sender: Any, **signal: Any) -> None:
        _note("began")

    def ended(sender: Any, **signal: Any) -> None:
        _note("ended")

    request_started.connect(began)
    request_finished.connect(ended)
    yield
    request_started.disconnect(began)
    request_finished.disconnect(ended)


async def _ask(
    name: str, *messages: dict[str, Any], hangs_up: bool = False, headers: Any = ()
) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    waiting = list(messages) or [{"type": "http.request", "body": b""}]
    spoken = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        if not hangs_up:
            await asyncio.get_running_loop().create_future()
        await spoken.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)
        if message.get("body"):
            spoken.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/{name}/",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), *headers],
    }
    await Handler()(scope, receive, send)
    return told


@pytest.mark.parametrize("announced", [(), [(b"content-length", b"5")]])
async def test_the_size_of_a_body_is_what_was_read(announced: Any) -> None:
    _, body = await _ask(
        "measured",
        {"type": "http.request", "body": b"abc", "more_body": True},
        {"type": "http.request", "body": b"de"},
        headers=announced,
    )
    assert body["body"] == b"5"


async def test_all_of_a_request_happens_in_one_thread() -> None:
    start, body = await _ask(
        "plain",
        {"type": "http.request", "body": b"ab", "more_body": True},
        {"type": "http.request", "body": b"c"},
    )
    assert [what for what, _ in seen] == ["began", "view", "ended"]
    assert {thread.rpartition("_")[0] for _, thread in seen} == {"parley-django"}
    assert (start["status"], body["body"]) == (200, b"cba")
    names = [name for name, _ in start["headers"]]
    assert {b"X-Said", b"Set-Cookie"} <= set(names)


async def test_a_fault_is_an_answer_and_an_end() -> None:
    start, _ = await _ask("broken")
    assert start["status"] == 500
    assert [what for what, _ in seen] == ["began", "ended"]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
async def test_a_file_is_sent_whole_and_then_it_is_over() -> None:
    start, *bodies = await _ask("file")
    assert start["status"] == 200
    assert b"".join(each.get("body", b"") for each in bodies) == b"x" * 200_000
    assert [what for what, _ in seen] == ["began", "ended"]


async def test_who_hangs_up_ends_the_stream() -> None:
    told = await _ask("endless", hangs_up=True)
    assert told[1]["body"] == b"first"
    assert closed == ["stream"]
    assert [what for what, _ in seen] == ["began", "ended"]


async def test_who_hangs_up_while_sending_is_not_answered() -> None:
    assert await _ask("plain", {"type": "http.disconnect"}) == []
    assert seen == []


@pytest.mark.parametrize("announced", [b"11", b"0"])
async def test_what_is_too_long_is_refused_as_soon_as_that_is_seen(
    settings: Any, announced: bytes
) -> None:
    settings.MAX_REQUEST_SIZE = 10
    piece = {"type": "http.request", "body": b"123456", "more_body": True}
    headers = [(b"content-length", announced)]
    pieces = [piece] * (0 if announced == b"11" else 2)
    start, body = await _ask("plain", *pieces, headers=headers)
    assert start["status"] == 413
    text = b"Request Entity Too Large: A request may be at most 10 bytes long."
    assert body["body"] == text
    assert seen == []


PACKED = {
    b"gzip": gzip.compress(b"abc" * 1_000),
    b"deflate": zlib.compress(b"abc" * 1_000),
    b"identity": b"abc" * 1_000,
}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_packed_body_is_unpacked_as_it_comes(encoding: bytes, size: int):
    body = PACKED[encoding]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    messages = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    last = {"type": "http.request", "body": b""}
    headers = [
        (b"content-encoding", encoding),
        (b"content-length", b"%d" % len(body)),
    ]
    told = await _ask("plain", *messages, last, headers=headers)
    assert told[1]["body"] == (b"abc" * 1_000)[::-1]


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        (b"br", b"x", 415),
        (b"gzip", b"x", 400),
        (b"gzip", gzip.compress(b"x", mtime=0)[:-2], 400),
        (b"gzip", gzip.compress(b"x" * 50_000_000), 413),
        (b"gzip", gzip.compress(b"x" * 600_000) * 2, 413),
    ],
)
async def test_a_body_that_cannot_be_unpacked_is_refused(
    encoding: bytes, body: bytes, status: int
):
    message = {"type": "http.request", "body": body}
    headers = [(b"content-encoding", encoding)]
    told = await _ask("plain", message, headers=headers)
    assert told[0]["status"] == status
    assert seen == []
