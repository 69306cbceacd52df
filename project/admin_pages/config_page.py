"""The *Configuration* page of the admin: export as TOML, and import with a diff.

The import is that of `load_config`, without the rights of the server's shell: it reads
no environment variable, and sends no stored key to a new address.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache

from conversations.audit.record import record_event
from project.config_file import ConfigError, Report, dump_text, load
from tools.text_diff import diff_lines

MAX_FILE = 5_000_000  # bytes
MAX_TABLES = 2_000  # of new rows, each takes a few milliseconds
MAX_NOTES = 20  # shown after an import; before it, all are
_MODELS = (
    *("llm.provider", "llm.apikey", "llm.languagemodel", "llm.modelprice"),
    *("tools.tool", "tools.declaredtool"),
    *("conversations.contextsource", "conversations.preset"),
)


def _permissions(*actions: str) -> list[str]:
    split = [name.split(".") for name in _MODELS]
    every = [f"{app}.{action}_{model}" for app, model in split for action in actions]
    return [name for name in every if name != "tools.add_declaredtool"]


EXPORT = _permissions("view")
IMPORT = _permissions("view", "add", "change")


class ConfigForm(forms.Form):
    file = forms.FileField(
        label=_("Configuration file"),
        required=False,
        help_text=_("A TOML file, as the export or `dump_config` writes it."),
    )
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_FILE,
        widget=forms.HiddenInput,
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        text = cleaned.get("text") or self._read(cleaned.get("file"))
        try:
            cleaned["document"] = tomllib.loads(text.replace("\r\n", "\n"))
        except (ValueError, RecursionError) as exc:  # also for 5,000 digits
            problem = _("This is not a TOML file: %(problem)s")
            raise forms.ValidationError(problem % {"problem": exc}) from exc
        if (count := _count_tables(cleaned["document"])) > MAX_TABLES:
            raise forms.ValidationError(
                _TOO_MANY_TABLES % {"count": count, "limit": MAX_TABLES}
            )
        cleaned["text"] = text
        return cleaned

    def _read(self, file: Any) -> str:
        if file is None:
            raise forms.ValidationError(_("Choose a file."))
        if file.size > MAX_FILE:
            raise forms.ValidationError(_("The file is too large."))
        try:
            # Editors of Windows begin files with a mark of their encoding.
            text: str = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise forms.ValidationError(_("The file is not UTF-8.")) from exc
        return text


class ConfigPage:
    """Shows what an import would change, and applies it when that is confirmed."""

    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view
        return [
            path("config/", view(never_cache(self.show)), name="config"),
            path(
                "config/export/", view(never_cache(self.export)), name="config_export"
            ),
        ]

    def export(self, request: HttpRequest) -> HttpResponse:
        _require(request, EXPORT)
        record_event("config.export")
        return HttpResponse(
            dump_text(_lists_without(request, "view")),
            content_type="application/toml; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="parley.toml"'},
        )

    def show(self, request: HttpRequest) -> HttpResponse:
        _require(request, EXPORT)
        is_sent = request.method == "POST"
        if is_sent:
            _require(request, IMPORT)
        form = ConfigForm(*((request.POST, request.FILES) if is_sent else ()))
        context: dict[str, Any] = {}
        if is_sent and form.is_valid():
            try:
                shown = self._import(request, form.cleaned_data)
            except ConfigError as exc:
                context["problems"] = exc.problems
            else:
                if shown is None:
                    return redirect(f"{self._site.name}:config")
                context |= shown
        return self._page(request, form, context)

    def _import(
        self, request: HttpRequest, cleaned: dict[str, Any]
    ) -> dict[str, Any] | None:
        """What to show before it is applied; None after it was."""
        hidden = _lists_without(request, "view")
        closed = {*hidden, *_lists_without(request, "add", "change")}
        document, before = cleaned["document"], dump_text(hidden)
        may_add_groups = request.user.has_perm("auth.add_group")
        if "_apply" in request.POST:
            if request.POST.get("before") != _fingerprint(before):
                messages.warning(request, _CHANGED_MEANWHILE)
            else:
                report = load(
                    document,
                    {},
                    from_admin=True,
                    may_add_groups=may_add_groups,
                    without=closed,
                )
                self._report(request, report)
                return None
        after: list[str] = []
        report = load(
            document,
            {},
            from_admin=True,
            may_add_groups=may_add_groups,
            dry_run=True,
            without=closed,
            look=lambda: after.append(dump_text(hidden)),
        )
        return {
            "report": report,
            "text": cleaned["text"],
            "before": _fingerprint(before),
            "lines": diff_lines(before, "".join(after)),
        }

    def _report(self, request: HttpRequest, report: Report) -> None:
        count = len(report.changes)
        text = ngettext("%d change was made.", "%d changes were made.", count) % count
        messages.success(request, text)
        for note in report.notes[:MAX_NOTES]:
            messages.warning(request, note)
        LogEntry.objects.create(
            user_id=int(str(request.user.pk)),
            object_repr="configuration",
            action_flag=CHANGE,
            change_message=f"Imported a configuration file: {count} changes.",
        )

    def _page(
        self, request: HttpRequest, form: ConfigForm, context: dict[str, Any]
    ) -> HttpResponse:
        context = {
            **self._site.each_context(request),
            "title": _("Configuration"),
            "form": form,
            "may_import": request.user.has_perms(IMPORT),
            **context,
        }
        return TemplateResponse(request, "admin/config.html", context)


def _count_tables(document: Mapping[str, Any]) -> int:
    """The tables of the document's lists, and those of their lists."""
    count, waiting = 0, [document]
    while waiting:
        lists = (each for each in waiting.pop().values() if isinstance(each, list))
        tables = [each for rows in lists for each in rows if isinstance(each, dict)]
        count += len(tables)
        waiting += tables
    return count


_TOO_MANY_TABLES = _(
    "The file has %(count)s tables; at most %(limit)s are imported here at once."
    " Divide it, or load it with the command load_config."
)
_CHANGED_MEANWHILE = _(
    "The configuration was changed after this page was shown, so nothing was applied."
    " Look at the differences again."
)


def _require(request: HttpRequest, permissions: Iterable[str]) -> None:
    if not request.user.has_perms(permissions):
        raise PermissionDenied


def _lists_without(request: HttpRequest, *actions: str) -> set[str]:
    """The lists of the file that this member of staff may not see or change: the file
    of those who may not is the file without them."""
    user = request.user
    rows = {
        "usage_limits": "conversations.{}_usagelimit",
        "model_pools": "llm.{}_modelpool",
    }
    closed = {
        name
        for name, permission in rows.items()
        if not user.has_perms([permission.format(action) for action in actions])
    }
    # Who may change these can come in as anybody.
    return closed if user.is_superuser else {*closed, "identity_providers"}


def _fingerprint(text: str) -> str:
    return sha256(text.encode()).hexdigest()
