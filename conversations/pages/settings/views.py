"""Settings pages: look and language, instructions and memory, shortcuts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations.forms.settings_forms import (
    GeneralForm,
    PersonalForm,
    ShortcutsForm,
)
from conversations.models.user_settings import UserSettings

#: Name of the URL, its title, and a sentence about the page.
_GENERAL = ("settings", _("Settings"), "")
_PERSONAL = ("settings-personal", _("Instructions and memory"), "")
_SHORTCUTS = (
    "settings-shortcuts",
    _("Keyboard shortcuts"),
    _(
        "A shortcut works while you are not typing, except with Ctrl, Alt or Meta."
        " Leave a field empty for no key."
    ),
)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def general(request: HttpRequest) -> HttpResponse:
    form = GeneralForm(request.POST or None, instance=_own_settings(request))
    return _save_or_show(request, form, *_GENERAL)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def personal(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = PersonalForm(data, instance=_own_settings(request))
    return _save_or_show(request, form, *_PERSONAL)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def shortcuts(request: HttpRequest) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = ShortcutsForm(data, instance=_own_settings(request))
    return _save_or_show(request, form, *_SHORTCUTS)


def _own_settings(request: HttpRequest) -> UserSettings:
    return UserSettings.objects.for_user(request.user.pk or 0)


def _save_or_show(
    request: HttpRequest, form: Any, name: str, title: Any, about: Any
) -> HttpResponse:
    if form.is_bound and form.is_valid():
        form.save()
        response = redirect(name)
        response["Location"] += "?saved"
        return response
    context = {
        "form": form,
        "title": title,
        "about": about,
        "section": name,
        "is_saved": "saved" in request.GET and not form.is_bound,
    }
    status = 400 if form.is_bound else 200
    return render(request, "conversations/settings/form.html", context, status=status)
