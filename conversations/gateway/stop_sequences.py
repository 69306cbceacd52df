"""Stop sequences for models without them, and for APIs that report which one was found.

Deltas in, deltas out. Text that may be the start of a sequence is held back until the
next text decides.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from conversations.turns.history import estimate_tokens
from llm.adaptation.adapt import merge_usage
from llm.http.client import ProviderCall, Stream
from llm.pricing.usage_estimate import estimate_usage, measure_answer
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    Key,
    StartDelta,
    TextDelta,
    UsageDelta,
)
from llm.wire.request import Request


class StopSequenceFilter:
    """Searches one answer's text for `sequences`; `found` is the first match."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.found: str | None = None
        self._sequences = [sequence for sequence in sequences if sequence]
        self._key: Key = None  # of the buffered text
        self._buffered = ""

    def feed(self, deltas: Sequence[Delta]) -> list[Delta]:
        """The deltas to pass on. After a stop sequence only usage passes."""
        passed: list[Delta] = []
        for delta in deltas:
            match delta:
                case UsageDelta() | StartDelta():
                    passed.append(delta)
                case _ if self.found:
                    continue
                case TextDelta():
                    passed += self._text(delta)
                case _:
                    passed += [*self.close(), delta]
        return passed

    def close(self) -> list[Delta]:
        """The buffered text, which is no stop sequence after all."""
        text, self._buffered = self._buffered, ""
        return [TextDelta(self._key, text)] if text else []

    def _text(self, delta: TextDelta) -> list[Delta]:
        before = [] if delta.key == self._key else self.close()
        text, self._buffered, self._key = self._buffered + delta.text, "", delta.key
        matches = [(text.find(s), s) for s in self._sequences if s in text]
        if matches:
            at, self.found = min(matches)
            finish = FinishDelta("stop", "stop_sequence")
            return [*before, replace(delta, text=text[:at]), finish]
        safe_length = len(text) - self._partial_length(text)
        text, self._buffered = text[:safe_length], text[safe_length:]
        return [*before, replace(delta, text=text)] if text else before

    def _partial_length(self, text: str) -> int:
        """The number of characters at the end of `text` that may begin a sequence."""
        longest = max((len(s) - 1 for s in self._sequences), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-length:]) for s in self._sequences):
                return length
        return 0


def stop_at_sequences(stream: Stream, stop_filter: StopSequenceFilter) -> Stream:
    """`stream`, closed as soon as a stop sequence is found."""

    async def stream_until_stop(
        request: Request, call: ProviderCall
    ) -> AsyncGenerator[list[Delta], None]:
        size, usage, has_ended = 0, UsageDelta(), False
        batches = stream(replace(request, stop=()), call)
        async with aclosing(batches):
            async for deltas in batches:
                size += measure_answer(deltas)
                for delta in deltas:
                    has_ended |= isinstance(delta, FinishDelta)
                    if isinstance(delta, UsageDelta):
                        usage = merge_usage(usage, delta)
                if passed := stop_filter.feed(deltas):
                    yield passed
                if stop_filter.found:
                    break
            else:
                if rest := stop_filter.close():
                    yield rest
                return
        # A closed stream sends no usage, or only that of its beginning.
        whole, is_estimated = estimate_usage(
            usage,
            prompt_tokens=call.prompt_tokens or _estimate_prompt(request),
            answer_bytes=size,
            has_ended=has_ended,
        )
        if is_estimated:
            call.is_usage_estimated = True
            yield [UsageDelta(whole.input_tokens, whole.output_tokens)]

    return stream_until_stop


def _estimate_prompt(request: Request) -> int:
    return estimate_tokens(request.instructions, request.items, request.tools)
