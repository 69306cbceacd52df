"""Admin forms that ask for the password or a second factor (REAUTHENTICATE_AFTER)."""

from __future__ import annotations

from typing import Any

from allauth.core.exceptions import ReauthenticationRequired
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode

from conversations.access.reauthentication import is_proven


def ask_for_proof(request: HttpRequest, *, has_secret: bool) -> HttpResponse | None:
    """None if the person signed in, or confirmed it, within REAUTHENTICATE_AFTER.

    Before a form with a secret is shown: a redirect to the page that asks. When another
    form is sent: raises ReauthenticationRequired. Then the middleware of django-allauth
    asks, stores what was entered in the session, where no secret belongs, and repeats
    the request.
    """
    needs_proof = has_secret or request.method == "POST"
    if not needs_proof or is_proven(request):
        return None
    if has_secret:
        query = urlencode({"next": request.get_full_path()})
        return redirect(f"{reverse('account_reauthenticate')}?{query}")
    raise ReauthenticationRequired


class ReauthenticationMixin(admin.ModelAdmin):
    """For rows by which people sign in or get rights. It asks before the transaction of
    the form begins, which the exception would roll back."""

    def has_secret(self, object_id: str | None) -> bool:
        return False

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        response = ask_for_proof(request, has_secret=self.has_secret(object_id))
        return response or super().changeform_view(
            request, object_id, form_url, extra_context
        )
