"""Bases that the admin classes share: read-only rows, forms with secrets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Page, Paginator
from django.db import models
from django.db.models import QuerySet
from django.forms import Textarea
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from llm.forms.error_report_filter import hide_secrets
from llm.forms.fields import JSONObjectField
from llm.models import ApiKey

MAX_COUNTED = 10_000  # rows of a list that are counted; pages beyond are not shown
MAX_FOUND = 1_000  # rows that a search shows by each of its fields

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
        # Neither sorted nor annotated: of rows that are only counted, any will do.
        return self.object_list.order_by().values("pk")[:MAX_COUNTED].count()

    def page(self, number: int | str) -> Page:
        """The keys first, by an index: of a query that joins and sums as well, a
        database may read all rows before it sorts them."""
        number = self.validate_number(number)
        start = (number - 1) * self.per_page
        keys = self.object_list.values_list("pk", flat=True)
        shown = list(keys[start : start + self.per_page])
        return Page(self.object_list.filter(pk__in=shown), number, self)


class LargeTableList(ChangeList):
    """Reads the keys first also where all rows fit on one page, and unsorted: to sort
    few rows of a filter, a database may read the whole table by its time."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if self.multi_page and not (self.show_all and self.can_show_all):
            return  # a page of the paginator, which reads keys first
        keys = self.queryset.order_by().values_list("pk", flat=True)
        shown = list(keys[: self.list_max_show_all])
        self.result_list = self.queryset.filter(pk__in=shown)


class LargeTableAdmin(admin.ModelAdmin):
    """Admin of a table with possibly millions of rows.

    Lists are sorted only by columns with an index. A search looks up each of
    `search_fields` by itself: joined with OR, no database would use their indexes.
    """

    paginator = BoundedPaginator
    list_per_page = 50  # a row costs a millisecond of CPU
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return LargeTableList

    def get_sortable_by(self, request: HttpRequest) -> Any:
        sortable = sortable_columns(self.model)
        return [str(name) for name in self.list_display if name in sortable]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        found = self.find_ids(queryset.order_by(), term)
        return queryset.filter(pk__in=found), False

    def find_ids(self, rows: QuerySet[Any], term: str) -> set[Any]:
        """Primary keys of rows that a search for `term` shows."""
        found: set[Any] = set()
        for name in self.search_fields:
            lookup = f"{name[1:]}__exact" if name[0] == "=" else f"{name}__icontains"
            with suppress(ValueError, OverflowError):  # no number, for a number's field
                matches = rows.filter(**{lookup: term}).values_list("pk", flat=True)
                found.update(matches[:MAX_FOUND])
        return found


def sortable_columns(model: type[models.Model]) -> set[str]:
    """Names of fields by which rows are sorted without reading all of them.

    Of texts only keys: where millions of rows have one state, the index on it leaves
    them to be sorted by the list's own order.
    """
    constraints = [*model._meta.indexes, *model._meta.constraints]
    first = {
        fields[0].removeprefix("-")
        for index in constraints
        if (fields := getattr(index, "fields", ())) and not index.condition
        if isinstance(
            model._meta.get_field(fields[0].removeprefix("-")), models.DateTimeField
        )
    }
    alone = {
        field.name
        for field in model._meta.concrete_fields
        if field.unique
        or (isinstance(field, models.DateTimeField) and _has_index(field))
    }
    return {*first, *alone}


def _has_index(field: Any) -> bool:
    return bool(field.db_index)


class ReadOnlyAdmin(LargeTableAdmin):
    """Admin of rows that only the program writes, in possibly large tables."""

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
        saved = type(form.instance)._base_manager.get(pk=form.instance.pk)
        for why in self.secrets_not_sent(saved):
            self.message_user(request, why, messages.WARNING)

    def secrets_not_sent(self, obj: Any) -> list[str]:
        """A sentence for each secret that is stored but currently not sent."""
        sentences: list[str] = obj.secrets_not_sent
        return sentences


def note_author(request: HttpRequest, key: ApiKey, form: Any) -> None:
    """Record who entered the secret as the one who added the key."""
    if "secret" in form.changed_data:
        key.added_by = request.user  # type: ignore[assignment]


def describe_sending(key: ApiKey) -> str:
    """Text for a list: whether a key is sent to its provider, or why not."""
    if not key.secret:
        return "–"
    why = key.why_not_sent
    warning = format_html('<strong class="tool-bad">{}</strong>', why)
    return warning if why else str(_("yes"))
