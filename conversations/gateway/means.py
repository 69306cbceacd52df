"""`Resources`: what the endpoints of one event loop share."""

from __future__ import annotations

import asyncio

from conversations import limits
from conversations.engine.database import Database
from conversations.gateway.records import Records
from conversations.gateway.tokens import Tokens


class Means:
    """The database, the write queue and the token cache of one event loop."""

    def __init__(self) -> None:
        self.database = Database()
        self.records = Records(self.database)
        self.tokens = Tokens(self.database, self.records)

    async def close(self) -> None:
        await self.records.close()
        await limits.aclose()
        await self.database.close()


_means: dict[asyncio.AbstractEventLoop, Means] = {}


def means() -> Means:
    """The resources of the running loop, created on first use."""
    loop = asyncio.get_running_loop()
    if (found := _means.get(loop)) is None:
        for ended in [other for other in _means if other.is_closed()]:
            del _means[ended]
        found = _means[loop] = Means()
    return found


async def close() -> None:
    """Close the running loop's resources, at shutdown after the last request."""
    if found := _means.pop(asyncio.get_running_loop(), None):
        await found.close()
