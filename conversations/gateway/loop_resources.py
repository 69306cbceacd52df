"""`Resources` of an event loop: the database, the write queue and the token cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conversations.access import overload, rate_limits
from conversations.engine.database.executor import Database
from conversations.engine.process.fair_slots import FairSlots
from conversations.gateway.exchanges.key_leases import KeyLeases
from conversations.gateway.token_access import TokenAuthenticator
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.models.access_token import AccessToken
from llm.concurrency.per_loop import PerLoop

#: Stored responses that are opened at once, where the engine does not open them itself.
#: Others wait for one of these slots, not for the one thread that writes: here users
#: are served in turn, and the wait is measured.
MAX_OPENINGS = 2


class Resources:
    """What the endpoints share that are served by one event loop."""

    #: In a gateway process, the address of the process with the engine, and a function
    #: that counts an open request there, which may be new work, and returns a function
    #: to be called at the end.
    engine_address = ""
    share_connection: (
        Callable[[AccessToken, bool], Awaitable[Callable[[], None]]] | None
    ) = None

    def __init__(self) -> None:
        self.database = Database()
        self.write_queue = WriteBehindQueue(self.database)
        self.key_leases = KeyLeases(self.database)
        self.tokens = TokenAuthenticator(self.database, self.write_queue)
        self.openings = FairSlots(MAX_OPENINGS)
        overload.load.opening_wait = self._estimate_opening_wait

    def _estimate_opening_wait(self) -> float:
        return self.openings.expected_wait

    async def close(self) -> None:
        self.key_leases.close()
        await self.write_queue.close()
        await rate_limits.aclose()
        await self.database.close()


resources = PerLoop(Resources)


async def close() -> None:
    """Close the running loop's resources, at shutdown after the last request."""
    if found := resources.pop():
        await found.close()
