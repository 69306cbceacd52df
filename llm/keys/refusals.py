"""Store a host's refusal of a key that staff test or probe, as calls of users do.

All processes read the key's state from its row. Synchronous.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.utils import timezone

from llm.errors import LLMError
from llm.http.client import ProviderCall
from llm.keys.selection import Avoid, Disable, Rest, RestForModel, verdict_of
from llm.models import ApiKey
from llm.provider import Route

logger = logging.getLogger(__name__)


def may_try_again(route: Route, call: ProviderCall) -> bool:
    """Whether the host refused a token that was derived from the key. It may have
    expired, and a new one may work; a second refusal concerns the key itself."""
    return route.endpoint.credentials is not None and call.http_status == 401


def note_refusal(route: Route, error: LLMError) -> bool:
    """Disable the route's key or let it rest, as the error demands. True if the error
    concerns the key, also if its row says so already."""
    verdict = verdict_of(error)
    if verdict is None or route.key_id is None:
        return False
    found = ApiKey.every.filter(pk=route.key_id).select_related("provider")
    if (key := found.first()) is None:
        return False
    rows = ApiKey.every.filter(pk=key.pk, hint=key.hint)
    now, reason = timezone.now(), f"{error.code}: {error}"
    about = (key.label, key.provider.name)
    match verdict:
        case Disable():
            if rows.disable(reason, now):
                text = "The key %r of the provider %r was disabled: %s"
                logger.error(text, *about, reason)
        case Rest(seconds):
            rows.rest(now + timedelta(seconds=seconds), reason, now)
        case RestForModel(seconds):
            until = now + timedelta(seconds=seconds)
            rows.rest_for_model(route.model, until, reason, now)
        case Avoid():
            return False  # a preference of one process, which no row has
    return True
