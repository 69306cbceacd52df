"""Forms of signing in."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ResetPasswordForm


class OwnPasswordResetForm(ResetPasswordForm):
    """Mails only to people who have a password. Who signs in by the organisation's
    provider would get past it, and past its second factor, by a password of their own.
    """

    users: list[Any]

    def clean_email(self) -> str:
        email: str = super().clean_email()
        self.users = [user for user in self.users if user.has_usable_password()]
        return email
