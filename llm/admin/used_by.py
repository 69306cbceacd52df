"""What refers to a row, counted on the page that asks before it is deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

MAX_COUNTED = 1_000  # rows of each kind


@dataclass(frozen=True, slots=True)
class Use:
    """Rows of one kind that refer to what is deleted."""

    label: str
    count: int
    is_sum: bool = False  # of all rows, and not counted up to a limit

    @property
    def text(self) -> str:
        if self.is_sum or self.count < MAX_COUNTED:
            return f"{self.label}: {self.count}"
        return _("%(label)s: %(count)d or more") % {
            "label": self.label,
            "count": MAX_COUNTED,
        }


def count_uses(
    references: Iterable[tuple[Any, str]], keys: Collection[Any]
) -> list[Use]:
    """One query for each reference: a model, and its lookup of the rows `keys`."""
    found = []
    for model, path in references:
        rows = model._base_manager.filter(**{f"{path}__in": keys}).order_by()
        if count := rows[:MAX_COUNTED].count():
            label = capfirst(str(model._meta.verbose_name_plural))
            found.append(Use(label, count))
    return found


def references_to(
    target: type[models.Model], ignored: Collection[type[models.Model]] = ()
) -> Iterator[tuple[Any, str]]:
    """Models of any app that refer to `target`, each with the lookup."""
    relations: Sequence[Any] = target._meta.get_fields(include_hidden=True)
    for each in relations:
        if not each.auto_created or each.concrete or not each.is_relation:
            continue
        model = each.related_model
        if not model._meta.auto_created and model not in ignored:
            yield model, each.field.name


class UsedByAdmin(admin.ModelAdmin):
    """Asks before a deletion, and shows what refers to the rows."""

    delete_confirmation_template = "admin/used_by/delete_confirmation.html"
    delete_selected_confirmation_template = "admin/used_by/delete_selected.html"

    #: Models whose rows are parts of the row and not its users.
    parts: Collection[type[models.Model]] = ()

    def find_uses(self, rows: Sequence[Any]) -> list[Use]:
        references = references_to(self.model, self.parts)
        return count_uses(references, [row.pk for row in rows])

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)
        if "delete_selected" in found:  # of the site
            found["delete_selected"] = self.get_action("delete_selected")
        return found

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        rows, counts, lacking, protected = super().get_deleted_objects(objs, request)
        links = _link_names()
        return (
            _without_links(rows, [f"{capfirst(each)}: " for each in links.values()]),
            {name: n for name, n in counts.items() if name not in links},
            lacking,
            protected,
        )

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> Any:
        response = super().delete_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            row = response.context_data["object"]
            response.context_data["uses"] = self.find_uses([row])
        return response

    @admin.action(
        permissions=["delete"],
        description=gettext_lazy("Delete selected %(verbose_name_plural)s"),
    )
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> HttpResponseBase | None:
        actions: dict[str, Any] = super().get_actions(request)
        of_site = actions["delete_selected"][0]
        response: HttpResponseBase | None = of_site(self, request, queryset)
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            response.context_data["uses"] = self.find_uses(list(queryset))
        return response


# What is deleted


def _link_names() -> dict[str, str]:
    """The names of many-to-many tables without a model of their own, in the plural
    and singular. Their rows say nothing to people."""
    every = apps.get_models(include_auto_created=True)
    metas = [each._meta for each in every if each._meta.auto_created]
    return {str(m.verbose_name_plural): str(m.verbose_name) for m in metas}


def _without_links(entries: list[Any], prefixes: list[str]) -> list[Any]:
    """`entries` is as of Django's `get_deleted_objects`: a list after a row has what
    goes with it."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, list):
            if inner := _without_links(entry, prefixes):
                found.append(inner)
        elif isinstance(entry, SafeString) or not entry.startswith(tuple(prefixes)):
            found.append(entry)  # a row with a page of its own is a link
    return found
