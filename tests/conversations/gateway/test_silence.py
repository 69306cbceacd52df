"""Comments that a silent stream sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conversations.gateway.http import HEARTBEAT, STATUS_WAIT, EventStream, Exchange

SCOPE = {"method": "POST", "path": "/v1/responses", "headers": []}


class Client:
    def __init__(self) -> None:
        self.heard = b""
        self.statuses: list[int] = []

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])
        self.heard += message.get("body", b"")

    async def receive(self) -> dict[str, Any]:
        raise AssertionError("nobody asks")


@pytest.fixture
def client() -> Client:
    return Client()


def event_stream(client: Client) -> EventStream:
    """Its events are their own encoding."""
    exchange = Exchange(dict(SCOPE), client.receive, client.send)
    return EventStream(exchange, b"".join)


@pytest.fixture
async def stream(client: Client) -> EventStream:
    return event_stream(client)


async def look(stream: EventStream, after: float) -> None:
    """At a time after it was last looked at or written to."""
    stream.check_silence(stream.written_at + after)
    if stream.heartbeat:
        await stream.heartbeat


async def test_a_silent_stream_starts_with_its_buffered_bytes(stream, client):
    stream.buffer([b"first"])
    await look(stream, STATUS_WAIT - 0.1)
    assert not stream.exchange.started
    await look(stream, STATUS_WAIT)
    assert stream.exchange.started
    assert client.heard == b"first: heartbeat\n\n"


async def test_a_stream_that_talks_is_left_in_peace(stream, client):
    await stream.write([b"one"])
    await look(stream, HEARTBEAT - 0.1)
    await stream.write([b"two"])
    await look(stream, HEARTBEAT - 0.1)
    assert client.heard == b"onetwo"
    await look(stream, HEARTBEAT)
    await stream.write([b"three"])
    assert client.heard == b"onetwo: heartbeat\n\nthree"


async def test_a_client_that_does_not_read_gets_no_second_comment(stream, client):
    stream.check_silence(stream.written_at + STATUS_WAIT)
    stream.check_silence(stream.written_at + 2 * STATUS_WAIT)
    await stream.write([b"one"])
    assert client.heard == b": heartbeat\n\none"


@pytest.mark.parametrize("ends", [True, False])
async def test_a_heartbeat_that_was_due_does_not_follow_the_end(stream, client, ends):
    """The answer comes in the moment in which its heartbeat is due."""
    stream.buffer([b"first"])
    stream.check_silence(stream.written_at + STATUS_WAIT)
    if ends:
        await stream.end([b"last"])
    else:  # the provider has refused the request
        stream.stop_heartbeats()
        await stream.exchange.answer(429, {})
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert client.statuses == [200 if ends else 429]
    assert client.heard == (b"firstlast" if ends else b"{}")


async def test_all_streams_of_a_loop_are_looked_at_together_until_they_stop(client):
    streams = [event_stream(client) for _ in range(3)]
    assert len({id(each.timer) for each in streams}) == 1
    silences = streams[0].timer
    for each in streams:
        each.written_at -= STATUS_WAIT
    silences.check_streams()
    await asyncio.gather(*(each.heartbeat for each in streams if each.heartbeat))
    assert client.heard == b": heartbeat\n\n" * 3
    await streams[0].end([b"last"])
    for each in streams:
        each.stop_heartbeats()
    assert not silences.streams
