"""Form with which users change their password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError


class ThrottledPasswordChangeForm(PasswordChangeForm):
    """Checks the old password through the authentication backends, so that a wrong one
    counts as a failed sign-in: a stolen session cannot be used to guess the password.
    """

    def __init__(self, user: Any, *, request: Any, **kwargs: Any) -> None:
        super().__init__(user, **kwargs)
        # The page has more than this form; on a phone the keyboard would cover it.
        self.fields["old_password"].widget.attrs.pop("autofocus", None)
        self._request = request

    def clean_old_password(self) -> str:
        old = self.cleaned_data["old_password"]
        credentials = {"username": self.user.get_username(), "password": old}
        if authenticate(self._request, **credentials) != self.user:
            code = "password_incorrect"
            raise ValidationError(self.error_messages[code], code=code)
        return str(old)
