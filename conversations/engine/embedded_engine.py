"""The engine over one SQLite database, with event logs in memory.

Only the process that holds the lock on the data folder runs turns, so at its start the
process of every running turn is gone.
"""

from __future__ import annotations

import logging

from conversations.engine import background_store, claim_store
from conversations.engine.database.executor import Database
from conversations.engine.engine import SWEEP, Engine
from conversations.engine.event_log import MemoryLog
from conversations.engine.webhooks import delivery_store

logger = logging.getLogger(__name__)


class EmbeddedEngine(Engine):
    def __init__(self) -> None:
        super().__init__(MemoryLog(), Database())

    async def start(self) -> None:
        found = await self.database.write(claim_store.release_all)
        await self.database.write(background_store.release_all)
        await self.database.write(delivery_store.release_all)
        for batches in (self.replays, self.evaluations):
            await self.database.write(batches.store.release_all)
        if found:
            logger.info("%d interrupted turns will be resumed", found)
        self._repeat(SWEEP, self.subscriptions.end_deleted, name="sweep")
        await super().start()


class GatewayEngine(Engine):
    """That of a gateway process beside the one which runs turns: it reports, and writes
    what limits of use have admitted."""

    runs_turns = False

    def __init__(self) -> None:
        super().__init__(MemoryLog(), Database())

    async def start(self) -> None:
        await self.start_reporting()
