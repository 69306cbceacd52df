"""`Resources`: what the endpoints of one event loop share."""

from __future__ import annotations

import asyncio

from conversations.access import rate_limits
from conversations.engine.database.executor import Database
from conversations.gateway.token_access import TokenAuthenticator
from conversations.gateway.write_behind import WriteBehindQueue


class Resources:
    """The database, the write queue and the token cache of one event loop."""

    def __init__(self) -> None:
        self.database = Database()
        self.write_queue = WriteBehindQueue(self.database)
        self.tokens = TokenAuthenticator(self.database, self.write_queue)

    async def close(self) -> None:
        await self.write_queue.close()
        await rate_limits.aclose()
        await self.database.close()


_resources: dict[asyncio.AbstractEventLoop, Resources] = {}


def resources() -> Resources:
    """The resources of the running loop, created on first use."""
    loop = asyncio.get_running_loop()
    if (found := _resources.get(loop)) is None:
        for ended in [other for other in _resources if other.is_closed()]:
            del _resources[ended]
        found = _resources[loop] = Resources()
    return found


async def close() -> None:
    """Close the running loop's resources, at shutdown after the last request."""
    if found := _resources.pop(asyncio.get_running_loop(), None):
        await found.close()
