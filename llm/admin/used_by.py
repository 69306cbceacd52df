"""What refers to a row, counted on the page that asks before it is deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.contrib.admin.utils import NestedObjects, quote, unquote
from django.db import models, router
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
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
        return _describe_deletion(list(objs), request, self.admin_site)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> Any:
        row = self.get_object(request, unquote(object_id))
        uses = self.find_uses([row]) if row is not None else []
        context = {**(extra_context or {}), "uses": uses}
        return super().delete_view(request, object_id, context)

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


def _is_link(model: type[models.Model]) -> bool:
    """Whether it is a many-to-many table without a model of its own."""
    return bool(model._meta.auto_created)


def _describe_deletion(
    rows: Sequence[Any], request: HttpRequest, site: AdminSite
) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
    """What Django's `get_deleted_objects` returns, without the rows of many-to-many
    tables, whose names say nothing to people."""
    if not rows:
        return [], {}, set(), []
    found = NestedObjects(using=router.db_for_write(type(rows[0])), origin=rows)
    found.collect(rows)
    kinds = [
        each for each in found.model_objs.values() if not _is_link(_model_of(each))
    ]
    counts = {str(_model_of(e)._meta.verbose_name_plural): len(e) for e in kinds}
    lacking = {
        str(_model_of(each)._meta.verbose_name)
        for each in kinds
        if not _may_delete_all(each, request, site)
    }
    protected = [_describe_row(row, site) for row in found.protected]
    return _describe_rows(found.nested(), site), counts, lacking, protected


def _model_of(rows: Collection[models.Model]) -> type[models.Model]:
    return type(next(iter(rows)))


def _may_delete_all(
    rows: Collection[models.Model], request: HttpRequest, site: AdminSite
) -> bool:
    model = _model_of(rows)
    if not site.is_registered(model):
        return True
    model_admin = site.get_model_admin(model)
    return all(model_admin.has_delete_permission(request, row) for row in rows)


def _describe_rows(entries: list[Any], site: AdminSite) -> list[Any]:
    """A list after a row has what goes with it."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, list):
            if inner := _describe_rows(entry, site):
                found.append(inner)
        elif not _is_link(type(entry)):
            found.append(_describe_row(entry, site))
    return found


def _describe_row(row: models.Model, site: AdminSite) -> str:
    """A link to the row's page, where it has one."""
    meta = row._meta
    kind = capfirst(str(meta.verbose_name))
    name = f"{site.name}:{meta.app_label}_{meta.model_name}_change"
    try:
        url = (
            reverse(name, args=[quote(row.pk)]) if site.is_registered(type(row)) else ""
        )
    except NoReverseMatch:
        url = ""
    if not url:
        return f"{kind}: {row}"
    return format_html('{}: <a href="{}">{}</a>', kind, url, row)
