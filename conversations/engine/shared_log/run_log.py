"""Log of one run: its events in batches, and how many of them the shared log has."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping

import orjson

from conversations.engine.event_log import Position, StaleEpoch, find_earlier_position
from conversations.engine.shared_log.event_batches import (
    STORED_SEPARATELY,
    Batch,
    encode_line,
    pack,
)
from llm.wire.items import Event
from llm.wire.response_builder import TERMINAL

MAX_LOG_SIZE = 64 * 1024 * 1024  # bytes of one turn; a longer one is read from its rows
MAX_TOTAL_SIZE = 256 * 1024 * 1024  # bytes of all turns in memory; beyond, those ...
SHORT_LOG_SIZE = 1024 * 1024  # ... that are longer than this are read from rows as well


class RunLog:
    """The events of one run and how much of them the shared log has. An event above
    `largest` bytes is to be stored separately."""

    def __init__(
        self,
        turn_id: str,
        on_change: Callable[[RunLog], None],
        on_fenced: Callable[[], None],
        *,
        largest: float = math.inf,
    ) -> None:
        self.turn_id = turn_id
        self.began_at = time.monotonic()
        self.epoch = 0
        self.ended = False  # the turn is over
        self.closed = False  # the run is over
        self.is_fenced = False
        self.is_full = False  # no memory left for more of it
        self.is_verified = True  # the shared log holds exactly what `sent` says
        self.sent = 0  # batches that the shared log has
        self.written = 0  # batches; those beyond `sent` are in flight
        self.batches: list[Batch] = []
        self.large: list[tuple[Position, bytes]] = []  # events to be stored separately
        self.stored: list[str] = []  # their keys
        self.size = 0  # bytes
        self._lines: list[bytes] = []
        self._next = 0  # number of the first line
        self._largest = largest
        self._on_change = on_change
        self._on_fenced = on_fenced

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        """See `event_log.Publisher`."""
        if self.is_fenced:
            raise StaleEpoch
        self.epoch = epoch
        for event in events:
            self._add(
                event,
                find_earlier_position(event, earlier_positions)
                if earlier_positions is not None
                else None,
            )
        self._on_change(self)

    def freeze(self) -> None:
        """Turn the events since the last batch into a batch, which is the same if it is
        sent again.

        A log that is too long ends with an empty batch.
        """
        if not self._lines or self.large:
            return
        if self.size <= MAX_LOG_SIZE and not self.is_full:
            self.batches.append(pack(self._next, self._lines))
        elif self.batches[-1].data:
            self.batches.append(Batch(self._next, b""))
        self.size += len(self.batches[-1].data)
        self._lines = []

    def fence(self) -> None:
        self.is_fenced = True
        self._on_fenced()

    @property
    def is_sent(self) -> bool:
        return self.is_fenced or (self.sent == len(self.batches) and not self._lines)

    def _add(self, event: Event, earlier: Position | None) -> None:
        data = orjson.dumps(event)
        if len(data) > self._largest:
            position = Position(self.epoch, event["sequence_number"])
            self.large.append((position, data))
            data = STORED_SEPARATELY
        if not self._lines:
            self._next = event["sequence_number"]
        self._lines.append(encode_line(event["type"], earlier, data))
        self.ended = self.ended or event["type"] in TERMINAL


def limit_memory(changed: Iterable[RunLog], logs: Iterable[RunLog]) -> None:
    """Limit the memory for events of all `logs` before `changed` ones are written. They
    are kept until the end of their run in case the shared log loses them."""
    long = [log for log in changed if log.size > SHORT_LOG_SIZE and not log.is_full]
    if long and sum(log.size for log in logs) > MAX_TOTAL_SIZE:
        for log in long:
            log.is_full = True
