"""Providers' own lists of models, looked at without anybody at a page.

What is new is added switched off and what changed is written down, as the staff's page
does; a model that is gone from a list is reported and left as it is, for it may be in
use and lists have their bad days.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from llm.errors import LLMError
from llm.model_sync import apply, compare
from llm.models import Provider

logger = logging.getLogger(__name__)


def sync_models() -> Iterator[Counter[str]]:
    """A provider at each step; yields how many models were added and changed."""
    enabled = Provider.objects.filter(enabled=True).order_by("pk")
    for pk in list(enabled.values_list("pk", flat=True)):
        if provider := Provider.objects.filter(pk=pk, enabled=True).first():
            yield _synced(provider)


def _synced(provider: Provider) -> Counter[str]:
    try:
        comparison = compare(provider)
    except LLMError as exc:  # it has no list, or no key that is good for it
        logger.info("the models of %s stay: %s", provider.name, exc.code)
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
