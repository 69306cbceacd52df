"""Scheduled synchronization with providers' lists of models.

As on the admin's page, new models are added switched off, and changes are saved: nobody
looks at the differences here. So a price that may be a mistake of the list, and a
retirement in the past, wait for staff. Capabilities, limits and prices that an earlier
sync has stored follow the list; those that staff have set stay, and what a probe has
found does. A model missing from a list is logged and left unchanged: it may be in use,
and lists are sometimes incomplete.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from conversations.audit.watch import one_event
from llm.errors import LLMError
from llm.models import LanguageModel, Provider
from llm.sync.model_list import ModelChange, apply, compare
from llm.sync.price_doubts import without_doubtful

logger = logging.getLogger(__name__)
_AT_ONCE = timedelta(seconds=1)


def sync_models() -> Iterator[Counter[str]]:
    """Synchronize one provider at a time; yields its numbers of added and changed."""
    enabled = Provider.objects.filter(enabled=True).order_by("pk")
    for pk in list(enabled.values_list("pk", flat=True)):
        if provider := Provider.objects.filter(pk=pk, enabled=True).first():
            yield _sync_provider(provider)


def _sync_provider(provider: Provider) -> Counter[str]:
    try:
        comparison = compare(provider)
    except LLMError as exc:  # it has no list, or no valid key for it
        logger.info("the models of %s were not synced: %s", provider.name, exc.code)
        return Counter()
    names = comparison.names()
    if names["gone"]:
        logger.warning(
            "%s does not list %d models that are switched on",
            provider.name,
            len(names["gone"]),
        )
    changes = [_without_own_values(change) for change in comparison.changed]
    pairs = zip(changes, comparison.changed, strict=True)
    if left := sum(one != other for one, other in pairs):
        logger.info(
            "stored values of %d models differ from the list of %s and stay",
            left,
            provider.name,
        )
    comparison = replace(comparison, changed=[each for each in changes if each])
    names = comparison.names()
    with transaction.atomic(), one_event("config.change", target=provider):
        done = apply(provider, comparison, new=names["new"], changed=names["changed"])
    return Counter({"added": done.added, "changed": done.changed})


def _without_own_values(change: ModelChange) -> ModelChange:
    row = change.model
    own = {*row.overrides, *row.findings}
    after = {
        name: value
        for name, value in change.after.items()
        if name not in own or row.is_listed(name)
    }
    prices = {} if _has_price_of_staff(row) else _undoubted_prices(change)
    retires_at = change.retires_at
    if retires_at is not None and retires_at <= timezone.now():
        retires_at = None
    return replace(change, after=after, prices_after=prices, retires_at=retires_at)


def _undoubted_prices(change: ModelChange) -> dict[str, Decimal]:
    """The new prices without those that may be a mistake of the list; {} where they
    would replace bundled prices that also depend on long prompts, requests or times of
    day."""
    if change.ends_conditions:
        return {}
    name = change.model.name
    return without_doubtful(name, change.prices_before, change.prices_after)


def _has_price_of_staff(row: LanguageModel) -> bool:
    """Whether staff or a configuration file have set the price that counts now. Before
    syncs marked theirs, those left prices that nobody entered and that counted at
    once."""
    begun = row.dated_prices.filter(valid_from__lte=timezone.now())
    if (price := begun.order_by("-valid_from").first()) is None:
        return bool(row.prices)
    counted_at_once = price.created_at - price.valid_from < _AT_ONCE
    is_of_old_sync = price.added_by_id is None and counted_at_once
    return not (price.is_listed or is_of_old_sync)
