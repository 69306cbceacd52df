"""What the processes of the scaled delivery exchange: events and notifications.

Over Redis where REDIS_URL is set, else over PostgreSQL alone (decision 21).
"""

from __future__ import annotations

from django.conf import settings

from conversations.engine.shared_log.bus import Bus, OnNotification
from conversations.engine.shared_log.shared_log import SharedLog


def open_transport(on_notification: OnNotification) -> tuple[Bus, SharedLog]:
    """Calls `on_notification` for every notification received."""
    if settings.REDIS_URL:
        from conversations.engine.redis import event_log, pubsub

        redis_bus = pubsub.RedisBus(settings.REDIS_URL, on_notification)
        return redis_bus, event_log.RedisLog(redis_bus)
    from conversations.engine.postgresql.bus import PostgresBus
    from conversations.engine.postgresql.event_log import PostgresLog

    bus = PostgresBus(on_notification)
    return bus, PostgresLog(bus)
