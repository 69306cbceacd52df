"""Entries for subscribers of a turn whose log is continued from rows.

Every process makes its own fallback entries. Their batches have other boundaries than
the run's events and than the batches of other processes. A subscriber continues where a
batch of this process begins or ends. At any other position, which another process has
sent it, it is *reset*: it drops the items that were not complete there, and its
position goes back to a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from conversations.engine.event_log import (
    Entry,
    Position,
    TurnLog,
    entries_after,
    reset_entry,
)


def fallback_entries(log: TurnLog, after: Position | None) -> list[Entry]:
    """The entries beyond those of the log itself for a subscriber at `after`; empty if
    the rows know no more. They are sent as one batch."""
    fallback = log.fallback
    ends = [batch[-1].log_position for batch in fallback]
    if after is not None and after.epoch < ends[0].epoch:
        # A fallback in a later epoch than the subscriber is complete by itself.
        return entries_after([*chain.from_iterable(fallback)], after)
    known = log.entries[-1].log_position if log.entries else None
    if after is not None and after not in (known, *ends):
        return _reset(log, after)
    batches = zip(fallback, ends, strict=True)
    return [e for batch, end in batches if after is None or end > after for e in batch]


def _reset(log: TurnLog, after: Position) -> list[Entry]:
    """A reset and all entries from the first item that was not complete at `after`."""
    entries = [*chain.from_iterable(log.fallback)]
    if log.epoch == after.epoch:
        entries = [*log.entries, *entries]
    if after.epoch != entries[-1].epoch or after >= entries[-1].log_position:
        return []  # the rows do not know more yet
    index, start = _first_incomplete(entries, after)
    rest = entries[start:]
    back = entries[start - 1].log_position
    return [reset_entry(log.turn_id, back, index), *rest]


def _first_incomplete(entries: Sequence[Entry], after: Position) -> tuple[int, int]:
    """The index of the first item that was not complete at `after`, and the place in
    `entries` where it begins. No earlier item ends beyond that place."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for number, entry in enumerate(entries):
        if entry.type == "response.output_item.added":
            begins[entry.event["output_index"]] = number
        elif entry.type == "response.output_item.done":
            ends[entry.event["output_index"]] = number
    read = sum(entry.log_position <= after for entry in entries)
    index = next(n for n in range(len(begins) + 1) if ends.get(n, read) >= read)
    start = begins.get(index, read)
    while overlapping := [n for n in range(index) if ends[n] >= start]:
        index = overlapping[0]
        start = begins[index]
    return index, start
