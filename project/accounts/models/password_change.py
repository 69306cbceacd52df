"""The row that makes a person change the password at the next sign-in."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext as _


class RequiredPasswordChange(models.Model):
    """The user must choose a new password: the old one was printed, or set by staff."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        primary_key=True,
        related_name="required_password_change",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"user {self.pk}"


class ChangeRecorder:
    """A password validator that accepts every password. Django calls the method of
    this name after each change, wherever it was made, which fulfils the requirement.
    Source: https://docs.djangoproject.com/en/5.2/topics/auth/passwords/
    """

    def validate(self, password: str, user: Any = None) -> None:
        return None

    def get_help_text(self) -> str:
        return _("Choose a password that nobody else knows.")

    def password_changed(self, password: str, user: Any = None) -> None:
        if user is not None and user.pk:
            RequiredPasswordChange.objects.filter(user=user).delete()
