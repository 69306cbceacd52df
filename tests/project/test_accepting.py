"""New connections are taken many at once, for as long as the server wants them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from project.accepting import Door

CALLERS = 64


class Greeter(asyncio.Protocol):
    def __init__(self, met: list[asyncio.BaseTransport]) -> None:
        self._met = met

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._met.append(transport)


class Place:
    """A server on a loop with a door, and those whom it has met."""

    def __init__(self, door: Door, server: Any, met: list[Any]) -> None:
        self.door, self.server, self.met = door, server, met
        self.address = server.sockets[0].getsockname()

    def call(self, callers: int) -> list[socket.socket]:
        """Connected by the kernel before the loop has heard of it."""
        return [socket.create_connection(self.address) for _ in range(callers)]

    async def rounds_until(self, met: int) -> int:
        rounds = 0
        while len(self.met) < met:
            await asyncio.sleep(0)
            rounds += 1
            assert rounds < 100_000, f"met {len(self.met)} only"
        return rounds


def at_a_place(act: Callable[[Place], Awaitable[None]], run: Any = uvloop.run) -> None:
    async def main() -> None:
        met: list[Any] = []
        loop = asyncio.get_running_loop()
        door = Door(loop)
        server = await loop.create_server(lambda: Greeter(met), "127.0.0.1", 0)
        place = Place(door, server, met)
        try:
            await act(place)
        finally:
            door.close()
            server.close()
            for transport in met:
                transport.close()
            await asyncio.sleep(0)

    run(main())


def hang_up(callers: list[socket.socket]) -> None:
    for caller in callers:
        caller.close()


def test_all_who_wait_are_met_within_a_few_rounds():
    async def act(place: Place) -> None:
        callers = place.call(CALLERS)
        assert await place.rounds_until(CALLERS) < CALLERS / 4
        hang_up(callers)

    at_a_place(act)


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
def test_nobody_is_met_twice_or_forgotten(run):
    async def act(place: Place) -> None:
        callers = [*place.call(5), *place.call(40)]
        await place.rounds_until(45)
        hers = {transport.get_extra_info("peername") for transport in place.met}
        assert hers == {caller.getsockname() for caller in callers}
        assert len(place.met) == 45
        hang_up(callers)

    at_a_place(act, run)


def test_the_server_goes_on_alone_when_the_door_is_closed():
    async def act(place: Place) -> None:
        place.door.close()
        callers = place.call(3)
        await place.rounds_until(3)
        hang_up(callers)

    at_a_place(act)


def test_nobody_can_come_once_door_and_server_are_closed():
    async def act(place: Place) -> None:
        place.door.close()
        place.server.close()
        await place.server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            place.call(1)

    at_a_place(act)
