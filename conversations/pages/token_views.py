"""The page on which users create and revoke access tokens."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from conversations.forms.token_forms import (
    TokenForm,
    describe_spending,
    unrevoked_tokens,
)
from conversations.models.access_token import Scope


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """The page; after a POST it shows the new token, which is not stored."""
    if request.method != "POST":
        return _page(request, TokenForm(user=request.user))
    form = TokenForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, status=400)
    row, token = form.issue()
    return _page(request, TokenForm(user=request.user), made=row, token=token)


@login_required
@require_POST
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    get_object_or_404(unrevoked_tokens(request.user), pk=pk).revoke()
    return redirect("tokens")


def _page(
    request: HttpRequest, form: TokenForm, status: int = 200, **extra: Any
) -> HttpResponse:
    rows = [_row(token) for token in unrevoked_tokens(request.user)]
    context = {"form": form, "rows": rows, **extra}
    return render(request, "conversations/tokens.html", context, status=status)


def _row(token: Any) -> dict[str, Any]:
    labels = dict(Scope.choices)
    return {
        "token": token,
        "scopes": [labels.get(name, name) for name in token.scopes],
        "models": [model.public_name for model in token.allowed_models.all()],
        "spent": describe_spending(token),
    }
