"""Which rows SCIM sees: filters of requests, and accounts that were deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django_scim import exceptions
from django_scim.filters import FilterQuery

from conversations.models.user_settings import UserSettings
from project.accounts.scim.values import read_members

MAX_FILTER = 1000  # characters
#: Words, brackets and texts of a filter: at most twenty conditions. django-scim2's
#: parser names their values a to z.
MAX_FILTER_PARTS = 60
_PART = re.compile(r'[()\[\]]|"(?:[^"\\]|\\.)*"|[^\s()\[\]"]+')

_EXTERNAL_ID = "accounts_scimresource.external_id"
_MEMBER = "CAST(auth_user_groups.user_id AS VARCHAR)"
_CORE = "urn:ietf:params:scim:schemas:core:2.0:"


class _Columns:
    """Columns by the names of attributes, which compare without their case.

    django-scim2 only calls `get`, with a path that its parser has made.
    """

    def __init__(self, columns: dict[str, str]) -> None:
        self._columns = columns

    def get(self, path: Any) -> str:
        """Raises BadRequestError for an attribute without a column: with None
        django-scim2 would leave out the condition, and find more than was searched."""
        names = [path.attr_name, *([path.sub_attr] if path.sub_attr else [])]
        column = self._columns.get(".".join(map(str, names)).lower())
        if column is None or not str(path.uri or _CORE).startswith(_CORE):
            raise exceptions.BadRequestError(
                "filter: there is no search by this attribute.",
                scim_type="invalidFilter",
            )
        return column


class _BoundedQuery(FilterQuery):
    @classmethod
    def search(cls, filter_query: Any, request: HttpRequest | None = None) -> Any:
        """Raises ValueError."""
        if not isinstance(filter_query, str):  # in the body of a search
            raise ValueError("The filter is no text.")
        if len(filter_query) > MAX_FILTER or "\0" in filter_query:
            raise ValueError("The filter is too long.")
        if len(_PART.findall(filter_query)) > MAX_FILTER_PARTS:
            raise ValueError("The filter has too many conditions.")
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
    attr_map = _Columns(
        {
            "id": "CAST(auth_user.id AS VARCHAR)",
            "username": "auth_user.username",
            "externalid": _EXTERNAL_ID,
            "name.familyname": "auth_user.last_name",
            "name.givenname": "auth_user.first_name",
            "emails": "auth_user.email",
            "emails.value": "auth_user.email",
            "emails.type": "'work'",
            "emails.primary": "'TRUE'",
            # As text, because django-scim2 compares it with text.
            "active": "CASE WHEN auth_user.is_active THEN 'TRUE' ELSE 'FALSE' END",
        }
    )


class GroupFilter(_BoundedQuery):
    model_getter = lambda: Group  # noqa: E731
    joins = (
        "LEFT JOIN accounts_scimresource ON accounts_scimresource.group_id"
        " = auth_group.id",
        "LEFT JOIN auth_user_groups ON auth_user_groups.group_id = auth_group.id",
    )
    attr_map = _Columns(
        {
            "id": "CAST(auth_group.id AS VARCHAR)",
            "displayname": "auth_group.name",
            "externalid": _EXTERNAL_ID,
            "members": _MEMBER,
            "members.value": _MEMBER,
        }
    )


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


def find_members(value: Any) -> list[User]:
    """Raises BadRequestError, also for unknown users and closed accounts."""
    texts = read_members(value)
    users = list(without_deleted(None, _users_of(texts)))
    if len(users) != len(texts):
        raise exceptions.BadRequestError(
            "members: there is no user of an id.", scim_type="invalidValue"
        )
    return users


def find_remaining_members(value: Any) -> list[User]:
    """The users who still exist: the others need no removal. Raises BadRequestError."""
    return list(_users_of(read_members(value)))


def _users_of(texts: set[str]) -> QuerySet[User]:
    keys = {int(text) for text in texts if re.fullmatch(r"[0-9]{1,18}", text)}
    return User.objects.filter(pk__in=keys)
