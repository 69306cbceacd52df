"""The page on which users create and revoke access tokens."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from conversations.access.reauthentication import requires_proof
from conversations.forms.token_forms import (
    TokenForm,
    TokenSettingsForm,
    describe_spending,
    unrevoked_tokens,
)
from conversations.models import Conversation
from conversations.models.access_token import Scope
from conversations.models.folder import Folder
from conversations.pages.notices.next_page_message import say_done, say_saved

LOG_ROWS = 200  # of the page; the API has all


@login_required
@requires_proof("POST")
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
    token = get_object_or_404(unrevoked_tokens(request.user), pk=pk)
    token.revoke()
    say_done(request, _("The token “%(name)s” was revoked.") % {"name": token.label})
    return redirect("tokens")


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def token_settings(request: HttpRequest, pk: int) -> HttpResponse:
    """A token's name, origins and store default, and its request log."""
    token = get_object_or_404(unrevoked_tokens(request.user), pk=pk)
    form = TokenSettingsForm(request.POST or None, instance=token)
    if request.method == "POST" and form.is_valid():
        form.save()
        say_saved(request)
        return redirect("token-settings", pk=pk)
    rows = token.logged_requests.fresh().defer("request_body", "response_body")
    context = {"form": form, "token": token, "requests": rows[:LOG_ROWS]}
    status = 400 if form.errors else 200
    return render(request, "conversations/token_settings.html", context, status=status)


@login_required
@require_POST
def switch_request_log(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(unrevoked_tokens(request.user), pk=pk)
    token.log_requests(on=request.POST.get("on") == "1")
    say_saved(request)
    return redirect("token-settings", pk=pk)


@login_required
@never_cache
@require_safe
def logged_request(request: HttpRequest, pk: int, row: int) -> HttpResponse:
    token = get_object_or_404(unrevoked_tokens(request.user), pk=pk)
    found = get_object_or_404(token.logged_requests.fresh(), pk=row)
    context = {"token": token, "row": found}
    return render(request, "conversations/logged_request.html", context)


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
        "tools": sorted(token.tool_names),
        "conversations": _conversations_of(token),
        "spent": describe_spending(token),
    }


def _conversations_of(token: Any) -> list[str]:
    """Names of the folders and titles of the conversations to which it is limited."""
    limit = token.conversation_limit
    if limit is None:
        return []
    folders = Folder.objects.of(token.user).filter(pk__in=limit.folders)
    rows = Conversation.objects.of(token.user).filter(pk__in=limit.conversations)
    named = [*map(str, folders), *map(str, rows)]
    return named or [_("none that still exists")]
