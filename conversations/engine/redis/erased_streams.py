"""Deletion of the streams of erased turns, with the large events beside them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from conversations.engine.event_log import Position
from conversations.engine.redis.encoding import FIELD, large_event_key, stream_key
from conversations.engine.shared_log.event_batches import STORED_SEPARATELY, unpack

PATIENCE = 5  # seconds

logger = logging.getLogger(__name__)


def erase_streams(url: str, turn_ids: Sequence[str]) -> None:
    timeouts = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
    try:
        with Redis.from_url(url, **timeouts) as client:
            for turn_id in turn_ids:
                client.delete(*_large_keys(client, turn_id), stream_key(turn_id))
    except (RedisError, OSError) as exc:
        logger.warning(
            "events of erased turns stay in Redis until they expire: %s",
            type(exc).__name__,
        )


def _large_keys(client: Any, turn_id: str) -> Iterator[str]:
    for start, fields in client.xrange(stream_key(turn_id)):
        data = fields[FIELD]
        entries = unpack(turn_id, Position.parse(start.decode()), data) if data else ()
        for entry in entries:
            if entry.data == STORED_SEPARATELY:
                yield large_event_key(turn_id, entry.log_position)
