"""What became of a request, for a client that asks with `parley.explain`.

The same object for all three APIs, from the rows of the request's provider calls: which
model answered, each attempt, what was lost of the request, cost and times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

from llm.errors import LLMError
from llm.models import ModelCall

#: Field of an answer, of the last event of a stream, or beside an error.
FIELD = "parley"


def explain(
    calls: Sequence[ModelCall],
    *,
    requested_model: str,
    request_id: str,
    losses: Iterable[str] = (),
    seconds: float | None = None,
) -> dict[str, Any]:
    """`calls` are in order, and `seconds` the time from request to end.

    Shape: `{"explanation": {request_id, model, route, attempts, losses, cost,
    timing}}`. Cost is in USD, times are in milliseconds; None: not known.
    """
    last = calls[-1] if calls else None
    first_text = next((c.ttft for c in reversed(calls) if c.ttft is not None), None)
    explanation = {
        "request_id": request_id,
        "model": requested_model,
        "route": last and {"provider": last.provider_name, "model": last.model_name},
        "attempts": [_describe_attempt(call) for call in calls],
        "losses": list(dict.fromkeys([*losses, *(last.degraded if last else ())])),
        "cost": _sum_costs(calls),
        "timing": {
            "total_ms": _milliseconds(seconds),
            "first_text_ms": _milliseconds(first_text),
        },
    }
    return {"explanation": explanation}


def _describe_attempt(call: ModelCall) -> dict[str, Any]:
    return {
        "step": call.step,
        "attempt": call.attempt,
        "purpose": call.purpose,
        "provider": call.provider_name,
        "model": call.model_name,
        "status": call.status,
        "http_status": call.http_status,
        "error": call.error_code or None,
        "host_request_id": call.request_id or None,
        "from_cache": call.is_cached,
        "input_tokens": call.input_tokens,
        "cached_tokens": call.cached_tokens,
        "output_tokens": call.output_tokens,
        "service_tier": call.service_tier or None,
        "web_searches": call.web_searches,
        "file_searches": call.file_searches,
        "is_estimated": call.is_estimated,
        "cost": _format_cost(call.cost),
        "first_text_ms": _milliseconds(call.ttft),
        "total_ms": _milliseconds(call.latency),
    }


def _sum_costs(calls: Sequence[ModelCall]) -> dict[str, Any]:
    known = [call.cost for call in calls if call.cost is not None]
    return {
        "usd": _format_cost(sum(known)) if known and len(known) == len(calls) else None,
        "is_estimated": any(call.is_estimated for call in calls),
    }


def _format_cost(cost: Any) -> str | None:
    """A decimal number; None where users may not see costs (`SHOW_COSTS`)."""
    if cost is None or not settings.SHOW_COSTS:
        return None
    return f"{cost:.12f}".rstrip("0").rstrip(".") or "0"


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def attach(error: LLMError, explanation: dict[str, Any]) -> LLMError:
    """`error` with the explanation that its answer repeats."""
    error.explanation = explanation
    return error
