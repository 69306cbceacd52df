"""The address of an account, where staff or a provisioning program sets it."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress


def delete_former_addresses(user: Any) -> None:
    """After the account's address was set: without this, the address before would still
    reset the password and connect identities, also for its next holder."""
    rows = EmailAddress.objects.filter(user=user)
    rows.exclude(email__iexact=user.email).delete()
