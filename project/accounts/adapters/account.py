"""How django-allauth signs people in and writes to them, as Parley does.

Source: https://docs.allauth.org/en/latest/account/adapter.html
"""

from __future__ import annotations

import logging
from smtplib import SMTPException
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import login
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from conversations.access.reauthentication import is_proven
from conversations.access.required_steps import owes_own_factor
from conversations.access.sign_in_attempts import sign_in_address
from project.accounts.models import IdentityProvider

#: Sessions of this backend are read by one compiled query (session_user.py).
BACKEND = "django.contrib.auth.backends.ModelBackend"
#: What its pages say themselves.
_NEEDLESS_MESSAGES = {"account/messages/logged_in.txt"}

logger = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Nobody makes an account with a password; staff do, or a provider."""
        return False

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Nothing: django-axes delays attempts, for each account and address. A limit
        for each account alone would let strangers lock it."""

    def login(self, request: HttpRequest, user: Any) -> None:
        login(request, user, backend=getattr(user, "backend", BACKEND))

    def get_client_ip(self, request: HttpRequest) -> str:
        return sign_in_address(request)

    def is_reauthentication_required(self, *, app: str, **_: Any) -> bool:
        return not is_proven(self.request)

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Who has neither a password nor a second factor signs in by the provider
        again. A session that never used the account's second factor must use it."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if owes_own_factor(self.request):
            return [each for each in methods if each["id"].startswith("mfa_")]
        names = set(
            SocialAccount.objects.filter(user_id=user.pk).values_list(
                "provider", flat=True
            )
        )
        if methods or not names:
            return methods
        directories = IdentityProvider.objects.filter(slug__in=names, kind="ldap")
        if directories.exists():  # which the form for the password asks
            url, text = reverse("account_reauthenticate"), _("Use your password")
            return [{"id": "reauthenticate", "description": text, "url": url}]
        url = reverse("confirm-by-provider")
        return [{"id": "provider", "description": _("Use your provider"), "url": url}]

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if message_template not in _NEEDLESS_MESSAGES:
            super().add_message(request, level, message_template, *args, **kwargs)

    def send_mail(self, template_prefix: str, email: str, context: Any) -> None:
        """A mail server that does not answer fails no page, and shows nobody which
        addresses have an account."""
        try:
            super().send_mail(template_prefix, email, context)
        except (OSError, SMTPException) as exc:
            logger.error("a mail was not sent: %s", type(exc).__name__)
