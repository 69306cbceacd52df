"""What a generation came to: the answer, and the same facts about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypedDict

from llm import prices
from llm.adapt import added
from llm.client import Call
from llm.provider import Route
from llm.wire.deltas import StartDelta, UsageDelta
from llm.wire.items import Item


class Metadata(TypedDict):
    """Always all of these keys; None where nobody knows."""

    provider: str  # as staff know it
    model: str  # as the provider calls what answered
    latency_ms: int | None  # of all calls and the waits between them
    ttft_ms: int | None  # to the first word of the answer
    input_tokens: int | None  # those read from and written to a cache included
    output_tokens: int | None  # those of reasoning included
    total_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    api_calls: int  # requests to a provider, failed ones included
    tool_rounds: int
    response_id: str  # ours
    response_status: str
    provider_request_id: str | None  # of the last call, for the provider's support
    cost: float | None  # USD
    degraded: list[str]  # what was asked differently than it was wished for


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    text: str  # what the model said, a refusal included
    #: All that it answered; send them along to go on from here.
    items: Sequence[Item]
    metadata: Metadata
    response: Mapping[str, Any] = field(repr=False)  # as our API would tell it
    parsed: Any = None  # of an answer that had to be JSON

    @property
    def calls(self) -> list[Item]:
        """The tools it wants to be called; those cut short are not among them."""
        return [
            item
            for item in self.items
            if item["type"] == "function_call" and item["status"] == "completed"
        ]

    @property
    def refusal(self) -> str:
        """What it said where it refused to answer; "" where it did not."""
        return "".join(
            part["refusal"]
            for item in self.items
            if item["type"] == "message"
            for part in item["content"]
            if part["type"] == "refusal"
        )


def metadata_of(
    calls: Sequence[Call],
    response: Mapping[str, Any],
    *,
    route: Route,
    costs: Sequence[Decimal | None],
) -> Metadata:
    """Of a response and the provider calls made for it, oldest first.

    `route` is where it was to go, for one that came to no call.
    """
    last = calls[-1] if calls else Call()
    route = last.route or route
    usage = _total(calls)
    known = [cost for cost in costs if cost is not None]
    return {
        "provider": route.provider_name or route.endpoint.provider.name,
        "model": (last.start or StartDelta()).model or route.model,
        "latency_ms": _milliseconds(_span(calls, last.latency)),
        "ttft_ms": _milliseconds(_to_first_word(calls)),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": _sum(usage.input_tokens, usage.output_tokens),
        "cached_input_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "api_calls": len(calls),
        "tool_rounds": 0,  # a call of the library runs no tools
        "response_id": response["id"],
        "response_status": response["status"],
        "provider_request_id": last.request_id or None,
        "cost": float(sum(known)) if known else None,
        "degraded": list(dict.fromkeys(what for c in calls for what in c.degraded)),
    }


def cost_of(call: Call, route: Route) -> Decimal | None:
    """What one call cost in USD; None where nobody knows."""
    host = route.endpoint.provider
    return prices.cost(
        call.usage or UsageDelta(),
        kind=host.name,
        base_url=route.endpoint.base_url or host.base_url,
        models=((call.start or StartDelta()).model, route.model),
        prices=route.prices,
    )


def _total(calls: Sequence[Call]) -> UsageDelta:
    total = UsageDelta()
    for call in calls:
        total = added(total, call.usage or UsageDelta())
    return total


def _to_first_word(calls: Sequence[Call]) -> float | None:
    """Of what people have heard: those calls that continue others had one before."""
    for count in range(len(calls), 0, -1):
        if not calls[count - 1].continues:
            return _span(calls[:count], calls[count - 1].ttft)
    return None


def _span(calls: Sequence[Call], seconds: float | None) -> float | None:
    """From the first call's start to so many seconds after the last one's."""
    if seconds is None or not calls:
        return None
    return calls[-1].started_at - calls[0].started_at + seconds


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None and other is None:
        return None
    return (one or 0) + (other or 0)
