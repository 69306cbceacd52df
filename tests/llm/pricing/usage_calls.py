"""Model calls of any kind, for tests of their sums."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone
from hypothesis import strategies as st

from llm.models import ModelCall

tokens = st.none() | st.integers(0, 2**31 - 1)
money = st.none() | st.decimals(0, 1000, places=12, allow_nan=False)
calls = st.fixed_dictionaries(
    {
        "provider_name": st.sampled_from(["Host", "Héberge", "a/b"]),
        "model_name": st.sampled_from(["m", "m-2", "", "b/c"]),
        "user_id": st.none() | st.integers(1, 4),
        "token_id": st.none() | st.integers(1, 2),
        "key_id": st.none() | st.integers(1, 3),
        "token_label": st.sampled_from(["", "ci"]),
        "tags": st.sampled_from(["", "a", "a,b"]),
        "purpose": st.sampled_from(["answer", "title"]),
        "status": st.sampled_from(["completed", "failed", "cancelled"]),
        "input_tokens": tokens,
        "cached_tokens": tokens,
        "cache_write_tokens": tokens,
        "cache_write_1h_tokens": tokens,
        "output_tokens": tokens,
        "reasoning_tokens": tokens,
        "web_searches": tokens,
        "file_searches": tokens,
        "cost": money,
        "is_cached": st.booleans(),
        "is_estimated": st.booleans(),
        "saved_cost": money,
        "ttft": st.none() | st.floats(0, 1000),
        "days": st.integers(0, 40),
    }
)


def save_calls(*many: dict[str, Any]) -> None:
    now = timezone.now()
    rows = [a_row(**fields) for fields in many]
    ModelCall.objects.bulk_create(rows)
    for row, fields in zip(rows, many, strict=True):
        # `auto_now_add` has set its own time.
        at = now - timedelta(days=fields.get("days", 0))
        ModelCall.objects.filter(pk=row.pk).update(created_at=at)


def a_row(days: int = 0, **fields: Any) -> ModelCall:
    usual = {
        "provider_name": "Host",
        "model_name": "m",
        "status": "completed",
        "input_tokens": 10,
        "output_tokens": 5,
        "cost": Decimal("0.01"),
    }
    return ModelCall(**{**usual, **fields})
