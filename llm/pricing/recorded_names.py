"""The names under which a provider's calls were recorded: it may have been renamed."""

from __future__ import annotations

from datetime import date

from llm.models import Provider, UsageSum


def recorded_names(provider: Provider, first: date, last: date) -> set[str]:
    """Its name, and its earlier ones in the counted calls of these days. A name that
    another provider has now is that one's."""
    period = {"day__range": (first, last)}
    present = Provider.objects.values("name")
    old = UsageSum.objects.filter(level=UsageSum.Level.MODEL, **period).exclude(
        provider_name__in=present
    )
    names = set(old.order_by().values_list("provider_name", flat=True).distinct())
    if not names:  # as nearly always, and the sums below are many
        return {provider.name}
    details = UsageSum.objects.filter(
        level=UsageSum.Level.DETAIL,
        provider_name__in=names,
        model_id__in=provider.models.values("pk"),
        **period,
    )
    found = details.order_by().values_list("provider_name", flat=True).distinct()
    return {provider.name, *found}
