"""The authentication backend of LDAP directories.

A name of an account that has a password here is not sent to a directory, so none takes
over such an account, and none learns its password. The directory's people are found
again by the id that it gives them, whatever their name.
"""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.db import transaction
from django.http import HttpRequest

from project.accounts.identities import admission, directory
from project.accounts.identities.claims import sync_groups
from project.accounts.models import IdentityProvider

logger = logging.getLogger(__name__)


class DirectoryBackend(BaseBackend):
    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **_: Any,
    ) -> Any:
        if not username or not password or _has_password_here(username):
            return None
        rows = IdentityProvider.objects.filter(enabled=True, kind="ldap")
        for provider in rows:
            try:
                person = directory.find_person(provider, username, password)
            except directory.DirectoryUnavailable as exc:
                logger.error("directory %s does not work: %s", provider.slug, exc)
                continue
            if person is not None:
                return _find_user(provider, person)
        return None

    def get_user(self, user_id: Any) -> Any:
        return ModelBackend().get_user(user_id)


def _has_password_here(name: str) -> bool:
    """In any spelling: directories do not tell capitals apart, people mistype them."""
    users = get_user_model()._default_manager
    name_field = f"{get_user_model().USERNAME_FIELD}__iexact"
    found = users.filter(**{name_field: name.strip()})
    return any(user.has_usable_password() for user in found)


def _find_user(provider: IdentityProvider, person: directory.Person) -> Any:
    """The person's account; None if the provider's row refuses it."""
    email = person.first("mail").lower() if provider.email_is_trusted else ""
    try:
        with transaction.atomic():
            user = _find_or_make_account(provider, person, email)
            sync_groups(provider, user, person.attributes)
    except admission.SignInRefused as exc:
        logger.warning("sign-in by %s refused: %.60s", provider.slug, exc.why)
        return None
    return user


def _find_or_make_account(
    provider: IdentityProvider, person: directory.Person, email: str
) -> Any:
    """Raises SignInRefused."""
    known = SocialAccount.objects.filter(provider=provider.slug, uid=person.uid)
    if identity := known.select_related("user").first():
        admission.check_known(provider, email, identity.user)
        return identity.user
    user = admission.find_account(provider, email) or _make_user(
        provider, person, email
    )
    SocialAccount.objects.create(user=user, provider=provider.slug, uid=person.uid)
    return user


def _make_user(provider: IdentityProvider, person: directory.Person, email: str) -> Any:
    name = get_adapter().generate_unique_username([person.name, "user"])
    user = get_user_model()(
        username=name,
        email=email,
        first_name=person.first("givenName")[:150],
        last_name=person.first("sn")[:150],
    )
    user.set_unusable_password()
    user.save()
    admission.welcome(provider, user, email)
    logger.info("account %r made by %s", name, provider.slug)
    return user
