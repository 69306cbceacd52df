"""Which rows SCIM sees: filters of requests, and accounts that were deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django_scim import exceptions
from django_scim.filters import FilterQuery

from conversations.models.user_settings import UserSettings

MAX_FILTER = 1000  # characters

_EXTERNAL_ID = "accounts_scimresource.external_id"


class _BoundedQuery(FilterQuery):
    @classmethod
    def search(cls, filter_query: str, request: HttpRequest | None = None) -> Any:
        """Raises ValueError."""
        if len(filter_query) > MAX_FILTER or "\0" in filter_query:
            raise ValueError("The filter is too long.")
        found = super().search(filter_query, request)
        keys = [row.pk for row in found]
        model = cls.model_getter()
        return without_deleted(request, model._default_manager.filter(pk__in=keys))


class UserFilter(_BoundedQuery):
    model_getter = lambda: User  # noqa: E731 - django-scim2 calls it as a function
    joins = (
        "LEFT JOIN accounts_scimresource ON accounts_scimresource.user_id"
        " = auth_user.id",
    )
    attr_map = {
        ("userName", None, None): "auth_user.username",
        ("externalId", None, None): _EXTERNAL_ID,
        ("name", "familyName", None): "auth_user.last_name",
        ("name", "givenName", None): "auth_user.first_name",
        ("emails", "value", None): "auth_user.email",
        ("active", None, None): "auth_user.is_active",
    }


class GroupFilter(_BoundedQuery):
    model_getter = lambda: Group  # noqa: E731
    joins = (
        "LEFT JOIN accounts_scimresource ON accounts_scimresource.group_id"
        " = auth_group.id",
    )
    attr_map = {
        ("displayName", None, None): "auth_group.name",
        ("externalId", None, None): _EXTERNAL_ID,
    }


def without_deleted(request: Any, rows: Any) -> Any:
    """Closed accounts wait for their erasure; for SCIM they are gone."""
    rows = rows.order_by("pk")
    if rows.model is not User:
        return rows
    deleted = UserSettings.objects.exclude(account_deleted_at=None)
    return rows.exclude(pk__in=deleted.values("user"))


def hide_deleted(request: Any, row: Any) -> Any:
    """Raises NotFoundError."""
    if not without_deleted(request, type(row)._default_manager.filter(pk=row.pk)):
        raise exceptions.NotFoundError(row.pk)
    return row


def filter_lists(model: Any) -> Callable[..., Any]:
    return without_deleted


def filter_row(model: Any) -> Callable[..., Any]:
    return hide_deleted


def base_location(request: Any = None, *_: Any, **__: Any) -> str:
    return str(request.build_absolute_uri("/")) if request is not None else "/"
