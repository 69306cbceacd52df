"""The page that makes a token for a program, and shows how to configure the program."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations.access.reauthentication import requires_proof
from conversations.models.access_token import AccessToken, Scope
from conversations.pages.connect.snippets import GROUPS, Snippet
from llm import router

PLACEHOLDER = "parley_…"


class ConnectForm(forms.Form):
    """The name of a program, and the model that it is to use."""

    label = forms.CharField(max_length=100, label=_("Name of the program"))
    model = forms.ChoiceField(label=_("Model"))

    def __init__(self, data: Any = None, *, user: Any) -> None:
        super().__init__(data)
        names = [row.public_name for row in _models(user)]
        model: Any = self.fields["model"]
        model.choices = [(name, name) for name in names]


@login_required
@requires_proof("POST")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def connect(request: HttpRequest) -> HttpResponse:
    """The page; after a POST its texts contain the new token, which is not stored."""
    if request.method != "POST":
        return _page(request, ConnectForm(user=request.user), PLACEHOLDER)
    form = ConnectForm(request.POST, user=request.user)
    if not form.is_valid():
        return _page(request, form, PLACEHOLDER, status=400)
    row = AccessToken(
        user_id=request.user.pk or 0,
        label=form.cleaned_data["label"],
        scopes=[Scope.GATEWAY.value],
    )
    token = row.generate_token()
    row.save()
    return _page(request, form, token, made=row, model=form.cleaned_data["model"])


def _page(
    request: HttpRequest,
    form: ConnectForm,
    token: str,
    status: int = 200,
    model: str = "",
    **extra: Any,
) -> HttpResponse:
    base = request.build_absolute_uri("/").rstrip("/")
    names = [row.public_name for row in _models(request.user)]
    model = model or next(iter(names), "provider/model")
    values = {"BASE": base, "V1": f"{base}/v1", "MODEL": model, "TOKEN": token}
    groups = [
        (group.title, [_shown(each, values) for each in group.snippets])
        for group in GROUPS
    ]
    made = extra.get("made")
    context = {
        "form": form,
        "groups": groups,
        "address": values["V1"],
        "token": token if made else "",
        **extra,
    }
    return render(request, "conversations/connect.html", context, status=status)


def _shown(snippet: Snippet, values: dict[str, str]) -> dict[str, str]:
    location = snippet.location
    for name, value in values.items():
        location = location.replace(f"%{name}%", value)
    text = snippet.fill(values)
    return {
        "slug": snippet.slug,
        "title": snippet.title,
        "location": location,
        "fenced": f"~~~~{snippet.language}\n{text}\n~~~~",
    }


def _models(user: Any) -> list[Any]:
    """The models that the user may call; the default first."""
    rows = router.available(user).select_related("provider")
    return sorted(rows, key=lambda row: not row.is_default)
