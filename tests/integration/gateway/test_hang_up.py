"""A client's disconnect closes the connection to the provider at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import StartServer
from tests.integration.gateway.programs import PATIENCE, Gateway

pytestmark = pytest.mark.slow

CHUNK = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'


class Upstream:
    """A model that begins to answer, or not even that, and never ends."""

    def __init__(self) -> None:
        self.request_count = threading.Event()
        self.left = threading.Event()
        self.speaks = True
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def close(self) -> None:
        self._listening.close()

    def expect(self, *, speaks: bool) -> None:
        self.request_count.clear()
        self.left.clear()
        self.speaks = speaks

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(
                target=self._answer, args=[connection], daemon=True
            ).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            self.request_count.set()
            if self.speaks:
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                connection.sendall(head + CHUNK)
            while connection.recv(65536):
                pass
            self.left.set()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def slow(start_server: StartServer, upstream: Upstream) -> Gateway:
    return Gateway(
        start_server(
            OPENAI_COMPATIBLE_API_BASE=upstream.url,
            OPENAI_COMPATIBLE_MODEL="slow",
            DRAIN_GRACE="1",
        )
    )


def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    messages = [{"role": "user", "content": "hi"}]
    yield "/chat/completions", {"messages": messages}
    yield "/messages", {"messages": messages, "max_tokens": 9}
    yield "/responses", {"input": "hi", "store": False}
    yield "/responses", {"input": "hi"}


@pytest.mark.smoke
def test_a_disconnect_closes_the_provider_connection_in_every_api(
    slow: Gateway, upstream: Upstream
):
    for path, body in bodies():
        for stream in (False, True):
            upstream.expect(speaks=stream)
            request_body = {"model": "slow", "stream": stream, **body}
            with slow.http() as http:
                request = http.build_request("POST", path, json=request_body)
                if stream:
                    answer = http.send(request, stream=True)
                    next(answer.iter_raw())
                    answer.close()
                else:
                    hang_up_while_it_waits(http, request, upstream)
            assert upstream.request_count.is_set()
            assert upstream.left.wait(PATIENCE), (path, body, stream)


def test_a_drain_refuses_what_it_cuts_off(slow: Gateway, upstream: Upstream):
    """A client sends a refused request again; an empty answer it would believe."""
    stateless = [*bodies()][:3]
    for path, body in stateless:
        check_refused(slow, upstream, path, {"model": "slow", **body})


def check_refused(
    slow: Gateway, upstream: Upstream, path: str, body: dict[str, Any]
) -> None:
    slow.server.restart()
    upstream.expect(speaks=False)
    answers: list[httpx.Response] = []

    def send() -> None:
        with slow.http() as http:
            answers.append(http.post(path, json=body, timeout=PATIENCE))

    asking = threading.Thread(target=send)
    asking.start()
    assert upstream.request_count.wait(PATIENCE)
    slow.server.stop()
    asking.join(PATIENCE)
    assert [answer.status_code for answer in answers] == [503], path


def hang_up_while_it_waits(
    http: httpx.Client, request: httpx.Request, upstream: Upstream
) -> None:
    raw = socket.create_connection((request.url.host, request.url.port or 80))
    head = f"POST {request.url.raw_path.decode()} HTTP/1.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with raw:
        raw.sendall(head.encode() + b"\r\n" + request.content)
        assert upstream.request_count.wait(PATIENCE)


def test_a_stream_is_begun_before_the_model_is(slow: Gateway, upstream: Upstream):
    upstream.expect(speaks=False)
    body = {"model": "slow", "stream": True, "input": "hi", "store": False}
    with (
        slow.http() as http,
        http.stream("POST", "/responses", json=body) as answer,
    ):
        assert answer.status_code == 200
        assert b": heartbeat" in next(answer.iter_bytes())
    assert upstream.left.wait(PATIENCE)
