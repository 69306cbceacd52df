"""People's own keys for providers that staff opened for them. Synchronous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef

from llm.models import ApiKey, LanguageModel, Provider
from llm.models.api_key import OWN_LABEL

MAX_KEY = 10_000  # characters; a service account's key is a file of some 2,400


@dataclass(frozen=True, slots=True)
class OwnKeySlot:
    """A provider that accepts people's own keys, and the user's key if there is one."""

    provider: Provider
    key: ApiKey | None


def own_keys_of(user: Any) -> Sequence[OwnKeySlot]:
    """For each provider that accepts own keys and has a model that `user` may use."""
    usable = LanguageModel.objects.usable().available_to(user)
    there = Exists(usable.filter(provider=OuterRef("pk")).order_by())
    providers = Provider.objects.filter(there, accepts_own_keys=True)
    rows = ApiKey.every.filter(owner=user.pk).select_related("provider")
    keys = {key.provider_id: key for key in rows}
    return [OwnKeySlot(provider, keys.get(provider.pk)) for provider in providers]


def find_own_key(user: Any, provider_id: int) -> OwnKeySlot | None:
    """None if the provider does not accept a key of `user`."""
    found = own_keys_of(user)
    return next((each for each in found if each.provider.pk == provider_id), None)


@transaction.atomic
def store_own_key(user: Any, provider: Provider, text: str) -> ApiKey:
    """Store `text` instead of the key that the user had. Raises ValidationError."""
    # Of two requests at once the second replaces the key of the first.
    Provider.objects.select_for_update(no_key=True).filter(pk=provider.pk).first()
    key = ApiKey.every.filter(owner=user.pk, provider=provider).first()
    if key is None:
        # A label is unique within a provider, and staff see it.
        label = f"{OWN_LABEL}{user.pk}"
        key = ApiKey(provider=provider, owner_id=user.pk, label=label)
    key.secret = text
    key.forget_refusals()
    key.full_clean()
    key.save()
    return key


def delete_own_key(user: Any, provider_id: int) -> bool:
    """Return whether there was a key. It can be deleted after staff closed the
    provider."""
    # By `__id`, Django compares a number that no column holds with none.
    rows = ApiKey.every.filter(owner=user.pk, provider__id=provider_id)
    count, _ = rows.delete()
    return count > 0
