"""The items before the last turn of conversations, cached for the turns that follow.

Its size is a share of the machine's memory. Where it is full, a conversation gets room
only if it was used more often of late than those that it would replace, weighed by what
reading each of them again costs for every byte; a few are compared at a time. So a
rotation through more conversations than there is room for finds some of them cached;
with the one used longest ago replaced first, it would find none.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock

from django.conf import settings

from conversations.models import Turn
from conversations.turns.history import HistoryPrefix
from llm.wire.items import Item as ItemPayload

#: Memory that a character of JSON takes, once as items and once as the request to the
#: last provider: three to five bytes were measured, the most is assumed.
BYTES_PER_CHARACTER = 5
LEAST = 3_000_000  # characters, whatever the share is
#: Characters whose reading costs as much as the queries for them.
FIXED_COST = 50_000
HALF_LIFE = 600.0  # seconds after which a use counts half
REMEMBERED = 10_000  # conversations whose uses are counted
WEIGHED = 64  # conversations that are compared at once
_LIMITS = (  # of the container: cgroups in version 2 and in version 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True, slots=True)
class CachedItems:
    """The items before a turn, with the values that show whether they are current."""

    turn_id: str
    parent_id: str | None
    rewritten: int
    before: Sequence[ItemPayload]
    history_prefix: HistoryPrefix
    may_have_files: bool
    size: int  # characters of JSON

    def precede(self, turn: Turn) -> bool:
        """Whether a turn of their conversation follows from them."""
        is_current = self.rewritten == turn.conversation.rewritten
        return is_current and turn.parent_id in (self.turn_id, self.parent_id)


class ItemCache:
    """`size` in characters of JSON; without it the share of memory that the setting
    HISTORY_CACHE_SHARE names."""

    def __init__(
        self, size: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._used = 0
        #: The next ones to be weighed come first.
        self._cached: OrderedDict[str, CachedItems] = OrderedDict()
        self.get = self._cached.get  # by the id of a conversation
        #: Of a conversation: its uses, and when they were last counted.
        self._uses: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._clock = clock
        self._lock = Lock()

    def store(self, conversation_id: str, new: CachedItems) -> None:
        with self._lock:
            if self._size is None:
                self._size = _share_of_memory()
            now = self._clock()
            value = self._value(conversation_id, new.size, now)
            self._note_use(conversation_id, now)
            is_known = conversation_id in self._cached
            self._drop(conversation_id)
            freed = self._find_room(new.size, now, None if is_known else value)
            if freed is None:
                return
            for each in freed:
                self._drop(each)
            self._cached[conversation_id] = new
            self._used += new.size

    def _find_room(
        self, size: int, now: float, value: float | None
    ) -> list[str] | None:
        """The conversations to be dropped for one of this size and value; None if it
        gets no room. One that was cached before has no value here: it gets room."""
        assert self._size is not None
        missing = self._used + size - self._size
        if missing <= 0:
            return []
        if size > self._size:
            return None
        dropped: list[str] = []
        for each, its_value in self._weigh(now):
            if value is not None and its_value >= value:
                return None
            dropped.append(each)
            missing -= self._cached[each].size
            if missing <= 0:
                break
        return dropped

    def _weigh(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield cached conversations with their values: a few of them, the least value
        first, then the next few.

        To compare all of them would cost each turn more, the more are cached. Those
        that were weighed come last, so that all have their turn.
        """
        left = len(self._cached)
        while left > 0:
            few = list(islice(self._cached, min(left, WEIGHED)))
            left -= len(few)
            for each in few:
                self._cached.move_to_end(each)
            values = {
                each: self._value(each, self._cached[each].size, now) for each in few
            }
            for each in sorted(values, key=values.__getitem__):
                yield each, values[each]

    def _drop(self, conversation_id: str) -> None:
        if cached := self._cached.pop(conversation_id, None):
            self._used -= cached.size

    def _value(self, conversation_id: str, size: int, now: float) -> float:
        """What it saves for each character: uses of late, times the cost of a read."""
        recent = self._recent_uses(conversation_id, now)
        return recent * (1 + FIXED_COST / max(size, 1))

    def _note_use(self, conversation_id: str, now: float) -> None:
        recent = self._recent_uses(conversation_id, now)
        self._uses.pop(conversation_id, None)
        self._uses[conversation_id] = (recent + 1, now)
        if len(self._uses) > REMEMBERED:
            self._uses.popitem(last=False)

    def _recent_uses(self, conversation_id: str, now: float) -> float:
        uses, counted_at = self._uses.get(conversation_id, (0.0, now))
        return uses * math.exp2((counted_at - now) / HALF_LIFE)


def _share_of_memory() -> int:
    """The cache's size in characters."""
    share = float(settings.HISTORY_CACHE_SHARE) / 100
    return max(LEAST, int(memory_limit() * share / BYTES_PER_CHARACTER))


def memory_limit() -> int:
    """Bytes that this process may use: those of the machine, or fewer in a
    container."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # another system, or "max"
            limits.append(int(path.read_text()))
    return min(limits)
