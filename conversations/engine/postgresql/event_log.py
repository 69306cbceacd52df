"""The event log of many processes, stored in PostgreSQL."""

from __future__ import annotations

from conversations.engine.postgresql.bus import PostgresBus
from conversations.engine.postgresql.publisher import PostgresPublisher
from conversations.engine.postgresql.subscriber import PostgresSubscriber
from conversations.engine.shared_log.shared_log import SharedLog


class PostgresLog(SharedLog):
    def __init__(self, bus: PostgresBus) -> None:
        super().__init__(PostgresPublisher(bus), PostgresSubscriber(bus))
