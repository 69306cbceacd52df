"""Two months of model calls by several people, for the pages of usage."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.contrib.auth.models import Group, User
from django.utils import timezone

from llm.models import ModelCall
from llm.pricing.usage_counting import count_all

DAYS = 60
#: Provider, model, calls a day, dollars a million tokens.
_MODELS = [
    ("Anthropic", "claude-sonnet-4-5", 9, 9),
    ("Openai", "gpt-5", 7, 6),
    ("Openai", "gpt-5-mini", 14, 1),
    ("Google", "gemini-2.5-flash", 5, 1),
    ("Workshop", "orchard-32b-instruct", 4, 0),
]
_TAGS = ["", "team:garden", "batch,team:letters", "team:letters"]


def store_usage(user: User) -> dict[str, str]:
    """The paths of its pages."""
    people = [user, *(User.objects.create_user(n) for n in ("amara", "jonas", "wei"))]
    group = Group.objects.create(name="Letters")
    group.user_set.add(*people[:2])
    today = timezone.now()
    rows, times = [], []
    for day in range(DAYS):
        at = today - timedelta(days=day)
        share = 0.25 if at.weekday() > 4 else 1 + (day * 7 % 5) / 6
        for number, (provider, model, often, price) in enumerate(_MODELS):
            for call in range(max(1, round(often * share))):
                seed = day * 31 + number * 17 + call * 7
                rows.append(_call(provider, model, price, seed, people))
                times.append(at - timedelta(minutes=seed % 300))
    ModelCall.objects.bulk_create(rows)
    for row, at in zip(rows, times, strict=True):
        row.created_at = at
    ModelCall.objects.bulk_update(rows, ["created_at"], batch_size=500)
    for _ in count_all():
        pass
    return {
        "admin usage": "/admin/usage/",
        "admin usage by user": "/admin/usage/?by=user&measure=tokens",
        "admin usage of tools": "/admin/usage/?by=tool",
        "admin usage of conversations": "/admin/usage/?by=conversation",
        "admin bill": "/admin/usage/bill/",
        "admin request check": "/admin/request-check/?user=admin&entry_point=page"
        "&model=gpt-5&prompt_tokens=1000",
    }


def _call(
    provider: str, model: str, price: int, seed: int, people: list[User]
) -> ModelCall:
    read, written = 1200 + seed * 97 % 9000, 150 + seed * 53 % 1600
    is_estimated = provider == "Workshop" and seed % 3 == 0
    return ModelCall(
        provider_name=provider,
        model_name=model,
        user=people[seed % len(people)],
        token_id=1 + seed % 2 if seed % 4 == 0 else None,
        token_label="newsletter" if seed % 4 == 0 else "",
        tags=_TAGS[seed % len(_TAGS)],
        status="failed" if seed % 61 == 0 else "completed",
        input_tokens=read,
        cached_tokens=read * (seed % 5) // 8,
        cache_write_tokens=read // 10 if provider == "Anthropic" else 0,
        output_tokens=written,
        reasoning_tokens=written // 3 if model.startswith("gpt-5") else 0,
        is_estimated=is_estimated,
        cost=Decimal(price * (read + 4 * written)) / 1_000_000 if price else None,
        ttft=0.3 + seed % 23 / 10,
        latency=4.0,
    )
