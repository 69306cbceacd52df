"""The channel layer of many processes: nobody waits for its Redis, and the log says
once that it is away."""

from __future__ import annotations

import asyncio
import logging

import pytest
from redis.exceptions import ConnectionError as Lost

from conversations.engine.redis import channel_layer as layers
from conversations.engine.redis.channel_layer import (
    RedisChannelLayer,
    RedisOutageFilter,
)


@pytest.fixture
async def silent():
    """The address of a Redis that takes connections and answers nothing."""
    gone = asyncio.Event()

    async def serve(reader, writer):
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"redis://127.0.0.1:{port}/0"
    gone.set()
    server.close()


async def test_a_page_opens_and_closes_without_an_answer_of_redis(silent):
    layer = RedisChannelLayer(hosts=[{"address": silent, "socket_timeout": 60}])
    async with asyncio.timeout(30):
        channel = await layer.new_channel()
        await layer.group_add("conversation.1", channel)
        hearing = asyncio.ensure_future(layer.receive(channel))
        await asyncio.sleep(0)
        await layer.group_discard("conversation.1", channel)
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
    assert not layer._get_layer().channels
    for task in list(layer._tasks):
        task.cancel()
    await asyncio.gather(*layer._tasks, return_exceptions=True)


async def test_a_page_opened_without_redis_is_told_once_it_is_back(monkeypatch, silent):
    monkeypatch.setattr(layers, "PAUSE", 0)
    layer, joined = RedisChannelLayer(hosts=[silent]), asyncio.Event()
    closed = RuntimeError("unable to perform operation on <TCPTransport closed=True>")
    answers = [Lost("gone"), closed, None]

    async def group_add(group, channel):
        if answer := answers.pop(0):
            raise answer
        joined.set()

    monkeypatch.setattr(layer._get_layer(), "group_add", group_add)
    await layer.group_add("conversation.1", await layer.new_channel())
    async with asyncio.timeout(30):
        await joined.wait()
    assert not answers


async def test_for_a_page_that_is_closed_nobody_asks_any_more(monkeypatch, silent):
    monkeypatch.setattr(layers, "PAUSE", 0)
    layer, tried = RedisChannelLayer(hosts=[silent]), asyncio.Event()

    async def group_add(group, channel):
        tried.set()
        raise Lost("gone")

    monkeypatch.setattr(layer._get_layer(), "group_add", group_add)
    channel = await layer.new_channel()
    hearing = asyncio.ensure_future(layer.receive(channel))
    await layer.group_add("conversation.1", channel)
    async with asyncio.timeout(30):
        await tried.wait()
        hearing.cancel()
        await asyncio.gather(hearing, *layer._tasks, return_exceptions=True)


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
    told = "no hints for open pages from Redis: ConnectionError"
    assert (away.levelname, away.getMessage(), away.exc_info) == ("WARNING", told, None)
    assert ours.exc_info
