"""What only members of a group may use. Rows without groups are for everybody, so the
end of their last group would open them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import models

from tools.models import Tool


def list_opened(groups: Collection[Group]) -> list[models.Model]:
    """The rows that only these groups may use, or decide about."""
    rows = [row for model, name in _restricted() for row in _only(model, name, groups)]
    approved = Tool.objects.filter(approvers__in=groups)
    return [*rows, *(tool for tool in approved if tool not in rows)]


def _restricted() -> Iterator[tuple[type[models.Model], str]]:
    relations: Any = Group._meta.get_fields(include_hidden=True)
    for each in relations:
        if each.many_to_many and each.auto_created and each.related_model is not User:
            yield each.related_model, each.field.name


def _only(
    model: type[models.Model], name: str, groups: Collection[Group]
) -> models.QuerySet[models.Model]:
    rows = model._default_manager
    others = Group.objects.exclude(pk__in=[group.pk for group in groups])
    shared = rows.filter(**{f"{name}__in": others})
    found = rows.filter(**{f"{name}__in": groups})
    return found.exclude(pk__in=shared.values("pk")).distinct()
