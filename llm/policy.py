"""Calls with retries and fallbacks, by the policy of the model.

`stream` makes the calls (`llm.generation.retries`), and `routes_of` finds the fallbacks
(`llm.router`).
"""

from __future__ import annotations

from dataclasses import replace

from llm.generation.retries import StreamOptions, policy_of, stream
from llm.generation.retry_policy import Policy
from llm.http.client import ProviderCall
from llm.router import routes_of
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta

__all__ = [
    "Policy",
    "StreamOptions",
    "calls_made",
    "policy_of",
    "routes_of",
    "stream",
]


def calls_made(
    call: ProviderCall,
    *,
    start: StartDelta,
    usage: UsageDelta,
    finish: FinishDelta | None,
) -> list[ProviderCall]:
    """All attempts, oldest first, each with its usage and end.

    Those of the last call are what the caller received, unless set in the call.
    """
    last = replace(
        call,
        start=call.start or start,
        usage=call.usage or usage,
        finish=call.finish or finish,
    )
    return [*call.earlier, last]
