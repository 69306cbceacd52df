"""What is restricted to groups. Rows without groups are for everybody, so the deletion
of its last group would open a restricted row to everybody."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import models

from tools.models import Tool


def list_rows_opened_without(groups: Collection[Group]) -> list[models.Model]:
    """The rows that are restricted to these groups alone, and the tools whose calls one
    of them approves."""
    rows = [
        row
        for model, field in _list_restrictions()
        for row in _restricted_to(model, field, groups)
    ]
    approved = Tool.objects.filter(approvers__in=groups)
    return [*rows, *(tool for tool in approved if tool not in rows)]


def _list_restrictions() -> Iterator[tuple[type[models.Model], str]]:
    """The models, and their fields, with the groups that a row is restricted to."""
    relations: Any = Group._meta.get_fields(include_hidden=True)
    for each in relations:
        if each.many_to_many and each.auto_created and each.related_model is not User:
            yield each.related_model, each.field.name


def _restricted_to(
    model: type[models.Model], field: str, groups: Collection[Group]
) -> models.QuerySet[models.Model]:
    """The rows that have some of these groups and no other."""
    rows = model._default_manager
    others = Group.objects.exclude(pk__in=[group.pk for group in groups])
    shared = rows.filter(**{f"{field}__in": others})
    found = rows.filter(**{f"{field}__in": groups})
    return found.exclude(pk__in=shared.values("pk")).distinct()
