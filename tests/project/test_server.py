"""`project.server.Server` around a small application, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
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

from tests.project.small_server import MAX_BODY
from tests.serving import BASE, Deadline

# The server's modules import Django models, which need the settings first.
PROGRAM = """
import runpy
import django

django.setup()
runpy.run_module("tests.project.small_server", run_name="__main__")
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
            said = self.lines_until("port")
        self.port = int(said[-1].split()[1]) if said else 0

    def lines_until(self, word: str) -> list[str]:
        """What it says up to a line with this word; nothing where that never comes."""
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
        """Its exit code, and what it said since."""
        with Deadline(self.process):
            said, self.log = self.process.communicate()
        return self.process.returncode, said.splitlines()

    def told(self, *sent: bytes) -> bytes:
        """What comes until it hangs up."""
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


def test_chunks_written_at_once_come_between_those_that_were_sent(run: Run):
    small = run()
    assert httpx.get(f"{small.url}/at-once").text == f"first {10_000 * 'x '}last"
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])


def test_who_does_not_read_is_sent_no_more_than_fits(run: Run):
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


def test_a_websocket_is_told_to_come_back(run: Run):
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
        said, complaint = small.process.communicate()
    assert small.process.returncode == 1
    assert "the engine does not start" in complaint
    assert "port" not in said


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


async def test_who_reads_slowly_is_told_all_of_it(run: Callable[..., Small]) -> None:
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
    {"Host": "localhost:port"},
    {"Connection": "close"},
    {"Sec-WebSocket-Version": "99"},
    {"Sec-WebSocket-Version": "²"},
    {"Sec-WebSocket-Key": "short"},
    {"Sec-WebSocket-Extensions": 'permessage-deflate; "'},
    {"Sec-WebSocket-Protocol": "é"},
    {"Sec-WebSocket-Protocol": "twice, twice"},
    {"Origin": "http://["},
    {"Origin": "nowhere"},
)


def test_a_handshake_that_makes_no_sense_is_refused_and_no_fault(run: Run):
    small = run()
    for change in WRONG:
        headers = {**HANDSHAKE, **change}.items()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"GET / HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        assert small.told(head).startswith(b"HTTP/1.1 400 "), change
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0
    assert small.log == ""


def test_a_target_may_be_a_whole_address(run: Run):
    small, head = run(), b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for target in (b"http://localhost/at-once", b"HTTPS://a:1/at-once?b=http://c/"):
        assert b"x x x x " in small.told(b"GET ", target, head)
    assert b"first " in small.told(b"GET http://localhost?/at-once", head)


def test_nobody_outside_says_where_we_are(run: Run):
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    told = run().told(head, b"Daphne-Root-Path: \xff\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 200 ")


def test_what_the_server_refuses_by_itself_has_the_form_of_its_place(run: Run):
    small = run()

    def told(path: bytes) -> str:
        head = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % path
        head, _, body = small.told(head, b"X: \x0b\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        return body.decode()

    assert told(b"/") == "Bad Request: Invalid header value"
    for path in (b"/api/models/", b"/v1/models"):
        error = json.loads(told(path))["error"]
        assert error["message"] == "Invalid header value"
        assert error["type"] == "invalid_request_error"


_ASK = b"%b %b HTTP/1.%d\r\nHost: localhost\r\nCookie: a=b\r\n%b\r\n"


def _chunks(told: bytes) -> list[bytes]:
    """The bodies of answers in chunks, one after another."""
    bodies = re.findall(rb"\r\n\r\n((?:[0-9a-f]+\r\n[a-z ]+\r\n)+)0\r\n\r\n", told)
    return [b"".join(re.findall(rb"\r\n([a-z ]+)\r\n", b"\r\n" + b)) for b in bodies]


_OF_REQUEST = {"_gone", "application_queue", "channel", "method", "path"}
_OF_REQUEST |= {"request_start", "sentLength", "uri"}
_OF_CHANNEL = {"_dataBuffer", "_networkProducer", "requests", "transport"}
_OF_CHANNEL |= {"persistent"}  # where it is not


def _kept(said: list[str], by: str) -> list[set[str]]:
    lines = (line.split() for line in said if line.startswith(f"{by}: "))
    return [set(names) for _, *names in lines]


@pytest.mark.parametrize("minor", [1, 0])
def test_requests_that_come_together_are_answered_in_order_and_keep_little(
    run: Run, minor: int
):
    small = run()
    stream = _ASK % (b"GET", b"/stream?ends", 1, b"")
    header = b"Connection: close\r\n" if minor else b""
    end = _ASK % (b"GET", b"/stream?ends", minor, header)
    told = small.told(stream, stream, end)
    streams = 2 + minor
    assert _chunks(told) == [b"first told last"] * streams
    # HTTP/1.0 has no chunks, and so no way past.
    assert told.endswith(b"0\r\n\r\n" if minor else b"\r\n\r\nfirst last")
    small.process.send_signal(signal.SIGTERM)
    code, said = small.end()
    assert code == 0
    requests, channels = _kept(said, "request"), _kept(said, "channel")
    assert len(requests) == len(channels) == streams
    assert all(names <= _OF_REQUEST for names in requests)
    assert all(names <= _OF_CHANNEL for names in channels)
    assert said.count("ended False") == 3


def test_an_open_socket_keeps_only_what_is_its_own(run: Run):
    small = run()
    with connect(f"ws://127.0.0.1:{small.port}/") as websocket:
        websocket.send("what is kept")
        kept = str(websocket.recv()).split()
    assert len(kept) < 30  # of some ninety
    assert not {"client_addr", "clean_headers", "factory", "maskServerFrames"} & {*kept}
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["disconnect 1000", "drain", "close"])


