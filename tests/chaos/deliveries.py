"""The two deliveries, as something whose processes can be killed and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from tests.integration.clients import Program
from tests.scaled import Cluster
from tests.serving import ServerProcess

from .offered import offer
from .wish import Wish

How = Literal["kill", "term"]
HOWS: Sequence[How] = ("kill", "term")
#: A grace that is over before an answer is, as it is where models think for minutes.
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "tests.settings_chaos",
    "DRAIN_GRACE": "0.3",
    # An answer is held until all cases of a round are where they are interrupted.
    "LLM_IDLE_TIMEOUT": "900",
}


class Delivery(Protocol):
    name: str
    data: Path
    webs: Sequence[ServerProcess]
    programs: Sequence[Program]

    async def interrupt(self, how: How, dice: random.Random | None = None) -> None:
        """End all processes that run turns, or some at random, and start them again.
        Returns when they run."""
        ...


def notes_of(delivery: Delivery) -> Path:
    """Where the tools note what they do."""
    return delivery.data / "chaos-notes"


def open_gate(delivery: Delivery, wish: Wish, mark: str = "") -> None:
    """Let the tools that this wish has called end, or the call with this mark."""
    gates = delivery.data / "chaos-gates"
    gates.mkdir(exist_ok=True)
    (gates / (mark or wish.id)).touch()


class Embedded:
    """One process over SQLite."""

    name = "embedded"

    def __init__(self, server: ServerProcess, port: int) -> None:
        server.environment |= SETTINGS
        offer(server, port)
        self.server, self.webs = server, [server]
        self.data = server.data
        self.programs = [Program(server, token=server.create_token())]

    async def interrupt(self, how: How, dice: random.Random | None = None) -> None:
        await asyncio.to_thread(_end, self.server, how)
        await asyncio.to_thread(self.server.start)


class Scaled:
    """Web and worker processes over PostgreSQL and Redis."""

    name = "scaled"

    def __init__(self, cluster: Cluster, port: int) -> None:
        web = cluster.webs[0]
        offer(web, port)
        self.cluster, self.webs = cluster, cluster.webs
        self.data = web.data
        token = web.create_token()
        self.programs = [Program(each, token=token) for each in cluster.webs]

    async def interrupt(self, how: How, dice: random.Random | None = None) -> None:
        """All workers as a rule, since the others take up what one leaves; sometimes
        one of them, or a web process as well."""
        workers, webs = self.cluster.workers, self.cluster.webs
        victims: Sequence[ServerProcess] = workers
        if dice:
            some = [workers, workers, workers[:1], workers[1:], [*workers, *webs[1:]]]
            victims = dice.choice(some)
        await asyncio.gather(*(asyncio.to_thread(_end, v, how) for v in victims))
        for each in victims:
            await asyncio.to_thread(each.start)


def _end(process: ServerProcess, how: How) -> None:
    if how == "kill":
        process.kill()
    else:
        process.stop()
