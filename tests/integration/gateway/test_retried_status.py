"""A provider that refuses every attempt, longer than a stream may be silent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.conftest import StartServer
from tests.integration.gateway.programs import Gateway
from tests.integration.gateway.test_hang_up import bodies


class Overloaded(BaseHTTPRequestHandler):
    """Three attempts take at least two of these seconds."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def overloaded(start_server: StartServer) -> Iterator[Gateway]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Overloaded)
    threading.Thread(target=upstream.serve_forever, args=(0.01,)).start()
    url = f"http://127.0.0.1:{upstream.server_port}/v1"
    yield Gateway(
        start_server(
            OPENAI_COMPATIBLE_API_BASE=url, OPENAI_COMPATIBLE_MODEL="overloaded"
        )
    )
    upstream.shutdown()
    upstream.server_close()


@pytest.mark.slow
def test_an_error_after_three_attempts_is_a_status(overloaded: Gateway):
    with overloaded.http() as http:
        for path, body in bodies():
            request_body = {"model": "overloaded", "stream": True, **body}
            answer = http.post(path, json=request_body)
            assert answer.status_code in (503, 529), path
            assert answer.headers["content-type"] == "application/json"
