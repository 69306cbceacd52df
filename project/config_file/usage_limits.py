"""Limits of use of the configuration file: everybody's, groups' and users'.

Limits of access tokens belong to rows that people make, and have no name in a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User

from conversations.models.limits.usage_limit import LimitPeriod, UsageLimit
from project.config_file.links import Links
from project.config_file.pools import find_model
from project.config_file.shape import Shape, Table
from project.config_file.tables import USAGE_LIMIT, build_table


def limit_tables(document: Table, shape: Shape) -> Iterator[tuple[str, Table]]:
    """The valid tables with their paths; each subject and period occurs once."""
    tables = document.get("usage_limits", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        shape.problems.append("usage_limits: write a list of tables.")
        return
    seen = set()
    for table in tables:
        path, texts = _path_of(table), _identity_of(table)
        if not all(isinstance(text, str) for text in texts[:3]):
            shape.problems.append(f"{path}: write user, group and period as strings.")
        elif not isinstance(texts[4], str):
            shape.problems.append(f"{path}: write model as a string.")
        elif texts[0] and texts[1]:
            shape.problems.append(f"{path}: name a user or a group, not both.")
        elif texts in seen:
            shape.problems.append(f"{path}: this limit occurs twice.")
        else:
            seen.add(texts)
            yield path, table


def find_limit(
    path: str, table: Table, shape: Shape, links: Links
) -> UsageLimit | None:
    """The row of this subject, model and period, or a new one; None after a problem."""
    user_name, group_name, period, is_shared, model_name = _identity_of(table)
    user = User.objects.filter(username=user_name).first() if user_name else None
    if user_name and user is None:
        shape.problems.append(f"{path}.user: there is no user {user_name!r}.")
        return None
    group = links.ensure_group(group_name) if group_name else None
    model = find_model(model_name) if model_name else None
    if model_name and model is None:
        shape.problems.append(f"{path}.model: there is no model {model_name!r}.")
        return None
    lookup = {
        "user": user,
        "group": group,
        "token": None,
        "model": model,
        "period": period,
    }
    rows = UsageLimit.objects.filter(**lookup, is_shared=is_shared)
    return rows.first() or UsageLimit(**lookup)


def build_limit_tables() -> list[dict[str, Any]]:
    related = ("user", "group", "model__provider")
    rows = UsageLimit.objects.filter(token=None).select_related(*related)
    return [_build_table(row) for row in rows]


def _build_table(row: UsageLimit) -> dict[str, Any]:
    subject = {}
    if row.user:
        subject["user"] = row.user.username
    if row.group:
        subject["group"] = row.group.name
    if row.model:
        subject["model"] = row.model.full_name
    return subject | build_table(row, USAGE_LIMIT)


def _identity_of(table: Table) -> tuple[Any, Any, Any, bool, Any]:
    """User, group, period, whether the group's members share it, and the model."""
    return (
        table.get("user", ""),
        table.get("group", ""),
        table.get("period", LimitPeriod.MONTH.value),
        table.get("is_shared") is True,
        table.get("model", ""),
    )


def _path_of(table: Table) -> str:
    user, group, period, _, model = _identity_of(table)
    of_model = f", {model}" if model else ""
    return f"usage_limits[{user or group or 'everybody'}, {period}{of_model}]"
