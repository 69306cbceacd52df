"""When a stream that has nothing to say says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conversations.gateway.http import HEARTBEAT, STATUS_WAIT, EventStream, Exchange

SCOPE = {"method": "POST", "path": "/v1/responses", "headers": []}


class Client:
    def __init__(self) -> None:
        self.heard = b""

    async def send(self, message: dict[str, Any]) -> None:
        self.heard += message.get("body", b"")

    async def receive(self) -> dict[str, Any]:
        raise AssertionError("nobody asks")


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def stream(client: Client) -> EventStream:
    return EventStream(Exchange(dict(SCOPE), client.receive, client.send))


async def look(stream: EventStream, after: float) -> None:
    """At a time after it was last looked at or written to."""
    stream.check_silence(stream._written_at + after)
    if stream._heartbeat:
        await stream._heartbeat


async def test_a_stream_that_has_not_begun_begins_with_what_is_held(stream, client):
    stream.buffer(b"first")
    await look(stream, STATUS_WAIT - 0.1)
    assert not stream.has_begun
    await look(stream, STATUS_WAIT)
    assert stream.has_begun
    assert client.heard == b"first: heartbeat\n\n"


async def test_a_stream_that_talks_is_left_in_peace(stream, client):
    await stream.write(b"one")
    await look(stream, HEARTBEAT - 0.1)
    await stream.write(b"two")
    await look(stream, HEARTBEAT - 0.1)
    assert client.heard == b"onetwo"
    await look(stream, HEARTBEAT)
    await stream.write(b"three")
    assert client.heard == b"onetwo: heartbeat\n\nthree"


async def test_who_takes_no_comment_is_sent_no_second_one(stream, client):
    stream.check_silence(stream._written_at + STATUS_WAIT)
    stream.check_silence(stream._written_at + 2 * STATUS_WAIT)
    await stream.write(b"one")
    assert client.heard == b": heartbeat\n\none"


async def test_all_streams_of_a_loop_are_looked_at_together_until_they_stop(client):
    streams = [
        EventStream(Exchange(dict(SCOPE), client.receive, client.send))
        for _ in range(3)
    ]
    assert len({id(each._timer) for each in streams}) == 1
    silences = streams[0]._timer
    for each in streams:
        each._written_at -= STATUS_WAIT
    silences._check_streams()
    await asyncio.gather(*(each._heartbeat for each in streams if each._heartbeat))
    assert client.heard == b": heartbeat\n\n" * 3
    await streams[0].end(b"last")
    for each in streams:
        each.stop_heartbeats()
    assert not silences.streams
