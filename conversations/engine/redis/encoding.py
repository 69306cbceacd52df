"""Keys and limits of a turn's events in Redis. No IO.

A turn's log is the stream `parley:turn:<id>`. Each stream entry is a batch of events
(`shared_log/event_batches.py`); its id is the position of the first,
`<epoch>-<sequence>`, so Redis itself refuses a writer with an older epoch. A large
event is stored under a key of its own.
"""

from __future__ import annotations

from conversations.engine.event_log import Position

LARGE = 256 * 1024  # bytes; a larger event is stored separately
CHUNK_SIZE = 1024 * 1024  # bytes of it that one command writes or reads
FIELD = b"e"
UNFINISHED_EXPIRY = 24 * 3600  # seconds after which an open turn expires in Redis
FINISHED_EXPIRY = 300  # seconds for a finished one; it is read from rows later


def stream_key(turn_id: str) -> str:
    return f"parley:turn:{turn_id}"


def large_event_key(turn_id: str, position: Position) -> str:
    """The key of an event that is stored separately."""
    return f"parley:turn:{turn_id}:{position}"
