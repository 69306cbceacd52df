"""Which account a new identity belongs to: none, an existing one, or a new one.

An identity never takes over an account by an address that the provider did not verify,
nor one of staff by any address.
"""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from project.accounts.identities.claims import is_in_domains
from project.accounts.models import IdentityProvider, Invitation

_INACTIVE = _("This account is closed. Ask an administrator.")
_WRONG_DOMAIN = _(
    "Your address is not of a domain that may sign in here, or the provider has not"
    " verified it."
)
_ADDRESS_TAKEN = _(
    "There is an account with your address already. Sign in to it as usual, then"
    " connect this provider on the page Account."
)
_NOT_INVITED = _("You have no account here. Ask an administrator to invite you.")
_NO_ACCOUNT = _(
    "You have no account here that is connected to this provider. Sign in as usual and"
    " connect it on the page Account, or ask an administrator for an account."
)


class SignInRefused(Exception):
    """`account`: that which the identity belongs to, or would be connected to."""

    def __init__(self, why: str | Promise, account: Any = None) -> None:
        super().__init__()
        self.why = why
        self.account = account


def check_known(provider: IdentityProvider, verified_email: str, user: Any) -> None:
    """Of an identity that has its account. Raises SignInRefused."""
    check_domain(provider, verified_email)
    if not user.is_active:
        raise SignInRefused(_INACTIVE, user)


def check_domain(provider: IdentityProvider, verified_email: str) -> None:
    """Raises SignInRefused."""
    if not is_in_domains(provider, verified_email):
        raise SignInRefused(_WRONG_DOMAIN)


def find_account(provider: IdentityProvider, verified_email: str) -> Any:
    """The account to connect a new identity to; None if it gets a new one. Raises
    SignInRefused."""
    check_domain(provider, verified_email)
    owners = _find_owners(verified_email)
    if owners:
        if not _may_connect(provider, owners):
            raise SignInRefused(_ADDRESS_TAKEN, owners[0] if len(owners) == 1 else None)
        check_known(provider, verified_email, owners[0])
        return owners[0]
    if not may_make_account(provider, verified_email):
        is_by_invitation = provider.new_accounts == provider.NewAccounts.INVITED
        raise SignInRefused(_NOT_INVITED if is_by_invitation else _NO_ACCOUNT)
    return None


def may_make_account(provider: IdentityProvider, verified_email: str) -> bool:
    if provider.is_open:
        return True
    is_by_invitation = provider.new_accounts == provider.NewAccounts.INVITED
    return is_by_invitation and Invitation.find_open(verified_email) is not None


def welcome(provider: IdentityProvider, user: Any, verified_email: str) -> None:
    """What a new account gets besides itself."""
    if provider.default_group:
        user.groups.add(provider.default_group)
    if invitation := Invitation.find_open(verified_email):
        invitation.accept()


def _find_owners(email: str) -> list[Any]:
    """The accounts with this address, verified or entered by staff; two at most."""
    if not email:
        return []
    users = get_user_model()._default_manager
    known = EmailAddress.objects.filter(email__iexact=email, verified=True)
    owners = Q(email__iexact=email) | Q(pk__in=known.values("user"))
    return list(users.filter(owners).order_by("pk")[:2])


def _may_connect(provider: IdentityProvider, owners: list[Any]) -> bool:
    """By the address alone: never an account of staff, nor one of several."""
    if not provider.links_accounts or len(owners) > 1:
        return False
    return not (owners[0].is_staff or owners[0].is_superuser)
