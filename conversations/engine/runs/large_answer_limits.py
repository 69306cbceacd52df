"""Large answers of all runs of a process: how many may end at once, or go on at once.

Many large answers that end together would all be held whole, and encoded, at once. And
while they grow, each is held twice: by its run, and by the log for its subscribers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

#: Characters of all large answers together, above which only the longest goes on. The
#: others are not read from their providers until it has been written to its rows.
MOST_OPEN = 64_000_000


class LargeAnswers:
    """What the large answers of a process share."""

    def __init__(self) -> None:
        self.slot = asyncio.Semaphore(1)  # one large answer ends at a time
        self._lengths: dict[LargeAnswer, int] = {}
        self._shrunk = asyncio.Event()  # replaced when it is set

    def note(self, answer: LargeAnswer, length: int) -> None:
        before = self._lengths.get(answer, 0)
        self._lengths[answer] = length
        if length < before:
            self._wake()

    def forget(self, answer: LargeAnswer) -> None:
        if self._lengths.pop(answer, None) is not None:
            self._wake()

    async def wait_for_room(self, answer: LargeAnswer) -> None:
        lengths = self._lengths
        while sum(lengths.values()) > MOST_OPEN:
            if lengths[answer] >= max(lengths.values()):
                return
            await self._shrunk.wait()

    def _wake(self) -> None:
        self._shrunk.set()
        self._shrunk = asyncio.Event()


@dataclass(slots=True, eq=False, repr=False)
class LargeAnswer:
    """A run's part in them. An answer that ends holds the slot until its rows are
    written."""

    all_answers: LargeAnswers
    needs_release: bool = False
    _is_held: bool = False

    async def wait_for_room(self, length: int) -> None:
        """Called when the answer has grown, to so many characters."""
        self.needs_release = True
        self.all_answers.note(self, length)
        await self.all_answers.wait_for_room(self)

    async def acquire(self) -> None:
        """Wait for the slot."""
        self.needs_release = True
        if not self._is_held:
            await self.all_answers.slot.acquire()
            self._is_held = True

    def release(self) -> None:
        """The answer has been written, or will not be."""
        self.needs_release = False
        self.all_answers.forget(self)
        if self._is_held:
            self._is_held = False
            self.all_answers.slot.release()
