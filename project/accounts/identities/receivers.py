"""Receivers of signals: what a sign-in by a provider changes."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import user_logged_in
from allauth.mfa.adapter import get_adapter as get_mfa_adapter
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user_model
from django.db.models.signals import post_delete, pre_delete

from conversations.access.session_marks import SECOND_FACTOR, mark_proven
from project.accounts.identities.claims import merge_claims, sync_groups
from project.accounts.models import IdentityProvider, Invitation

logger = logging.getLogger(__name__)


def connect() -> None:
    user_logged_in.connect(sync_signed_in_user)
    post_delete.connect(delete_identities, sender=IdentityProvider)
    pre_delete.connect(delete_invitations, sender=get_user_model())


def sync_signed_in_user(
    *, request: Any, user: Any, sociallogin: Any = None, **_: Any
) -> None:
    """Copy the groups that the provider reports to the user, and record the second
    factor if the provider's sign-in counts as one, and when the provider last asked for
    a proof."""
    if sociallogin is None:
        return
    account = sociallogin.account
    provider = IdentityProvider.objects.get(slug=account.provider)
    if provider.counts_as_second_factor:
        request.session[SECOND_FACTOR] = True
    claims = merge_claims(account.extra_data)
    signed_in_at = claims.get("auth_time")
    # The provider may have asked nothing now. A second factor of the account's own is
    # asked after the provider, and so is a proof of now.
    has_own_factor = get_mfa_adapter().is_mfa_enabled(user)
    if isinstance(signed_in_at, int | float) and not has_own_factor:
        mark_proven(request.session, signed_in_at)
    if not sync_groups(provider, user, claims):
        logger.warning(
            "%s did not send the groups of %r for their number; they stay as they were",
            provider.slug,
            user.get_username(),
        )


def delete_identities(*, instance: IdentityProvider, **_: Any) -> None:
    """Delete the links of accounts to the provider: a new provider with the same short
    name must not sign in these users."""
    SocialAccount.objects.filter(provider=instance.slug).delete()


def delete_invitations(*, instance: Any, **_: Any) -> None:
    """Delete invitations with the user whose addresses they name: an erasure must leave
    no address."""
    addresses = EmailAddress.objects.filter(user=instance)
    emails = {instance.email, *addresses.values_list("email", flat=True)} - {""}
    for row in Invitation.objects.filter(email__in=[each.lower() for each in emails]):
        row.delete()
