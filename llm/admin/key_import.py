"""The admin's page that adds several keys of a provider at once: from lines, a file, or
what the environment and the folders of keys have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.conf import settings
from llm.forms.error_report_filter import hide_secrets
from llm.keys.key_lines import KeyLine, read_key_lines
from llm.keys.references import fingerprint_of
from llm.models import ApiKey, Provider

MAX_KEYS = 200  # of one import
MAX_FILE = 256 * 1024  # bytes
MAX_OFFERED = 200  # variables and files on the page
MAX_LABEL = 100


def find_references() -> Iterator[str]:
    """References to the permitted variables that are set and to the permitted files."""
    for name in sorted(os.environ):
        if any(fnmatchcase(name, pattern) for pattern in settings.KEY_VARIABLES):
            yield f"env:{name}"
    for folder in settings.KEY_FOLDERS:
        try:
            files = sorted(each for each in Path(folder).iterdir() if each.is_file())
        except OSError:  # most machines do not have the folder
            continue
        yield from (f"file:{each}" for each in files)


class _WriteOnlyTextarea(forms.Textarea):
    """Does not show what was entered, also when the form is shown again."""

    def format_value(self, value: Any) -> str:
        return ""


class KeyImportForm(forms.Form):
    provider = forms.ModelChoiceField(
        Provider.objects.order_by("name"), label=_("Provider")
    )
    found = forms.MultipleChoiceField(
        required=False,
        label=_("Found on this server"),
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Read there at each use; not stored."),
    )
    # The name, so that error reports hide the value.
    secret = forms.CharField(
        required=False,
        strip=False,
        label=_("Keys"),
        max_length=MAX_FILE,
        widget=_WriteOnlyTextarea(
            {"rows": 6, "cols": 70, "spellcheck": "false", "autocomplete": "off"}
        ),
        help_text=_(
            "One in each line: a key, NAME=key, or “label = key”. Stored encrypted and"
            " never shown."
        ),
    )
    file = forms.FileField(
        required=False, label=_("File"), help_text=_("Of such lines, as a .env file.")
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own: dict[str, Any] = self.fields
        names = list(find_references())[:MAX_OFFERED]
        own["found"].choices = [(name, name) for name in names]

    def clean_file(self) -> str:
        file = self.cleaned_data["file"]
        if file is None:
            return ""
        if file.size > MAX_FILE:
            raise ValidationError(_("The file is too large."))
        try:
            text: str = file.read().decode()
        except UnicodeDecodeError as exc:
            raise ValidationError(_("The file is not a text in UTF-8.")) from exc
        return text

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        lines = [
            *(KeyLine(0, name.rpartition("/")[2], name) for name in cleaned["found"]),
            *read_key_lines(cleaned["secret"]),
            *read_key_lines(cleaned["file"]),
        ]
        if not lines:
            raise ValidationError(_("There is no key."))
        if len(lines) > MAX_KEYS:
            raise ValidationError(_("At most %d keys at once.") % MAX_KEYS)
        cleaned["keys"], cleaned["left_out"] = _build_keys(cleaned["provider"], lines)
        return cleaned


def _build_keys(
    provider: Provider, lines: Sequence[KeyLine]
) -> tuple[list[ApiKey], list[str]]:
    """Keys that the provider does not have yet, and labels of those that it has or that
    came twice. Raises ValidationError, whose texts do not quote keys. People's own keys
    are not compared, as the answer would tell whose they are."""
    every = ApiKey.every.filter(provider=provider)
    labels = set(every.values_list("label", flat=True))
    present = ApiKey.objects.filter(provider=provider)
    known = dict(present.exclude(fingerprint="").values_list("fingerprint", "label"))
    problems, keys, left_out = [], [], []
    for line in lines:
        if (digest := fingerprint_of(line.key)) in known:
            left_out.append(known[digest])
            continue
        label = _free_label(_clean_label(line.label), labels)
        if digest:
            known[digest] = label
        labels.add(label)
        key = ApiKey(provider=provider, label=label, secret=line.key)
        try:
            key.full_clean()
        except ValidationError as exc:
            where = _("Line %d") % line.number if line.number else line.key
            problems.append(f"{where}: {' '.join(exc.messages)}")
        keys.append(key)
    if problems:
        raise ValidationError(problems)
    return keys, left_out


def _clean_label(text: str) -> str:
    return text.removeprefix("env:")[: MAX_LABEL - 5] or "imported"


def _free_label(wanted: str, taken: set[str]) -> str:
    label, number = wanted, 1
    while label in taken:
        number += 1
        label = f"{wanted} {number}"
    return label


class KeyImportMixin(admin.ModelAdmin):
    change_list_template = "admin/llm/apikey/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.import_view)
        return [path("import/", view, name="llm_apikey_import"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        may_add = {"may_add": self.has_add_permission(request)}
        return super().changelist_view(request, {**(extra_context or {}), **may_add})

    def import_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        hide_secrets(request)
        is_posted = request.method == "POST"
        form = KeyImportForm(*([request.POST, request.FILES] if is_posted else []))
        if is_posted and form.is_valid():
            self._import(request, form.cleaned_data["keys"])
            self._name_left_out(request, form.cleaned_data["left_out"])
            return redirect(f"{self.admin_site.name}:llm_apikey_changelist")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Import keys"),
            "opts": self.opts,
            "form": form,
        }
        return TemplateResponse(request, "admin/llm/apikey/import.html", context)

    @transaction.atomic
    def _import(self, request: HttpRequest, keys: Sequence[ApiKey]) -> None:
        for key in keys:
            key.added_by = request.user  # type: ignore[assignment]
            key.save()
            self.log_addition(request, key, "Imported.")
        text = ngettext("%d key imported.", "%d keys imported.", len(keys))
        level = messages.SUCCESS if keys else messages.WARNING
        self.message_user(request, text % len(keys), level)

    def _name_left_out(self, request: HttpRequest, labels: Sequence[str]) -> None:
        if not labels:
            return
        text = ngettext(
            "%(count)d key was there already and is left out: %(labels)s.",
            "%(count)d keys were there already and are left out: %(labels)s.",
            len(labels),
        )
        shown = ", ".join(dict.fromkeys(labels))
        values = {"count": len(labels), "labels": shown}
        self.message_user(request, text % values, messages.WARNING)