def test_a_hang_up_is_told_while_an_answer_is_sent(run: Run):
    small = run()
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.sendall(_ASK % (b"GET", b"/stream", 1, b""))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    said = small.lines_until("disconnect")
    assert said[-1] == "gone True http.disconnect False"
    assert httpx.get(small.url).text == "first last"
    small.process.send_signal(signal.SIGTERM)
    assert small.end() == (0, ["drain", "close"])


def test_a_connection_serves_requests_after_a_stream(run: Run):
    small = run()
    with httpx.Client(base_url=small.url) as client:
        for _ in range(3):
            answer = client.get("/stream?ends")
            assert answer.text == "first told last"
            answer = client.post("/body", content=b"x" * 200_000)
            assert answer.text == "65536 65536 65536 3392"
            assert client.post("/body", content=b"").text == "0"
            assert client.get("/").text == "first last"
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_body_that_comes_in_pieces_arrives_whole(run: Run, is_chunked: bool):
    small = run()
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: 6"
    head = _ASK % (b"POST", b"/body", 1, length + b"\r\nConnection: close\r\n")
    pieces = (b"3\r\nabc\r\n", b"3\r\ndef\r\n0\r\n\r\n")
    with socket.create_connection(("127.0.0.1", small.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (
            head[:30],
            head[30:],
            *(pieces if is_chunked else (b"abc", b"def")),
        ):
            connection.sendall(piece)
        told = b"".join(iter(lambda: connection.recv(65536), b""))
    assert told.endswith(b"\r\n\r\n6")
    small.process.send_signal(signal.SIGTERM)
    small.end()


def test_a_body_that_is_too_long_is_refused_before_it_comes(run: Run):
    small = run()
    length = b"Content-Length: %d\r\nExpect: 100-continue\r\n" % (MAX_BODY + 1)
    for path in (b"/body?x", b"http://localhost/body"):
        told = small.told(_ASK % (b"POST", path, 1, length))
        assert told.startswith(b"HTTP/1.1 413 ")
        most = b"A request may be at most %d bytes long." % MAX_BODY
        assert told.endswith(b"\r\n\r\nRequest Entity Too Large: " + most)
    told = small.told(_ASK % (b"POST", b"/v1/responses", 1, length))
    error = json.loads(told.partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == "request_too_large"
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0
    assert small.log == ""


@pytest.mark.parametrize("is_chunked", [True, False])
def test_who_sends_too_much_is_told_so_at_the_end(run: Run, is_chunked: bool):
    """And what comes behind it is no request."""
    small, size = run(), 10 * MAX_BODY
    body = size * b"x"
    length = b"Content-Length: %d\r\n" % size
    if is_chunked:
        length = b"Transfer-Encoding: chunked\r\n"
        body = 1000 * (b"%x\r\n%b\r\n" % (size // 1000, body[: size // 1000]))
        body += b"0\r\n\r\n"
    head = _ASK % (b"POST", b"/body", 1, length)
    told = small.told(head, body, _ASK % (b"GET", b"/", 1, b""))
    assert told.startswith(b"HTTP/1.1 413 ")
    assert told.count(b"HTTP/1.1") == 1
    assert httpx.post(f"{small.url}/body", content=MAX_BODY * b"x").is_success
    small.process.send_signal(signal.SIGTERM)
    assert small.end()[0] == 0
    assert small.log == ""
