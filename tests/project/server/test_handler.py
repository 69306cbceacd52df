"""Django under ASGI: one call in one thread, with its start and end signals."""

from __future__ import annotations

import asyncio
import contextvars
import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from io import BytesIO
from itertools import chain, repeat
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import InterfaceError, OperationalError
from django.http import (
    FileResponse,
    HttpRequest,
    HttpResponse,
    JsonResponse,
    StreamingHttpResponse,
)
from django.test import Client
from django.urls import path

from conversations.access.admission import request_size
from conversations.models import AccessToken
from conversations.models.access_token import AccessTokenQuerySet
from llm.concurrency.thread_lending import (
    lend_thread,
    lend_thread_or_refuse,
    server_lend,
)
from llm.errors import RateLimited
from project.server.django_handler import Handler
from project.server.request_threads import THREADS

pytestmark = pytest.mark.django_db(transaction=True)

seen: list[tuple[str, str]] = []  # what happened, and in which thread
closed: list[str] = []
events: list[threading.Event] = []
arrived = threading.Semaphore(0)


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


def described(request: HttpRequest, rest: str = "") -> JsonResponse:
    return JsonResponse(
        {
            "path": request.path,
            "query": request.GET["q"],
            "cookies": request.COOKIES,
            "twice": request.headers["x-twice"],
            "forged": request.headers.get("x-forged"),
            "address": request.META["REMOTE_ADDR"],
            "url": request.build_absolute_uri(),
        }
    )


def waiting(request: HttpRequest) -> HttpResponse:
    """Waits for a host, which answers when its event is set."""
    with lend_thread():
        return held(request)


def held(request: HttpRequest) -> HttpResponse:
    arrived.release()
    assert events[int(request.GET["q"])].wait(30)
    return HttpResponse("late")


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(BytesIO(b"x" * 200_000))


class _Endless(StreamingHttpResponse):
    def close(self) -> None:
        closed.append("stream")
        super().close()


def endless(request: HttpRequest) -> StreamingHttpResponse:
    return _Endless(chain([b"first"], repeat(b"more")))


