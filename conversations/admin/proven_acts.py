"""Forms of the admin that ask for a proof of who is there."""

from __future__ import annotations

from typing import Any

from allauth.core.exceptions import ReauthenticationRequired
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode

from conversations.access.session_marks import is_proven_lately


def ask_for_proof(request: HttpRequest, *, has_secret: bool) -> HttpResponse | None:
    """Ask before a form with a secret is shown, and other forms when they are sent:
    what was entered waits in the session meanwhile, where no secret belongs.

    Raises ReauthenticationRequired: the middleware of django-allauth asks, and then
    repeats the request.
    """
    if is_proven_lately(request.session):
        return None
    if has_secret:
        query = urlencode({"next": request.get_full_path()})
        return redirect(f"{reverse('account_reauthenticate')}?{query}")
    if request.method == "POST":
        raise ReauthenticationRequired
    return None


class ProvenActsMixin(admin.ModelAdmin):
    """For rows by which people sign in or get rights. Outside of the transaction, which
    the exception would end as a failure."""

    def has_secret(self, object_id: str | None) -> bool:
        return False

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        question = ask_for_proof(request, has_secret=self.has_secret(object_id))
        return question or super().changeform_view(
            request, object_id, form_url, extra_context
        )
