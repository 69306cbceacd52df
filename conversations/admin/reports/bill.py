"""The admin's page that compares a vendor's bill with what was counted here."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.cache import never_cache

from llm.models import Provider
from llm.pricing.reconciliation import reconcile
from llm.pricing.vendor_bill import MAX_FILE, BillError, read_bill

VIEW_USAGE = "llm.view_usage"
MAX_ROWS = 500  # mismatches that are listed


class BillForm(forms.Form):
    provider = forms.ModelChoiceField(
        Provider.objects.order_by("name"),
        label=gettext_lazy("Provider"),
        to_field_name="name",
        error_messages={"required": gettext_lazy("Choose a provider.")},
    )
    file = forms.FileField(
        label=gettext_lazy("CSV file"),
        help_text=gettext_lazy("An export of usage or cost by OpenAI or Anthropic."),
        error_messages={"required": gettext_lazy("Choose a file.")},
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        file = cleaned["file"]
        try:
            # One byte more than is allowed shows that the file is too large.
            bill = read_bill(file.read(MAX_FILE + 1))
            cleaned["found"] = reconcile(bill, cleaned["provider"])
        except BillError as exc:
            raise forms.ValidationError(str(exc)) from exc
        return cleaned


class BillPage:
    """Nothing of the file is stored."""

    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view(never_cache(self.show))
        return [path("usage/bill/", view, name="usage_bill")]

    def show(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm(VIEW_USAGE):
            raise PermissionDenied
        is_sent = request.method == "POST"
        form = BillForm(*((request.POST, request.FILES) if is_sent else ()))
        context: dict[str, Any] = {}
        status = 200
        if is_sent and form.is_valid():
            found = form.cleaned_data["found"]
            context = {"found": found, "mismatches": found.mismatches[:MAX_ROWS]}
        elif is_sent:
            status = 400
        context = {
            **self._site.each_context(request),
            **context,
            "title": gettext("Compare a bill"),
            "form": form,
        }
        template = "admin/conversations/bill.html"
        return TemplateResponse(request, template, context, status=status)
