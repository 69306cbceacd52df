from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.forms import Textarea
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from llm.forms.error_reports import hide_secrets
from llm.forms.fields import JSONObjectField
from llm.models import ApiKey

MAX_COUNTED = 10_000  # rows of a list that are counted; pages beyond are not shown

JSON_AS_OBJECT: Mapping[type[models.Field], Mapping[str, Any]] = {
    models.JSONField: {
        "form_class": JSONObjectField,
        "widget": Textarea({"rows": 5, "cols": 70, "spellcheck": "false"}),
    }
}


class BoundedPaginator(Paginator):
    """Counts at most `MAX_COUNTED` rows, as counting millions is slow."""

    object_list: QuerySet

    @cached_property
    def count(self) -> int:
        return self.object_list[:MAX_COUNTED].count()


class ReadOnlyAdmin(admin.ModelAdmin):
    """Admin of rows that only the program writes, in possibly large tables."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class SecretFormAdmin(admin.ModelAdmin):
    """Admin with a form that contains a secret."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        hide_secrets(request)
        return super().changeform_view(request, *args, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, *args: Any) -> None:
        super().save_related(request, form, *args)
        saved = form.instance._meta.model._base_manager.get(pk=form.instance.pk)
        for why in self.secrets_not_sent(saved):
            self.message_user(request, why, messages.WARNING)

    def secrets_not_sent(self, obj: Any) -> list[str]:
        """A sentence for each secret that is stored but currently not sent."""
        sentences: list[str] = obj.secrets_not_sent
        return sentences


def switch_enabled(
    model_admin: admin.ModelAdmin, request: HttpRequest, rows: QuerySet, *, on: bool
) -> None:
    count = rows.exclude(enabled=on).update(enabled=on)
    text = _("%(count)d switched on.") if on else _("%(count)d switched off.")
    model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)


def describe_sending(key: ApiKey) -> str:
    """Text for a list: whether a key is sent to its provider, or why not."""
    if not key.secret:
        return "–"
    why = key.why_not_sent
    warning = format_html('<strong class="tool-bad">{}</strong>', why)
    return warning if why else str(_("yes"))
