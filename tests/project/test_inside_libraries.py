"""What of the libraries' own is looked at, so that an upgrade that renames it is told
here, by name, and not by a page that hangs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest
from daphne.ws_protocol import WebSocketProtocol
from redis.asyncio.connection import AbstractConnection
from twisted.internet import tcp
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.web.http import HTTPChannel, Request
from uvicorn.protocols.http.httptools_impl import (
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SOCKET = (
    *("conn", "disconnected", "last_ping_rtt", "loop", "ping_interval", "ping_timer"),
    *("queue", "request", "response", "scope", "transport", "writable"),
    *("def pause_writing", "def resume_writing", "def schedule_ping"),
    *("def send_keepalive_ping", "def start_keepalive", "def stop_keepalive"),
)
CYCLE = (
    *("chunked_encoding", "disconnected", "flow", "message_event", "on_response"),
    *("response_complete", "scope", "transport"),
)
WEBSOCKET = ("def serverSend", "send_queue", "state", "transport")


def source_of(kind: type) -> str:
    ours = [each for each in kind.__mro__ if each is not object]
    return "".join(inspect.getsource(each) for each in ours)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (WebSocketsSansIOProtocol, SOCKET),
        (RequestResponseCycle, CYCLE),
        (HttpToolsProtocol, ("flow", "headers", "pipeline", "scope")),
        (AbstractConnection, ("_writer", "def _close")),
        (WebSocketProtocol, WEBSOCKET),
        (tcp.Server, ("_tempDataBuffer", "dataBuffer", "disconnected", "reactor")),
        (tcp.Server, ("def startWriting", "def stopWriting", "disconnecting")),
        (HTTPChannel, ("_command", "_networkProducer", "_path", "_version", "length")),
        (HTTPChannel, ("def allContentReceived", "def allHeadersReceived")),
        (HTTPChannel, ("def rawDataReceived", "persistent")),
        (Request, ("_disconnected", "chunked", "finished", "sentLength")),
    ],
    ids=lambda told: getattr(told, "__name__", ""),
)
def test_it_still_has_what_we_look_at(kind: type, names: Sequence[str]):
    source = source_of(kind)
    gone = [
        name
        for name in names
        if (name if name.startswith("def ") else f"self.{name}") not in source
        and not hasattr(kind, name.removeprefix("def "))
    ]
    assert not gone, f"{kind.__module__}.{kind.__name__} has no {gone} any more"


def test_twisted_still_writes_as_we_ask_it_to():
    assert hasattr(AsyncioSelectorReactor, "_readOrWrite"), "see project.transport"