urlpatterns = [
    path(f"{view.__name__}/", view)
    for view in (plain, measured, broken, file, endless, waiting, held)
]
urlpatterns += [
    path("described/<rest>", described),
    path("readyz", held),
    path("healthz", plain),
    path("metrics", plain),
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


async def _send_request(
    name: str,
    *messages: dict[str, Any],
    hangs_up: bool = False,
    fails: type[BaseException] | None = None,
    headers: Any = (),
    handler: Handler | None = None,
    **scope_values: Any,
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
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
        if fails:
            raise fails
        sent.append(message)
        if message.get("body"):
            spoken.set()

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/{name}/",
        "query_string": b"",
        "client": ("192.0.2.7", 7),
        "headers": [(b"host", b"127.0.0.1"), *headers],
        **scope_values,
    }
    await (handler or Handler())(scope, receive, send)
    return sent


async def _begin(handler: Handler, view: str, count: int) -> list[asyncio.Task[Any]]:
    """Requests that have arrived at a view that waits for an event each."""
    events[:] = [threading.Event() for _ in range(count)]
    tasks = [
        asyncio.create_task(
            _send_request(view, handler=handler, query_string=b"q=%d" % number)
        )
        for number in range(count)
    ]
    for _ in tasks:
        assert await asyncio.to_thread(arrived.acquire, timeout=30)
    return tasks


async def test_requests_that_wait_for_hosts_keep_no_other_waiting() -> None:
    handler = Handler()
    tasks = await _begin(handler, "waiting", 2 * THREADS)
    async with asyncio.timeout(30):
        start, _ = await _send_request("plain", handler=handler)
    assert start["status"] == 200
    for event in events:
        event.set()
    for _, late in await asyncio.gather(*tasks):
        assert late["body"] == b"late"


async def test_a_request_stands_behind_whichever_ends_first() -> None:
    handler = Handler()
    for _ in range(2):  # the places of the first ones are given back
        tasks = await _begin(handler, "held", THREADS)
        last = asyncio.create_task(_send_request("plain", handler=handler))
        events[-1].set()
        async with asyncio.timeout(30):
            start, _ = await last
        assert start["status"] == 200
        for event in events:
            event.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
async def test_probes_and_metrics_stand_behind_no_request_and_not_behind_each_other(
    path: str,
) -> None:
    handler = Handler()
    tasks = await _begin(handler, "held", THREADS)
    events.extend(threading.Event() for _ in range(THREADS))
    for number in range(THREADS, 2 * THREADS):  # the database hangs
        query = b"q=%d" % number
        probe = _send_request(
            "held", handler=handler, path="/readyz", query_string=query
        )
        tasks.append(asyncio.create_task(probe))
        assert await asyncio.to_thread(arrived.acquire, timeout=30)
    async with asyncio.timeout(30):
        start, _ = await _send_request("plain", handler=handler, path=path)
    assert start["status"] == 200
    for event in events:
        event.set()
    await asyncio.gather(*tasks)


async def test_more_than_may_wait_for_hosts_are_refused_or_keep_their_place() -> None:
    def find_place() -> bool:
        server_lend.set(lambda: nullcontext(False))
        with lend_thread() as is_lent:
            return is_lent

    def ask() -> None:
        server_lend.set(lambda: nullcontext(False))
        with lend_thread_or_refuse():
            raise AssertionError

    assert not contextvars.copy_context().run(find_place)
    with pytest.raises(RateLimited):
        contextvars.copy_context().run(ask)
    with lend_thread_or_refuse():  # outside of a server nothing is lent
        pass


@pytest.mark.parametrize("announced", [(), [(b"content-length", b"5")]])
async def test_the_size_of_a_body_is_what_was_read(announced: Any) -> None:
    _, body = await _send_request(
        "measured",
        {"type": "http.request", "body": b"abc", "more_body": True},
        {"type": "http.request", "body": b"de"},
        headers=announced,
    )
    assert body["body"] == b"5"


async def test_the_request_is_the_client_s() -> None:
    headers = [(b"cookie", b"a=1"), (b"x_forged", b"no"), (b"x-twice", b"1")]
    headers += [(b"x-twice", "é".encode("latin-1")), (b"cookie", b"b=2")]
    _, body = await _send_request(
        "described",
        headers=headers,
        path="/described/%ü",
        query_string=b"q=%C3%BC",
        scheme="https",
    )
    assert json.loads(body["body"]) == {
        "path": "/described/%ü",
        "query": "ü",
        "cookies": {"a": "1", "b": "2"},
        "twice": "1,é",
        "forged": None,
        "address": "192.0.2.7",
        "url": "https://127.0.0.1/described/%25%C3%BC?q=%C3%BC",
    }


async def test_all_of_a_request_happens_in_one_thread() -> None:
    start, body = await _send_request(
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
    start, _ = await _send_request("broken")
    assert start["status"] == 500
    assert [what for what, _ in seen] == ["began", "ended"]


async def test_a_file_is_sent_whole_and_then_it_is_over() -> None:
    start, *bodies = await _send_request("file")
    assert start["status"] == 200
    assert b"".join(each.get("body", b"") for each in bodies) == b"x" * 200_000
    assert [what for what, _ in seen] == ["began", "ended"]


async def test_a_disconnect_ends_the_stream() -> None:
    sent = await _send_request("endless", hangs_up=True)
    assert sent[1]["body"] == b"first"
    assert closed == ["stream"]
    assert [what for what, _ in seen] == ["began", "ended"]


@pytest.mark.parametrize("failure", [OSError, asyncio.CancelledError])
async def test_a_stream_that_cannot_begin_is_closed(failure: type[BaseException]):
    with pytest.raises(failure):
        await _send_request("endless", fails=failure)
    assert closed == ["stream"]
    assert [what for what, _ in seen] == ["began", "ended"]


async def test_a_disconnect_during_the_upload_gets_no_answer() -> None:
    assert await _send_request("plain", {"type": "http.disconnect"}) == []
    assert seen == []


@pytest.mark.parametrize("announced", [b"11", b"0"])
async def test_an_oversize_body_is_refused_as_soon_as_it_is_detected(
    settings: Any, announced: bytes
) -> None:
    settings.MAX_REQUEST_SIZE = 10
    piece = {"type": "http.request", "body": b"123456", "more_body": True}
    headers = [(b"content-length", announced)]
    pieces = [piece] * (0 if announced == b"11" else 2)
    start, body = await _send_request("plain", *pieces, headers=headers)
    assert start["status"] == 413
    text = b"Request Entity Too Large: A request may be at most 10 bytes long."
    assert body["body"] == text
    assert seen == []


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("", 413),
        ("wrong token", 413),
        ("token", 200),
        ("session", 200),
        ("forged", 413),
        ("NUL", 413),
    ],
)
@pytest.mark.parametrize("length", [[(b"content-length", b"6")], []])
async def test_only_those_who_are_known_send_more_than_a_form(
    settings: Any, name: str, status: int, length: list[tuple[bytes, bytes]]
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5
    user = await User.objects.acreate(username="alice")
    _, token = await sync_to_async(AccessToken.issue)(user, "script", None)
    client = Client()
    await client.aforce_login(user)
    cookie = f"{settings.SESSION_COOKIE_NAME}="
    credentials = {
        "": (b"x-nothing", b""),
        "wrong token": (b"authorization", b"Bearer sk-wrong"),
        "token": (b"authorization", f"Bearer {token}".encode()),
        "session": (b"cookie", (cookie + client.session.session_key).encode()),
        "forged": (b"cookie", f"{cookie}forged".encode()),
        "NUL": (b"cookie", f'{cookie}"forged\\000"'.encode()),
    }
    headers = [credentials[name], *(length or [(b"transfer-encoding", b"chunked")])]
    body = {"type": "http.request", "body": b"123456"}
    start, _ = await _send_request("measured", body, headers=headers)
    assert start["status"] == status


@pytest.mark.parametrize("exception", [OperationalError, InterfaceError])
async def test_django_answers_a_large_body_if_the_database_is_not_reached(
    settings: Any, monkeypatch: pytest.MonkeyPatch, exception: type[Exception]
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5
    monkeypatch.setattr(AccessTokenQuerySet, "find", Mock(side_effect=exception))
    headers = [(b"authorization", b"Bearer sk"), (b"content-length", b"6")]
    body = {"type": "http.request", "body": b"123456"}
    start, _ = await _send_request("measured", body, headers=headers)
    assert start["status"] == 200


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/plain/", (b"content-length", b"6"), 413),
        ("/plain/", (b"content-length", b"11"), 413),
        ("/healthz", (b"transfer-encoding", b"chunked"), 200),
    ],
)
async def test_what_needs_no_thread_of_requests_stands_behind_none(
    settings: Any, path: str, header: tuple[bytes, bytes], status: int
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE, settings.MAX_REQUEST_SIZE = 5, 10
    handler = Handler()
    tasks = await _begin(handler, "held", THREADS)
    headers = [header]
    if header[1] != b"6":
        headers.append((b"authorization", b"Bearer sk-wrong"))
    async with asyncio.timeout(30):
        start, _ = await _send_request(
            "plain", handler=handler, path=path, headers=headers
        )
    assert start["status"] == status
    for event in events:
        event.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("accepted", ["text/html,*/*;q=0.8", "*/*"])
async def test_a_person_gets_a_page_about_an_oversize_form(
    settings: Any, accepted: str
) -> None:
    settings.MAX_REQUEST_SIZE = 2 * 1024 * 1024
    headers = [
        (b"content-length", b"99999999"),
        (b"accept", accepted.encode()),
        (b"accept-language", b"de,en;q=0.5"),
    ]
    start, body = await _send_request("plain", headers=headers)
    assert start["status"] == 413
    is_page = accepted.startswith("text/html")
    assert (b'<html lang="de"' in body["body"]) is is_page
    assert ("2,0\xa0MB" in body["body"].decode()) is is_page
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
    sent = await _send_request("plain", *messages, last, headers=headers)
    assert sent[1]["body"] == (b"abc" * 1_000)[::-1]


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        (b"br", b"x", 415),
        (b"gzip", b"x", 400),
        (b"gzip", gzip.compress(b"x", mtime=0)[:-2], 400),
        (b"gzip", gzip.compress(b"x" * 5_000_000), 413),
        (b"gzip", gzip.compress(b"x" * 600_000) * 2, 413),
    ],
)
async def test_a_body_that_cannot_be_unpacked_is_refused(
    encoding: bytes, body: bytes, status: int
):
    message = {"type": "http.request", "body": body}
    headers = [(b"content-encoding", encoding)]
    sent = await _send_request("plain", message, headers=headers)
    assert sent[0]["status"] == status
    assert seen == []
