"""Saves and removes the filters of the admin's lists."""

from __future__ import annotations

from typing import Any

from django import forms
from django.apps import apps
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from conversations.models import SavedFilter

MOST = 50  # of one person for one list


class SavedFilterForm(forms.ModelForm):
    class Meta:
        model = SavedFilter
        fields = ["name", "query", "is_shared"]


class SavedFilterPages:
    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view
        return [
            path(
                "saved-filters/",
                view(require_POST(self.save)),
                name="saved_filter_add",
            ),
            path(
                "saved-filters/<int:pk>/delete/",
                view(require_POST(self.delete)),
                name="saved_filter_delete",
            ),
        ]

    def save(self, request: HttpRequest) -> HttpResponse:
        """Another filter of one's own with this name is replaced."""
        address = self._address(request, request.POST.get("list_of", ""))
        form = SavedFilterForm(request.POST)
        if not form.is_valid():
            messages.error(request, _("The filter was not saved: its name is invalid."))
            return redirect(address)
        label = request.POST["list_of"].lower()
        own = SavedFilter.objects.filter(owner=request.user.pk, list_of=label)
        fields: dict[str, Any] = form.cleaned_data
        name = fields.pop("name")
        if own.exclude(name=name).count() >= MOST:
            messages.error(request, _("You have too many filters for this list."))
            return redirect(address)
        own.update_or_create(
            name=name,
            defaults=fields,
            create_defaults={
                **fields,
                "owner_id": int(str(request.user.pk)),
                "list_of": label,
            },
        )
        messages.success(request, _("The filter was saved."))
        return redirect(f"{address}?{fields['query']}")

    def delete(self, request: HttpRequest, pk: int) -> HttpResponse:
        if pk.bit_length() > 63:
            raise Http404
        row = get_object_or_404(SavedFilter, pk=pk, owner=request.user.pk)
        address = self._address(request, row.list_of)
        row.delete()
        messages.success(request, _("The filter was removed."))
        return redirect(address)

    def _address(self, request: HttpRequest, label: str) -> str:
        """Of the list, for those who may see it."""
        try:
            model = apps.get_model(label)
        except (LookupError, ValueError):
            raise Http404 from None
        if not self._site.is_registered(model):
            raise Http404
        if not self._site.get_model_admin(model).has_view_or_change_permission(request):
            raise PermissionDenied
        name = f"{model._meta.app_label}_{model._meta.model_name}_changelist"
        return reverse(f"{self._site.name}:{name}")
