"""Form with which users confirm that their account is deleted."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _


class DeletionForm(forms.Form):
    """Asks for the password, or for the user name where there is no password. A wrong
    password counts as a failed sign-in."""

    password = forms.CharField(
        label=_("Password"),
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, data: Any = None, *, request: Any) -> None:
        super().__init__(data)
        self._request, self._user = request, request.user
        if not self._user.has_usable_password():
            field = self.fields["password"]
            field.label = _("Your user name, as a confirmation")
            field.widget = forms.TextInput(attrs={"autocomplete": "off"})

    def clean_password(self) -> str:
        given, name = self.cleaned_data["password"], self._user.get_username()
        if not self._user.has_usable_password():
            if given != name:
                raise ValidationError(_("This is not your user name."))
            return str(given)
        found = authenticate(self._request, username=name, password=given)
        if found is None or found.pk != self._user.pk:
            raise ValidationError(_("The password is wrong."))
        return str(given)
