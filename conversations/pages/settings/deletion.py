"""Page on which users delete their account."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations.access.account_deletion import LastSuperuser, close_account
from conversations.forms.deletion_form import DeletionForm


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_account(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = DeletionForm(data, request=request)
    if form.is_bound and form.is_valid():
        try:
            close_account(request.user)
        except LastSuperuser as exc:
            form.add_error(None, str(exc.message))
        else:
            logout(request)
            return render(request, "conversations/settings/account_deleted.html")
    context = {
        "form": form,
        "section": "account",
        "days": settings.DELETED_RETENTION_DAYS,
    }
    status = 400 if form.is_bound else 200
    template = "conversations/settings/delete_account.html"
    return render(request, template, context, status=status)
