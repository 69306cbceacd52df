"""Scheduled synchronization with providers' lists of models.

As on the admin's page, new models are added switched off, and changes are saved. A
model missing from a list is logged and left unchanged: it may be in use, and lists are
sometimes incomplete.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from llm.errors import LLMError
from llm.models import Provider
from llm.sync.model_list import apply, compare

logger = logging.getLogger(__name__)


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
    done = apply(provider, comparison, new=names["new"], changed=names["changed"])
    return Counter({"added": done.added, "changed": done.changed})
