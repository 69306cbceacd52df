"""Stop sequences for models without them, and for APIs that report which one was found.

Deltas in, deltas out. Text that may be the start of a sequence is held back until the
next text decides.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from conversations.history import BYTES_A_TOKEN, estimate
from conversations.loop import Stream
from llm.client import Call
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    Key,
    StartDelta,
    TextDelta,
    UsageDelta,
)
from llm.wire.request import Request


class Stops:
    """Searches one answer's text for `sequences`; `found` is the first match."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.found: str | None = None
        self._sequences = [sequence for sequence in sequences if sequence]
        self._key: Key = None  # of the buffered text
        self._held = ""

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        """The deltas to pass on. After a stop sequence only usage passes."""
        told: list[Delta] = []
        for delta in deltas:
            match delta:
                case UsageDelta() | StartDelta():
                    told.append(delta)
                case _ if self.found:
                    continue
                case TextDelta():
                    told += self._text(delta)
                case _:
                    told += [*self.close(), delta]
        return told

    def close(self) -> list[Delta]:
        """The buffered text, which is no stop sequence after all."""
        held, self._held = self._held, ""
        return [TextDelta(self._key, held)] if held else []

    def _text(self, delta: TextDelta) -> list[Delta]:
        before = [] if delta.key == self._key else self.close()
        text, self._held, self._key = self._held + delta.text, "", delta.key
        places = [(text.find(s), s) for s in self._sequences if s in text]
        if places:
            at, self.found = min(places)
            finish = FinishDelta("stop", "stop_sequence")
            return [*before, replace(delta, text=text[:at]), finish]
        kept = len(text) - self._beginning(text)
        text, self._held = text[:kept], text[kept:]
        return [*before, replace(delta, text=text)] if text else before

    def _beginning(self, text: str) -> int:
        """The number of characters at the end of `text` that may begin a sequence."""
        longest = max((len(s) - 1 for s in self._sequences), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-length:]) for s in self._sequences):
                return length
        return 0


def stopping(stream: Stream, stops: Stops) -> Stream:
    """`stream`, closed as soon as a stop sequence is found."""

    async def stopped(
        request: Request, call: Call
    ) -> AsyncGenerator[list[Delta], None]:
        size, usage = 0, False
        batches = stream(replace(request, stop=()), call)
        async with aclosing(batches):
            async for deltas in batches:
                usage |= any(isinstance(delta, UsageDelta) for delta in deltas)
                size += sum(len(d.text) for d in deltas if isinstance(d, TextDelta))
                if told := stops.feed(deltas):
                    yield told
                if stops.found:
                    break
            else:
                if rest := stops.close():
                    yield rest
                return
        if not usage:
            # A closed stream sends no usage, so it is estimated.
            read = estimate(request.instructions, request.items, request.tools)
            yield [UsageDelta(read, max(1, size // BYTES_A_TOKEN))]

    return stopped
