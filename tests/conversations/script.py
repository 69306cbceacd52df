"""A provider with scripted answers, and users and rows to use it with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from llm.errors import LLMError
from llm.http.client import ProviderCall
from llm.wire.deltas import Delta, FinishDelta
from llm.wire.request import Request

HANG, CUT = "hang", "cut"


class Script:
    """One list of batches a call. A batch is a delta, a list of deltas, an error to
    raise, an event to wait for, or HANG. A call without a finish reason ends with
    "stop", or with CUT as no codec lets one end. The last call is repeated on
    request."""

    def __init__(self, *calls: Sequence[Any], pause: bool = False) -> None:
        self.calls = list(calls)
        self.requests: list[Request] = []
        self.pause = pause
        self.closed = 0
        self.hanging = 0  # how often it has come to HANG

    async def __call__(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[list[Delta], None]:
        *_, request, call = arguments
        assert isinstance(call, ProviderCall)
        self.requests.append(request)
        call.started_at = 1.0
        batches = self.calls.pop(0) if len(self.calls) > 1 else self.calls[0]
        if not any(_ends(batch) for batch in batches):
            batches = [*batches, FinishDelta("stop")]
        try:
            for batch in batches:
                if batch == CUT:
                    return
                if isinstance(batch, LLMError):
                    call.error = batch
                    raise batch
                if isinstance(batch, asyncio.Event):
                    await batch.wait()
                elif batch == HANG:
                    self.hanging += 1
                    await asyncio.Event().wait()
                else:
                    if self.pause:
                        await asyncio.sleep(0)
                    yield batch if isinstance(batch, list) else [batch]
        finally:
            self.closed += 1


class SilentHost(Script):
    """It reports no tokens. Of each call 10 are estimated for what it is sent, and 10
    for what it sends."""

    async def __call__(
        self, *arguments: Any, **options: Any
    ) -> AsyncGenerator[list[Delta], None]:
        *_, call = arguments
        call.prompt_tokens, call.answer_bytes = 10, 40
        async for batch in super().__call__(*arguments, **options):
            yield batch


def _ends(batch: Any) -> bool:
    deltas = batch if isinstance(batch, list) else [batch]
    return batch == CUT or any(isinstance(delta, FinishDelta) for delta in deltas)
