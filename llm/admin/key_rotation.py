"""The admin's page that replaces a key by another one, with an overlap."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.formats import localize
from django.utils.translation import gettext_lazy as _

from llm.db.encrypted_field import Secret
from llm.forms.error_report_filter import hide_secrets
from llm.keys.references import fingerprint_of
from llm.models import ApiKey

MAX_OVERLAP = 24 * 90  # hours


class RotationForm(forms.ModelForm):
    """The new key, which takes the old one's place in its group and weight."""

    overlap = forms.IntegerField(
        label=_("Hours until the old key drains"),
        initial=24,
        min_value=0,
        max_value=MAX_OVERLAP,
        help_text=_("Until then calls use both keys. 0 means now."),
    )

    class Meta:
        model = ApiKey
        fields = ["label", "secret"]

    def __init__(self, old: ApiKey, data: Any = None) -> None:
        new = ApiKey(
            provider=old.provider,
            group_id=old.group_id,
            weight=old.weight or 1,
            label=f"{old.label[:80]} {timezone.now():%Y-%m-%d}",
        )
        super().__init__(data, instance=new)
        self.fields["secret"].help_text = _(
            "Stored encrypted and never shown. “env:NAME” or “file:/run/secrets/name”"
            " is read at each use instead."
        )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        label, provider = cleaned.get("label"), self.instance.provider
        if ApiKey.every.filter(provider=provider, label=label).exists():
            raise ValidationError({"label": _("Another key has this label.")})
        if same := self._find_same(cleaned.get("secret")):
            words = _("The provider has this key already: %(key)s.") % {"key": same}
            raise ValidationError({"secret": words})
        return cleaned

    def _find_same(self, secret: Any) -> ApiKey | None:
        """Short keys have no fingerprint, so they are not recognised. People's own are
        not compared, as the answer would tell that they have it."""
        if not isinstance(secret, Secret):
            return None
        digest = fingerprint_of(secret.reveal())
        present = ApiKey.objects.filter(provider=self.instance.provider)
        return present.filter(fingerprint=digest).first() if digest else None


class RotationMixin(admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.rotate_view)
        name = "llm_apikey_rotate"
        return [path("<int:pk>/rotate/", view, name=name), *super().get_urls()]

    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        hide_secrets(request)
        row = self.get_queryset(request).select_related("provider").filter(pk=pk)
        old = row.first()
        if old is None:
            raise Http404
        allowed = self.has_change_permission(request, old)
        if not (allowed and self.has_add_permission(request)):
            raise PermissionDenied
        form = RotationForm(old, request.POST or None)
        if request.method == "POST" and form.is_valid():
            return self._rotate(request, old, form)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Rotate %(key)s") % {"key": old},
            "opts": self.opts,
            "row": old,
            "form": form,
        }
        return TemplateResponse(request, "admin/llm/apikey/rotate.html", context)

    @transaction.atomic
    def _rotate(
        self, request: HttpRequest, old: ApiKey, form: RotationForm
    ) -> HttpResponse:
        hours = timedelta(hours=form.cleaned_data["overlap"])
        new = form.save(commit=False)
        new.added_by = request.user
        new.save()
        now = timezone.now()
        # A key that drains sooner is not revived.
        old.drains_at = min(old.drains_at or now + hours, now + hours)
        old.save(update_fields=["drains_at"])
        self.log_addition(request, new, f"Replaces {old.label}.")
        self.log_change(request, old, f"Replaced by {new.label}.")
        text = _("Calls use %(new)s from now on; %(old)s drains.")
        is_in_use = old.state != ApiKey.State.DISABLED and not old.why_not_sent
        if old.drains_at > now and is_in_use:
            text = _("Calls use %(new)s from now on, and also %(old)s until %(time)s.")
        # A time ends with a stop in some languages ("9 p.m."), as the sentence does.
        until = localize(timezone.localtime(old.drains_at)).removesuffix(".")
        words = text % {"new": new, "old": old, "time": until}
        self.message_user(request, words, messages.SUCCESS)
        return redirect(f"{self.admin_site.name}:llm_apikey_changelist")
