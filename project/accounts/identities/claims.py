"""What a provider says about a person, and what the provider's row makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group

from project.accounts.models import IdentityProvider

Claims = Mapping[str, Any]


class OtherPerson(Exception):
    """The provider's two answers are about different people."""


def merge_claims(extra_data: Claims) -> dict[str, Any]:
    """The claims of both answers; those of the person's profile count.

    Entra ID sends groups in the ID token alone. Raises OtherPerson, as section 5.3.2 of
    OpenID Connect Core demands.
    """
    id_token, profile = extra_data.get("id_token"), extra_data.get("userinfo")
    if id_token is None and profile is None:
        return dict(extra_data)
    id_token, profile = id_token or {}, profile or {}
    if id_token and profile and id_token.get("sub") != profile.get("sub"):
        raise OtherPerson
    return {**id_token, **profile}


def find_claim(claims: Claims, path: str) -> Any:
    """The value at a path such as `realm_access.roles`; None without one. A claim whose
    own name has dots, as an address does, is found by this name."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def list_groups(provider: IdentityProvider, claims: Claims) -> set[str] | None:
    """The person's groups at the provider; None if it did not send them for their
    number (Entra ID's overage)."""
    if not provider.groups_claim:
        return None
    omitted = claims.get("_claim_names")
    if isinstance(omitted, Mapping) and provider.groups_claim in omitted:
        return None
    value = find_claim(claims, provider.groups_claim)
    if isinstance(value, str):
        return {value}
    return {str(each) for each in value} if isinstance(value, list) else set()


def sync_groups(provider: IdentityProvider, user: Any, claims: Claims) -> bool:
    """Add the user to the mapped groups that the claims name, and remove it from the
    other mapped ones. Groups without a mapping stay. False if the provider did not send
    the groups."""
    mappings = list(provider.group_mappings.all())
    if not mappings:
        return True
    if (theirs := list_groups(provider, claims)) is None:
        return False
    wanted = {each.group_id for each in mappings if each.claim in theirs}
    managed = {each.group_id for each in mappings}
    current = set(user.groups.filter(pk__in=managed).values_list("pk", flat=True))
    user.groups.remove(*Group.objects.filter(pk__in=current - wanted))
    user.groups.add(*Group.objects.filter(pk__in=wanted - current))
    return True


def is_in_domains(provider: IdentityProvider, verified_email: str) -> bool:
    """Whether the provider's rule lets this address in; "": none is verified."""
    if not provider.domains:
        return True
    return verified_email.rpartition("@")[2].lower() in provider.domains
