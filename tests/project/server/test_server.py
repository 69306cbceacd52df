"""`project.server.uvicorn_server.Server` in a process, with `small_server`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.project.server.small_server import MAX_MESSAGE
from tests.serving import BASE, Deadline

pytestmark = pytest.mark.server

# The server's modules import Django models, which need the settings first.
PROGRAM = """
import runpy
import django

django.setup()
runpy.run_module("tests.project.server.small_server", run_name="__main__")
"""


class Small:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=BASE,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with Deadline(self.process):
            lines = self.lines_until("port")
        self.port = int(lines[-1].split()[1]) if lines else 0

    def lines_until(self, word: str) -> list[str]:
        """Its output up to a line with this word; nothing if that never comes."""
        lines = []
        for line in self.process.stdout or ():
            lines.append(line.rstrip())
            if word in line:
                return lines
        return []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self) -> tuple[int, list[str]]:
        """Its exit code, and its output since."""
        with Deadline(self.process):
            output, self.log = self.process.communicate()
        return self.process.returncode, output.splitlines()

    def exchange(self, *sent: bytes) -> bytes:
        """Send these bytes; return the reply until the server disconnects."""
        address = "127.0.0.1", self.port
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(b"".join(sent))
            return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def run() -> Iterator[Callable[..., Small]]:
    started: list[Small] = []

    def run(*arguments: str) -> Small:
        started.append(Small(*arguments))
        return started[-1]

    yield run
    for small in started:
        with small.process:
            small.process.kill()


Run = Callable[..., Small]


def test_a_request_is_answered_without_naming_the_software_below(run: Run):
    response = httpx.get(run().url)
    assert response.text == "first last"
    assert response.headers["Server"] == "parley"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_closes_in_this_order(run: Run, number: signal.Signals):
    small = run()
    small.process.send_signal(number)
    assert small.end() == (0, ["drain", "close"])


def test_an_open_response_ends_before_the_server_does(run: Run):
    small = run()
    with httpx.stream("GET", f"{small.url}/until-drain") as response:
        pieces = response.iter_text()
        assert next(pieces) == "first "
        small.process.send_signal(signal.SIGTERM)
        assert "".join(pieces) == "last"
    assert small.end() == (0, ["drain", "close"])


def test_a_response_that_never_ends_is_cut_off(run: Run):
    small = run()
    with httpx.stream("GET", f"{small.url}/forever") as response:
        pieces = response.iter_text()
        assert next(pieces) == "first "
        small.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(pieces)
    assert small.end() == (0, ["drain", "cancelled", "close"])


def test_a_client_that_does_not_read_fills_only_the_buffer(run: Run):
    small = run()
    with httpx.stream("GET", f"{small.url}/flood") as response:
        with Deadline(small.process):
            assert small.lines_until("full") == ["full"]
        assert response.read().endswith(b"xlast")
    with Deadline(small.process):
        assert small.lines_until("again") == ["reads again"]
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])


@pytest.mark.parametrize("size", [1, 200, 100_000, 1_000_000])
def test_frames_written_at_once_come_before_what_is_sent_after(run: Run, size: int):
    small = run()
    text = "twice " + size * "x"
    with connect(f"ws://127.0.0.1:{small.port}/", max_size=None) as websocket:
        for _ in range(3):
            websocket.send(text)
        assert [websocket.recv() for _ in range(6)] == [text] * 6
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["disconnect 1000", "drain", "close"])


def test_a_websocket_is_asked_to_reconnect(run: Run):
    small = run()
    with connect(f"ws://127.0.0.1:{small.port}/") as websocket:
        websocket.send("hello")
        assert websocket.recv() == "hello"
        small.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert small.end() == (0, ["drain", "disconnect 1012", "close"])


def test_a_second_signal_ends_it_at_once(run: Run):
    small = run("stuck")
    small.process.send_signal(signal.SIGINT)
    assert small.lines_until("drain") == ["drain"]
    small.process.send_signal(signal.SIGINT)
    assert small.end() == (128 + signal.SIGINT, [])


def test_a_second_signal_may_do_nothing(run: Run):
    small = run("signalled", "patient")
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])


@pytest.mark.smoke
def test_new_connections_are_refused_while_it_drains(run: Run):
    small = run("stuck")
    small.process.send_signal(signal.SIGTERM)
    small.lines_until("drain")
    with pytest.raises(httpx.ConnectError):
        httpx.get(small.url)


def test_many_requests_at_once_are_all_answered(run: Run):
    small = run()
    with ThreadPoolExecutor(20) as pool, httpx.Client(base_url=small.url) as client:
        answers = pool.map(lambda _: client.get("/").text, range(100))
        assert set(answers) == {"first last"}


def test_a_start_that_fails_ends_the_server_with_its_reason(run: Run):
    small = run("broken")
    with Deadline(small.process):
        output, complaint = small.process.communicate()
    assert small.process.returncode == 1
    assert "the engine does not start" in complaint
    assert "port" not in output


def test_a_fault_in_the_middle_of_an_answer_cuts_it_off_and_harms_no_other(run):
    small = run()
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{small.url}/fault", timeout=30)
    assert httpx.get(small.url).text == "first last"
    small.process.send_signal(signal.SIGTERM)
    code, _ = small.end()
    assert code == 0


def test_messages_of_any_length_arrive_whole(run: Callable[..., Small]) -> None:
    server = run()
    url = server.url.replace("http", "ws")
    texts = ["ä" * (size // 2) for size in (2, 124, 126, 2**16 - 2, 2**16, 2**19)]
    with connect(url, max_size=None) as socket:
        for text in texts:
            socket.send(text)
        assert [socket.recv() for _ in texts] == texts
    server.process.send_signal(signal.SIGTERM)
    server.end()


async def test_a_slow_reader_receives_everything(run: Callable[..., Small]) -> None:
    """More than all buffers hold: the server reads on as the client does."""
    server = run()
    texts = [str(number) * 10_000 for number in range(1_000)]
    url = server.url.replace("http", "ws")

    async def send_all() -> None:
        for text in texts:
            await socket.send(text)

    async with connect_async(url, max_size=None, max_queue=1) as socket:
        sending = asyncio.create_task(send_all())
        assert [await socket.recv() for _ in texts] == texts
        await sending
    server.process.send_signal(signal.SIGTERM)
    server.end()


HANDSHAKE = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}

WRONG = (
    {"Sec-WebSocket-Version": "99"},
    {"Sec-WebSocket-Key": "short"},
    {"Sec-WebSocket-Key": 9000 * "x"},
    {f"X-{number}": "x" for number in range(140)},
    {"Content-Length": "3"},
)


def test_a_handshake_that_makes_no_sense_is_refused_in_one_answer(run: Run):
    small = run()
    for change in WRONG:
        headers = {**HANDSHAKE, **change}.items()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        assert small.exchange(head, b"abc").startswith(b"HTTP/1.1 4"), change
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0
    assert small.log == ""


def test_a_message_that_is_too_large_closes_the_socket_with_its_code(run: Run):
    small = run()
    with connect(f"ws://127.0.0.1:{small.port}/") as websocket:
        websocket.send((MAX_MESSAGE + 1) * "x")
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_a_request_that_is_not_http_is_refused_in_one_line(run: Run):
    small = run()
    response = small.exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x0b\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert response.endswith(b"\r\n\r\nInvalid HTTP request received.")
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])
    assert small.log == ""


def test_a_target_may_be_a_whole_address(run: Run):
    small, head = run(), b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for target in (b"http://localhost/body", b"HTTPS://a:1/body?b=http://c/"):
        assert small.exchange(b"GET ", target, head).endswith(b"\r\n\r\n0")


_REQUEST = b"%b %b HTTP/1.%d\r\nHost: localhost\r\nCookie: a=b\r\n%b\r\n"


def test_requests_that_come_together_are_answered_in_their_order(run: Run):
    small = run()
    last = _REQUEST % (b"GET", b"/body", 1, b"Connection: close\r\n")
    response = small.exchange(2 * (_REQUEST % (b"GET", b"/stream?ends", 1, b"")), last)
    assert response.count(b"6\r\nfirst \r\n4\r\nlast\r\n0\r\n\r\n") == 2
    assert response.endswith(b"\r\n\r\n0")


def test_a_disconnect_is_reported_during_an_answer(run: Run):
    small = run()
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.sendall(_REQUEST % (b"GET", b"/stream", 1, b""))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert small.lines_until("disconnect") == ["http.disconnect"]
    assert httpx.get(small.url).text == "first last"
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])


def test_a_connection_serves_requests_after_a_stream(run: Run):
    small = run()
    with httpx.Client(base_url=small.url) as client:
        for _ in range(3):
            answer = client.get("/stream?ends")
            assert answer.text == "first last"
            answer = client.post("/body", content=b"x" * 200_000)
            assert sum(map(int, answer.text.split())) == 200_000
            assert client.post("/body", content=b"").text == "0"
            assert client.get("/").text == "first last"
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_body_that_comes_in_pieces_arrives_whole(run: Run, is_chunked: bool):
    small = run()
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 6"
    head = _REQUEST % (b"POST", b"/body", 1, length + b"\r\nConnection: close\r\n")
    pieces = (b"3\r\nabc\r\n", b"3\r\ndef\r\n0\r\n\r\n")
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (
            head[:30],
            head[30:],
            *(pieces if is_chunked else (b"abc", b"def")),
        ):
            connection.sendall(piece)
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    sizes = reply.rpartition(b"\r\n\r\n")[2].split()
    assert sum(map(int, sizes)) == 6
    small.process.send_signal(signal.SIGTERM)
    small.end()


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_client_that_keeps_sending_receives_the_refusal(run: Run, is_chunked: bool):
    """The rest of the body is dropped, and the next request on the connection is
    answered."""
    small, size = run(), 3_000_000
    body = size * b"x"
    length = b"Content-Length: %d\r\n" % size
    if is_chunked:
        length = b"Transfer-Encoding: chunked\r\n"
        body = 1000 * (b"%x\r\n%b\r\n" % (size // 1000, body[: size // 1000]))
        body += b"0\r\n\r\n"
    last = _REQUEST % (b"GET", b"/body", 1, b"Connection: close\r\n")
    response = small.exchange(_REQUEST % (b"POST", b"/refuse", 1, length), body, last)
    assert response.startswith(b"HTTP/1.1 413 ")
    assert response.endswith(b"\r\n\r\n0")
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0
    assert small.log == ""
