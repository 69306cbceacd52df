"""Page on which users delete their account."""

from __future__ import annotations

from typing import Any

from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations.access.account_deletion import LastSuperuser, close_account
from conversations.access.reauthentication import is_proven
from conversations.access.required_steps import owes_own_factor
from conversations.forms.deletion_form import DeletionForm


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_account(request: HttpRequest) -> HttpResponse:
    user: Any = request.user
    needs_other_proof = not user.has_usable_password() or owes_own_factor(request)
    if needs_other_proof and not is_proven(request):
        raise ReauthenticationRequired  # else the form asks for the password
    data = request.POST if request.method == "POST" else None
    form = DeletionForm(data, request=request)
    if form.is_bound and form.is_valid():
        try:
            close_account(request.user)
        except LastSuperuser as exc:
            form.add_error(None, str(exc.message))
        else:
            request.session.flush()
            request.user = AnonymousUser()
            return render(request, "conversations/settings/account_deleted.html")
    context = {
        "form": form,
        "section": "account",
        "days": settings.DELETED_RETENTION_DAYS,
    }
    status = 400 if form.is_bound else 200
    template = "conversations/settings/delete_account.html"
    return render(request, template, context, status=status)
