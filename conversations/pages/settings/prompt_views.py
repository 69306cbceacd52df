"""Pages on which users keep their prompts, and fill in their variables."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations.forms.settings_forms import SavedPromptForm, VariablesForm
from conversations.models.saved_prompt import SavedPrompt, fill
from conversations.pages.confirmation import ask_before_deleting
from conversations.pages.notices.next_page_message import say_done, say_saved
from conversations.pages.views import show_new_chat


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def prompts(request: HttpRequest) -> HttpResponse:
    """The list of prompts, with the form for a new one."""
    new = SavedPrompt(owner_id=request.user.pk)
    form = SavedPromptForm(request.POST or None, instance=new)
    if form.is_bound and form.is_valid() and form.save_once():
        say_saved(request)
        return redirect("prompts")
    rows = SavedPrompt.objects.available_to(request.user)
    return _render(request, "prompts.html", form, rows=rows)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def prompt(request: HttpRequest, pk: int) -> HttpResponse:
    """The form that changes a prompt."""
    row = get_object_or_404(SavedPrompt.objects.of(request.user), pk=pk)
    form = SavedPromptForm(request.POST or None, instance=row)
    if form.is_bound and form.is_valid() and form.save_once():
        say_saved(request)
        return redirect("prompts")
    return _render(request, "prompt.html", form, prompt=row)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete_prompt(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(SavedPrompt.objects.of(request.user), pk=pk)
    if request.method == "POST":
        row.delete()
        say_done(request, _("The prompt “%(name)s” was deleted.") % {"name": row.name})
        return redirect("prompts")
    what, back = f"/{row.name}", reverse("prompts")
    return ask_before_deleting(request, _("Delete this prompt?"), what, back)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def use_prompt(request: HttpRequest, pk: int) -> HttpResponse:
    """Asks for the variables; then a new chat's page, with the text in its box."""
    row = get_object_or_404(SavedPrompt.objects.available_to(request.user), pk=pk)
    data = request.POST if request.method == "POST" else None
    form = VariablesForm(data, prompt=row)
    if not form.fields:
        return show_new_chat(request, row.text)
    if form.is_bound and form.is_valid():
        return show_new_chat(request, fill(row.text, form.values))
    return _render(request, "use_prompt.html", form, prompt=row)


def _render(
    request: HttpRequest, template: str, form: Any, **context: Any
) -> HttpResponse:
    status = 400 if form.is_bound else 200
    values = {"form": form, "section": "prompts", **context}
    page = f"conversations/settings/{template}"
    return render(request, page, values, status=status)
