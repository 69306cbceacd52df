"""Forms of passkeys and security keys that report a refused one.

django-allauth sends its signal `authentication_failed` for codes alone.
Source: https://docs.allauth.org/en/latest/mfa/forms.html
"""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed
from allauth.mfa.webauthn.forms import (
    AuthenticateWebAuthnForm,
    LoginWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django.core.exceptions import ValidationError

from conversations.audit.act import current_act


class _ReportingForm(AuthenticateWebAuthnForm):
    def clean_credential(self) -> Any:
        try:
            return super().clean_credential()
        except ValidationError:
            # Without a password before it, the account is only what the browser claims.
            authentication_failed.send(
                sender=Authenticator,
                request=current_act().request,
                user=self.user,
                authenticator=None,
                reauthentication=self.reauthenticated,
            )
            raise


class AuthenticateForm(_ReportingForm):
    """After the password."""


class PasskeySignInForm(_ReportingForm, LoginWebAuthnForm):
    """Without a password."""


class ConfirmForm(_ReportingForm, ReauthenticateWebAuthnForm):
    """Before a dangerous act."""
