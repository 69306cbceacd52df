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
from project.server.gateway_processes.channel import Channel
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


async def test_without_the_other_process_this_one_counts_alone():
    async with connected() as (channel, other):
        other.cancel()
        await asyncio.wait([other])
        buckets = EngineBuckets(channel)
        charges = [Charge("requests", 1, 1)]
        verdicts = [await buckets.atake("somebody", charges) for _ in range(3)]
        assert [each.is_allowed for each in verdicts] == [True, False, False]
        close = await SharedConnections(channel).open(TOKEN)
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
            await SharedConnections(channel).open(TOKEN)
