"""Pages on which users keep their webhook endpoints, with the log of each."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from conversations.forms.webhook_forms import WebhookChangeForm, WebhookForm
from conversations.models import WebhookEndpoint
from conversations.pages.notices.next_page_message import say_done, say_saved

LOG_ROWS = 100  # of the page; the API has all


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhooks(request: HttpRequest) -> HttpResponse:
    """The list, with the form for a new one; after a POST it shows the secret once."""
    form = WebhookForm(request.POST or None, owner=request.user)
    shown: dict[str, Any] = {}
    if form.is_bound and form.is_valid():
        shown["made"], shown["secret"] = form.issue()
        form = WebhookForm(owner=request.user)
    rows = WebhookEndpoint.objects.of(request.user)
    return _render(request, "webhooks.html", form, rows=rows, **shown)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def webhook(request: HttpRequest, pk: int) -> HttpResponse:
    """The form that changes one, and what was sent to it."""
    row = _find(request, pk)
    form = WebhookChangeForm(request.POST or None, instance=row)
    if form.is_bound and form.is_valid():
        form.save()
        say_saved(request)
        return redirect("webhook", pk=pk)
    return _render_one(request, row, form)


@login_required
@never_cache
@require_POST
def renew_secret(request: HttpRequest, pk: int) -> HttpResponse:
    """Shows the new secret once."""
    row = _find(request, pk)
    secret = row.renew_secret()
    return _render_one(request, row, WebhookChangeForm(instance=row), secret=secret)


@login_required
@require_POST
def delete_webhook(request: HttpRequest, pk: int) -> HttpResponse:
    _find(request, pk).delete()
    say_done(request, _("The endpoint was deleted."))
    return redirect("webhooks")


@login_required
@require_POST
def send_again(request: HttpRequest, pk: int, delivery_id: int) -> HttpResponse:
    get_object_or_404(_find(request, pk).deliveries, pk=delivery_id).send_again()
    say_done(request, _("It is sent again."))
    return redirect("webhook", pk=pk)


def _find(request: HttpRequest, pk: int) -> WebhookEndpoint:
    return get_object_or_404(WebhookEndpoint.objects.of(request.user), pk=pk)


def _render_one(
    request: HttpRequest, row: WebhookEndpoint, form: Any, **context: Any
) -> HttpResponse:
    log = row.deliveries.order_by("-pk")[:LOG_ROWS]
    return _render(request, "webhook.html", form, row=row, log=log, **context)


def _render(
    request: HttpRequest, template: str, form: Any, **context: Any
) -> HttpResponse:
    status = 400 if form.is_bound else 200
    values = {"form": form, "section": "webhooks", **context}
    page = f"conversations/settings/{template}"
    return render(request, page, values, status=status)
