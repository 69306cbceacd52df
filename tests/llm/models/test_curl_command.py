"""The curl command of a stored request, run in a shell, sends that request again."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import orjson
import pytest

from llm.admin.exchange import curl_command
from llm.http.recording import Recording, unpack
from tests.programs import need_program

KEY = "k3y'of these\"tests$HOME`id`"
TEXTS = {
    "plain": "Which region leads?",
    "quotes of a shell": 'it\'s "$HOME" `id` $(id) \\n !! %s\n\ttwo lines',
    "other scripts": "größer ‘quoted’ 地区 🌍 \u2028",
    "dots of a mask": "•••• is what we show",
    "longer than an argument may be": "word " * 40_000,
    "the end of a document": "END_OF_BODY\nEOF\n" * 9_000,
}


class Host:
    """Answers "done" to each request, and records it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            host.requests.append((self.command, self.path, headers, body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    host.url = f"http://127.0.0.1:{server.server_port}"
    yield host
    server.shutdown()
    server.server_close()
    thread.join()


def stored(host: Host, path: str, headers: dict[str, str], body: bytes) -> Any:
    """As the exchange of such a request is stored."""
    sent = {"content-type": "application/json", **headers}
    message = httpx.Request("POST", host.url + path, headers=sent, content=body)
    return unpack(Recording.of(message, KEY, headers).pack())


def run(command: str, key: str = KEY) -> str:
    environment = {"PATH": os.environ["PATH"], "API_KEY": key}
    done = subprocess.run(
        ["sh", "-s"],
        input=command.replace("curl ", "curl --silent --show-error ", 1),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


@pytest.mark.needs_program("curl")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_command_sends_the_same_body_again(host: Host, text: str):
    need_program("curl")
    body = orjson.dumps({"model": "m", "input": text})
    exchange = stored(host, "/v1/r", {"authorization": f"Bearer {KEY}"}, body)
    command = curl_command(exchange)
    assert KEY not in command
    assert run(command) == "done"
    method, path, headers, received = host.requests[-1]
    assert (method, path) == ("POST", "/v1/r")
    assert json.loads(received) == json.loads(body)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("name", ["x-api-key", "api-key", "x-goog-api-key"])
def test_the_key_goes_where_it_was(host: Host, name: str):
    need_program("curl")
    exchange = stored(host, "/v1/r?beta=true", {name: KEY}, b'{"a": 1}')
    assert run(curl_command(exchange)) == "done"
    _method, path, headers, received = host.requests[-1]
    assert (path, received) == ("/v1/r?beta=true", b'{"a": 1}')
    assert headers[name] == KEY


def test_another_secret_header_does_not_get_the_key(host: Host):
    headers = {"authorization": f"Bearer {KEY}", "x-team.token": "planted-in-a-header"}
    command = curl_command(stored(host, "/v1/r", headers, b"{}"))
    assert "planted" not in command
    assert """'authorization: Bearer '"$API_KEY\"""" in command
    assert """'x-team.token: '"$HEADER_X_TEAM_TOKEN\"""" in command


def test_a_key_in_the_address_goes_there_again(host: Host):
    need_program("curl")
    exchange = stored(host, f"/v1/r?key={KEY[:3]}&n=1", {}, b"{}")
    assert run(curl_command(exchange), "k3y") == "done"
    assert host.requests[-1][1] == "/v1/r?key=k3y&n=1"


def test_a_long_body_that_is_no_json_arrives_whole(host: Host):
    need_program("curl")
    body = "END_OF_BODY\nEND_OF_BODY_\n$HOME `id` \\ it's\n" * 2_000
    exchange = stored(host, "/v1/r", {}, body.encode())
    assert run(curl_command(exchange)) == "done"
    assert host.requests[-1][3].decode() == body + "\n"  # that of the last line
