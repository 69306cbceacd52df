"""Subscribers that reconnect, and what they must have received in the end."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from itertools import pairwise

import httpx
from websockets.exceptions import WebSocketException

from tests.integration.clients import (
    PositionedEvent,
    Program,
    Screen,
    events_of_turn,
    socket,
)
from tests.serving import ServerProcess

#: Errors of a client whose server stops or starts.
BROKEN = (OSError, httpx.TransportError, WebSocketException, AssertionError)
LONG = 240  # seconds until a turn that does not end is a failure


async def read(
    events: AsyncIterator[PositionedEvent],
    screen: Screen,
    limit: int = 10**9,
    length: int = 10**9,
) -> None:
    """Show up to `limit` events, or until a text of this length is on the screen."""
    async with aclosing(events):
        async for position, event in events:
            screen.show(position, event)
            limit -= 1
            if limit <= 0 or screen.over or len(screen.text) >= length:
                return


async def whole(program: Program, turn: str, screen: Screen | None = None) -> Screen:
    """Follow to the end, coming back whenever the stream breaks off."""
    screen = screen or Screen()
    async with asyncio.timeout(LONG):
        while not screen.over:
            with suppress(*BROKEN):
                await read(program.follow(turn, screen.position), screen)
            await asyncio.sleep(0.05)
    return screen


def assert_no_gap(screen: Screen) -> None:
    """Every position follows the one before it."""
    places = [tuple(map(int, p.split("-"))) for p in screen.positions]
    jumps = [(a, b) for a, b in pairwise(places) if b != (a[0], a[1] + 1)]
    assert jumps == []


def assert_nothing_twice(screen: Screen) -> None:
    """Positions increase, and none is repeated; an epoch begins where it must."""
    places = [tuple(map(int, p.split("-"))) for p in screen.positions]
    assert places == sorted(set(places))


class EntryPoint:
    """Where a subscriber connects: a process, over SSE or over a WebSocket."""

    def __init__(self, server: ServerProcess, token: str, cookie: str = "") -> None:
        self.program = Program(server, token=token)
        self._server = server
        self._cookie = cookie  # of subscribers over WebSocket

    async def follow(
        self, conversation: str, turn: str, screen: Screen, length: int
    ) -> None:
        """Until a text of this length is on the screen, or the end."""
        if not self._cookie:
            events = self.program.follow(turn, screen.position)
            await read(events, screen, length=length)
            return
        async with socket(self._server, conversation, self._cookie) as connection:
            wish = {"type": "turn.follow", "turn": turn, "after": screen.position}
            await connection.send(json.dumps(wish))
            await read(events_of_turn(connection, turn), screen, length=length)


async def wander(
    doors: Sequence[EntryPoint],
    conversation: str,
    turn: str,
    *,
    length: int,
    times: int,
) -> Screen:
    """Follow a turn whose text will be so long, disconnecting so many times at random
    moments, and reconnecting at another entry point."""
    screen, dice, number = Screen(), random.Random(7), 0
    async with asyncio.timeout(LONG):
        for left in range(times, -1, -1):
            rest = length - len(screen.text)
            moment = len(screen.text) + dice.randint(1, max(1, 2 * rest // (left + 2)))
            moment = moment if left else length + 1
            while not screen.over and len(screen.text) < moment:
                with suppress(*BROKEN):
                    await doors[number].follow(conversation, turn, screen, moment)
                number = (number + dice.randrange(1, len(doors))) % len(doors)
                await asyncio.sleep(0.05)
            assert left == 0 or not screen.over
    return screen
