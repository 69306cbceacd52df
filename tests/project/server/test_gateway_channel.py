"""The channel between a gateway process and the one with the engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conversations.access.errors import ServerBusy, TooManyConnections
from conversations.access.rate_limits import Charge
from conversations.models import AccessToken
from project.server.gateway_processes import channel as channels
from project.server.gateway_processes.channel import Channel
from project.server.gateway_processes.processes import register
from project.server.gateway_processes.shared_limits import (
    EngineBuckets,
    SharedConnections,
)

TOKEN = AccessToken(pk=1, user_id=2)


@asynccontextmanager
async def connected(**handlers: Callable[..., Any]) -> AsyncIterator[tuple[Any, Any]]:
    """A channel, and the other end with these handlers; both receive."""
    ends = [
        await Channel.open(end, given)
        for end, given in zip(
            socket.socketpair(), ({}, {"hello": str, **handlers}), strict=True
        )
    ]
    receiving = [asyncio.ensure_future(end.run()) for end in ends]
    try:
        await ends[0].ask("hello")
        yield ends[0], receiving[1]
    finally:
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)


async def test_each_request_gets_its_own_answer():
    async with connected(double=lambda number: 2 * number) as (channel, _):
        answers = await asyncio.gather(*(channel.ask("double", n) for n in range(50)))
    assert answers == [2 * n for n in range(50)]


async def test_notices_arrive_in_their_order_and_have_no_answer():
    received: list[int] = []
    async with connected(note=received.append, all=lambda: received) as (channel, _):
        for number in range(50):
            channel.notify("note", number)
        assert await channel.ask("all") == list(range(50))


async def test_a_request_fails_when_the_other_process_ends():
    async with connected() as (channel, other):
        asking = asyncio.ensure_future(channel.ask("nothing"))
        other.cancel()  # before it has read the request
        with pytest.raises(ConnectionError):
            await asking
        with pytest.raises(ConnectionError):
            await channel.ask("nothing")


async def test_a_part_of_a_message_is_the_end_of_the_other_process():
    own, other = socket.socketpair()
    channel = await Channel.open(own, {})
    with other:
        other.sendall(b'[0,"chan')
    await channel.run()
    with pytest.raises(ConnectionError):
        await channel.ask("nothing")


async def test_a_request_that_fails_leaves_the_channel_open(
    caplog: pytest.LogCaptureFixture,
):
    handlers = {"divide": lambda one, other: one / other, "wrong": lambda: object()}
    async with connected(**handlers) as (channel, _):
        for request in (("divide", 1, 0), ("wrong",), ("unknown",)):
            with pytest.raises(ConnectionError):
                await channel.ask(*request)
        channel.notify("divide", 1, 0)
        assert await channel.ask("divide", 1, 2) == 0.5
    assert caplog.text.count("of the other process failed") == 4


async def test_one_request_waits_for_a_process_that_is_stalled(
    monkeypatch: pytest.MonkeyPatch,
):
    own, other = socket.socketpair()
    with other:
        channel = await Channel.open(own, {})
        monkeypatch.setattr(channels, "RETRY_PAUSE", 1000.0)
        monkeypatch.setattr(channels, "PATIENCE", 0.01)
        with pytest.raises(TimeoutError):
            await channel.ask("nothing")
        monkeypatch.setattr(channels, "PATIENCE", 1000.0)
        with pytest.raises(TimeoutError):
            await channel.ask("nothing")
        close = await SharedConnections(channel).open(TOKEN, True)
        close()
    await channel.run()


async def test_the_limit_of_connections_refuses_new_work_only(settings: Any):
    settings.MAX_CONNECTIONS = 2
    settings.TOKEN_CONNECTIONS = 0
    closing = [register(2, 1, is_work=True) for _ in range(2)]
    with pytest.raises(ServerBusy):
        register(2, 1, is_work=True)
    closing.append(register(2, 1, is_work=False))
    for close in closing[:2]:
        close()
    register(2, 1, is_work=True)()
    closing[2]()


async def test_without_the_other_process_this_one_counts_alone():
    async with connected() as (channel, other):
        other.cancel()
        await asyncio.wait([other])
        buckets = EngineBuckets(channel)
        charges = [Charge("requests", 1, 1)]
        verdicts = [await buckets.atake("somebody", charges) for _ in range(3)]
        assert [each.is_allowed for each in verdicts] == [True, False, False]
        close = await SharedConnections(channel).open(TOKEN, True)
        close()


async def test_what_was_used_is_charged_without_waiting():
    taken: list[Any] = []

    def take(owner: str, charges: Any) -> tuple[bool, list[float]]:
        taken.append((owner, charges))
        return True, [0.0] * len(charges)

    async with connected(take=take) as (channel, _):
        buckets = EngineBuckets(channel)
        used = Charge("tokens", 10, 3, is_unconditional=True)
        assert buckets.take("somebody", [used]).is_allowed
        refund = Charge("tokens", 10, 1)
        assert (await asyncio.to_thread(buckets.take, "somebody", [refund])).is_allowed
    assert [owner for owner, _ in taken] == ["somebody"] * 2
    assert taken[0][1] == [["tokens", 10, 3, True, True]]


@pytest.mark.parametrize("error", [ServerBusy, TooManyConnections])
async def test_a_refused_connection_is_refused_here(error: type[Exception]):
    refusal = (error.__name__, "Close one first.", 5.0)
    async with connected(open=lambda *_: refusal, close=lambda _: None) as (channel, _):
        with pytest.raises(error, match="Close one first"):
            await SharedConnections(channel).open(TOKEN, True)
