"""The engine of a single process: event logs in memory, one SQLite database.

Only the process that holds the lock on the data folder runs turns, so at its start the
process of every running turn is gone.
"""

from __future__ import annotations

import logging

from conversations.engine import background_store, turn_store
from conversations.engine.database.executor import REST, Database
from conversations.engine.engine import Engine
from conversations.engine.event_log import MemoryLog

logger = logging.getLogger(__name__)


class EmbeddedEngine(Engine):
    def __init__(self) -> None:
        super().__init__(MemoryLog(), Database(rest=REST))

    async def start(self) -> None:
        found = await self._database.write(turn_store.release_all)
        await self._database.write(background_store.release_all)
        if found:
            logger.info("%d interrupted turns will go on", found)
        await super().start()
