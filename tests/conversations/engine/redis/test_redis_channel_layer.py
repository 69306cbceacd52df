"""The channel layer over Redis: no caller waits for it, one line logs its loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Lost

from conversations.engine.redis import channel_layer as layers
from conversations.engine.redis.channel_layer import (
    RedisChannelLayer,
    RedisOutageFilter,
)


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a Redis that takes connections and answers nothing."""
    closed = asyncio.Event()

    async def serve(_: Any, writer: asyncio.StreamWriter) -> None:
        await closed.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"redis://127.0.0.1:{port}/0"
    closed.set()
    server.close()


@pytest.fixture
def redis(redis_url: str) -> str:
    return redis_url


class RedisGate:
    """Closes each connection to a Redis until `is_open` is set."""

    def __init__(self, address: str) -> None:
        self._behind = urlsplit(address)
        self.is_open = False
        self.has_refused = asyncio.Event()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not self.is_open:
            writer.close()
            self.has_refused.set()
            return
        host, port = self._behind.hostname, self._behind.port
        inner, outer = await asyncio.open_connection(host, port)
        await asyncio.gather(_pass_on(reader, outer), _pass_on(inner, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def first_message(sender: RedisChannelLayer, found: asyncio.Queue[Any]) -> Any:
    """The first message that arrives; nothing says when a group was joined."""
    async with asyncio.timeout(30):
        while found.empty():
            await sender.group_send("conversation.1", {"type": "turn.queued"})
            await asyncio.sleep(0)
        return found.get_nowait()


async def test_a_page_opens_and_closes_without_an_answer_of_redis(silent: str):
    layer = RedisChannelLayer(hosts=[{"address": silent, "socket_timeout": 60}])
    ignore: Any = lambda message: None  # noqa: E731
    layer.join("conversation.1", ignore)
    await asyncio.sleep(0)
    layer.leave("conversation.1", ignore)
    assert not layer.groups_with_pages()
    await layer.close()


async def test_pages_receive_what_another_process_sends_to_their_group(redis: str):
    here, there = (RedisChannelLayer(hosts=[redis], prefix="test") for _ in range(2))
    first, second = asyncio.Queue[Any](), asyncio.Queue[Any]()
    here.join("conversation.1", first.put_nowait)
    here.join("conversation.2", second.put_nowait)
    assert await first_message(there, first) == {"type": "turn.queued"}
    assert second.empty()
    await here.close()
    await there.close()


async def test_what_fails_in_one_notification_is_logged_and_the_next_arrives(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, redis: str
):
    monkeypatch.setattr(layers, "PAUSE", 0)
    here, there = (RedisChannelLayer(hosts=[redis], prefix="test") for _ in range(2))
    found, failures = asyncio.Queue[Any](), [KeyError("first"), KeyError("second")]

    def on_message(message: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        found.put_nowait(message)

    here.join("conversation.1", on_message)
    await first_message(there, found)
    async with Redis.from_url(redis) as client:
        await client.publish("test__group__conversation.1", b"no msgpack")
    assert await first_message(there, found)
    [failure] = [each for each in caplog.records if each.exc_info]
    assert failure.levelname == "WARNING"
    await here.close()
    await there.close()


async def test_a_page_that_opens_restarts_what_has_ended(redis: str):
    here, there = (RedisChannelLayer(hosts=[redis], prefix="test") for _ in range(2))
    found = asyncio.Queue[Any]()
    here.join("conversation.1", found.put_nowait)
    ended = asyncio.all_tasks() - {asyncio.current_task()}
    for task in ended:
        task.cancel()
    await asyncio.wait(ended)
    here.join("conversation.2", found.put_nowait)
    assert await first_message(there, found) == {"type": "turn.queued"}
    await here.close()
    await there.close()


async def test_that_redis_is_away_does_not_pass_in_silence(
    caplog: pytest.LogCaptureFixture,
):
    layer = RedisChannelLayer(hosts=["redis://127.0.0.1:1/0"])
    for _ in range(2):
        await layer.group_send("conversation.1", {"type": "turn.queued"})
    [line] = [each.getMessage() for each in caplog.records]
    assert line.endswith("cannot pass through Redis: ConnectionError")
    await layer.close()


async def test_a_page_opened_without_redis_gets_updates_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch, redis: str
):
    monkeypatch.setattr(layers, "PAUSE", 0)
    gate, found = RedisGate(redis), asyncio.Queue[Any]()
    server = await asyncio.start_server(gate.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    here = RedisChannelLayer(hosts=[f"redis://127.0.0.1:{port}/0"], prefix="test")
    there = RedisChannelLayer(hosts=[redis], prefix="test")
    here.join("conversation.1", found.put_nowait)
    async with asyncio.timeout(30):
        await gate.has_refused.wait()
    gate.is_open = True
    assert await first_message(there, found) == {"type": "turn.queued"}
    await here.close()
    await there.close()
    server.close()


def test_that_redis_is_away_is_one_line_and_a_fault_of_ours_is_whole(caplog):
    logger = logging.getLogger("tests.layer")
    logger.addFilter(told_once := RedisOutageFilter())
    for exc in (Lost("gone"), Lost("gone"), KeyError("ours")):
        try:
            raise exc
        except Exception:
            logger.exception("Unexpected exception in receive task")
    logger.removeFilter(told_once)
    away, ours = caplog.records
    warning = "notifications for open pages cannot be read from Redis: ConnectionError"
    assert (away.levelname, away.getMessage(), away.exc_info) == (
        "WARNING",
        warning,
        None,
    )
    assert ours.exc_info
