"""The result of a generation and its metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypedDict

from llm.adaptation.adapt import add_usage
from llm.http.client import ProviderCall
from llm.pricing import cost as prices
from llm.pricing.usage_estimate import include_apart
from llm.provider import Route
from llm.wire.deltas import StartDelta, UsageDelta
from llm.wire.items import Item, call_ids, output_text


class Metadata(TypedDict):
    """Has all of these keys always; None if unknown."""

    provider: str  # the name of the provider's row
    model: str  # the answering model, as the provider names it
    latency_ms: int | None  # of all calls and what is between them
    ttft_ms: int | None  # to the first token of the answer
    input_tokens: int | None  # including cache reads and writes
    output_tokens: int | None  # including reasoning
    total_tokens: int | None
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    model_ms: int  # of the requests to providers, added up
    tool_ms: int  # of the tool calls, added up
    api_calls: int  # requests to a provider, failed ones included
    tool_rounds: int  # in which tools of this program ran
    tool_calls: int
    response_id: str  # our API's
    response_status: str
    provider_request_id: str | None  # of the last call, for the provider's support
    cost: float | None  # USD
    degraded: list[str]  # what differs from the request


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    text: str  # the text of the answer, refusals included
    #: All output items; include them in the next input to continue.
    items: Sequence[Item]
    metadata: Metadata
    response: Mapping[str, Any] = field(repr=False)  # as our API returns it
    parsed: Any = None  # the value of a JSON answer

    #: Results of background calls that came when the model could not be called any
    #: more, as messages; append them to the next input, after the outputs of `calls`.
    late_results: Sequence[Item] = ()

    @property
    def answer(self) -> Sequence[Item]:
        """The items since the last tool output: what the model answered in the end."""
        return items_of_answer(self.items)

    @property
    def calls(self) -> list[Item]:
        """The complete tool calls that have no output yet."""
        _, answered = call_ids(self.items)
        return [
            item
            for item in self.items
            if item["type"] == "function_call"
            and item["status"] == "completed"
            and item["call_id"] not in answered
        ]

    @property
    def refusal(self) -> str:
        """The text of a refusal; "" if the model did not refuse."""
        return "".join(
            part["refusal"]
            for item in self.items
            if item["type"] == "message"
            for part in item["content"]
            if part["type"] == "refusal"
        )


def items_of_answer(items: Sequence[Item]) -> Sequence[Item]:
    """The items after the last that this program added: an output or a message."""
    for end in range(len(items), 0, -1):
        if _is_added(items[end - 1]):
            return items[end:]
    return items


def answer_text(items: Sequence[Item]) -> str:
    return output_text(items_of_answer(items))


def _is_added(item: Item) -> bool:
    return item["type"] == "function_call_output" or item.get("role") == "user"


def metadata_of(
    calls: Sequence[ProviderCall],
    response: Mapping[str, Any],
    *,
    route: Route,
    costs: Sequence[Decimal | None],
    first_step: int | None = None,
    tool_seconds: float = 0.0,
) -> Metadata:
    """Metadata of a response and its provider calls, oldest first.

    `route` is the intended route, for a response without a call. `first_step` is the
    number of calls that were made for the first step; None for all.
    """
    last = calls[-1] if calls else ProviderCall()
    route = last.route or route
    usage = _total(calls)
    known = [cost for cost in costs if cost is not None]
    return {
        "provider": route.provider_name or route.endpoint.provider.name,
        "model": (last.start or StartDelta()).model or route.model,
        "latency_ms": _milliseconds(_span(calls, last.latency)),
        "ttft_ms": _milliseconds(_to_first_token(calls[:first_step])),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": _sum(usage.input_tokens, usage.output_tokens),
        "cached_input_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "model_ms": round(sum(c.latency or 0.0 for c in calls) * 1000),
        "tool_ms": round(tool_seconds * 1000),
        "api_calls": len(calls),
        "tool_rounds": _count_rounds(response["output"]),
        "tool_calls": len(call_ids(response["output"])[1]),
        "response_id": response["id"],
        "response_status": response["status"],
        "provider_request_id": last.request_id or None,
        "cost": float(sum(known)) if known else None,
        "degraded": list(dict.fromkeys(what for c in calls for what in c.degraded)),
    }


def _count_rounds(output: Sequence[Item]) -> int:
    """Rounds of tool calls; the outputs of one round follow each other."""
    kinds = ["", *(item["type"] for item in output)]
    return sum(
        kind == "function_call_output" != before for before, kind in pairwise(kinds)
    )


def cost_of(call: ProviderCall, route: Route) -> Decimal | None:
    """The cost of one call in USD; None if unknown."""
    host = route.endpoint.provider
    return prices.cost(
        call.usage or UsageDelta(),
        kind=host.name,
        base_url=route.endpoint.base_url or host.base_url,
        models=((call.start or StartDelta()).model, route.model),
        prices=prices.prices_at(route.prices, route.price_schedule),
    )


def _total(calls: Sequence[ProviderCall]) -> UsageDelta:
    total = UsageDelta()
    for call in calls:
        total = add_usage(total, call.usage or UsageDelta())
    return include_apart(total)


def _to_first_token(calls: Sequence[ProviderCall]) -> float | None:
    """To the first token that users saw: a call that continues another is not the
    first."""
    for count in range(len(calls), 0, -1):
        if not calls[count - 1].continues:
            return _span(calls[:count], calls[count - 1].ttft)
    return None


def _span(calls: Sequence[ProviderCall], seconds: float | None) -> float | None:
    """From the first call's start to `seconds` after the last one's start."""
    if seconds is None or not calls:
        return None
    return calls[-1].started_at - calls[0].started_at + seconds


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None and other is None:
        return None
    return (one or 0) + (other or 0)
