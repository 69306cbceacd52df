"""Users and groups as SCIM's resources, over django-scim2.

SCIM changes neither staff nor groups with permissions: a provisioning program must not
be a way to more rights. Source: RFC 7643, RFC 7644.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django_scim import exceptions
from django_scim.adapters import SCIMGroup, SCIMUser

from conversations.access.account_deletion import LastSuperuser, close_account
from conversations.access.sessions import end_others
from project.accounts.models import ScimResource

_MEMBER = re.compile(r'members\[\s*value\s+eq\s+"(\d{1,18})"\s*\]', re.IGNORECASE)
_BOOLEANS = {"true": True, "false": False}  # as Entra ID writes them


class _CheckedPaths:
    """Answers 400 where the path of an operation cannot be parsed."""

    def parse_path_and_values(self, path: Any, value: Any) -> Any:
        """Raises BadRequestError."""
        parent: Any = super()
        try:
            return parent.parse_path_and_values(path, value)
        except exceptions.SCIMException:
            raise
        except Exception as exc:  # any: the parser is another library's
            raise exceptions.BadRequestError(
                "path: write the path of an attribute.", scim_type="invalidPath"
            ) from exc


class ScimUser(_CheckedPaths, SCIMUser):
    id_field = "id"

    @property
    def groups(self) -> list[dict[str, str]]:
        rows = self.obj.groups.order_by("pk") if self.obj.pk else []
        groups = [ScimGroup(row, self.request) for row in rows]
        return [
            {"value": row.id, "$ref": row.location, "display": row.display_name}
            for row in groups
        ]

    def to_dict(self) -> dict[str, Any]:
        self.obj.scim_external_id = _external_id(self.obj)
        found: dict[str, Any] = super().to_dict()
        if not self.obj.email:
            found["emails"] = []
        return found

    def validate_dict(self, d: Any) -> None:
        _check_mapping(d)
        super().validate_dict(d)

    def from_dict(self, d: Any) -> None:
        if not isinstance(d.get("name", {}), dict):
            raise exceptions.BadRequestError("name: write an object.")
        super().from_dict({key: d[key] for key in d if key != "password"})

    def parse_emails(self, value: Any) -> None:
        if isinstance(value, str):  # emails[type eq "work"].value
            value = [{"value": value, "primary": True}]
        if isinstance(value, list) and not all(isinstance(e, dict) for e in value):
            raise exceptions.BadRequestError("emails: write a list of objects.")
        super().parse_emails(value)

    def handle_path_and_value(self, path: Any, value: Any, operation: Any) -> None:
        if path and path.first_path == ("active", None, None):
            value = _BOOLEANS.get(str(value).lower(), value)
        if path and path.first_path[0] == "emails":
            _check_changeable(self.obj)
            self.parse_emails(value)
            self.save()
        elif path and path.first_path == ("externalId", None, None):
            self.obj.scim_external_id = str(value)
            self.save()
        else:
            super().handle_path_and_value(path, value, operation)

    def handle_add(self, path: Any, value: Any, operation: Any) -> None:
        self.handle_replace(path, value, operation)

    def handle_replace(self, path: Any, value: Any, operation: Any) -> None:
        attribute = _USER_COLUMNS.get(path.first_path)
        if attribute is None:
            raise exceptions.NotImplementedError("This attribute cannot be changed.")
        setattr(self.obj, attribute, value)
        self.save()

    def save(self) -> None:
        """Raises SCIMException."""
        _check_changeable(self.obj)
        if not self.obj.pk:
            self.obj.set_unusable_password()
        for name in ("first_name", "last_name"):  # null is none: RFC 7643, section 2.5
            if getattr(self.obj, name) is None:
                setattr(self.obj, name, "")
        _clean(self.obj)
        self.obj.save()
        _store_external_id(self.obj, user=self.obj)
        if not self.obj.is_active:
            end_others(self.obj, None)

    def delete(self) -> None:
        """As if the person deleted the account: it is closed now, erased later."""
        _check_changeable(self.obj)
        try:
            close_account(self.obj)
        except LastSuperuser as exc:
            raise _forbidden(str(exc.message)) from exc


class ScimGroup(_CheckedPaths, SCIMGroup):
    id_field = "id"

    def to_dict(self) -> dict[str, Any]:
        self.obj.scim_external_id = _external_id(self.obj)
        found: dict[str, Any] = super().to_dict()
        return found

    def validate_dict(self, d: Any) -> None:
        _check_mapping(d)
        super().validate_dict(d)

    def from_dict(self, d: Any) -> None:
        super().from_dict(d)
        self._new_members = d.get("members")

    _new_members: Any = None

    def save(self) -> None:
        """Raises SCIMException."""
        self._check_changeable()
        _clean(self.obj)
        self.obj.save()
        _store_external_id(self.obj, group=self.obj)
        if self._new_members is not None:
            self._set_members(_find_members(self._new_members))

    def delete(self) -> None:
        self._check_changeable()
        self.obj.delete()

    def handle_add(self, path: Any, value: Any, operation: Any) -> None:
        self._check_changeable()
        _check_members_path(path)
        self._add(_find_members(value))

    def handle_remove(self, path: Any, value: Any, operation: Any) -> None:
        self._check_changeable()
        if named := _MEMBER.fullmatch(str(operation.get("path"))):
            value = [{"value": named[1]}]
        _check_members_path(path)
        if value is None:
            self._set_members([])
        else:
            self._remove(_find_members(value))

    def handle_replace(self, path: Any, value: Any, operation: Any) -> None:
        self._check_changeable()
        if path.first_path == ("displayName", None, None):
            self.obj.name = value
            self.save()
        elif path.first_path == ("externalId", None, None):
            self.obj.scim_external_id = str(value)
            self.save()
        elif path.first_path != ("id", None, None):  # which Okta repeats
            _check_members_path(path)
            self._set_members(_find_members(value))

    # By each user's own relation, so that the audit log names whom a change concerns.

    def _set_members(self, users: Iterable[User]) -> None:
        """Staff stay in the group: programs neither add nor remove them."""
        wanted = set(users)
        current = set(self.obj.user_set.filter(is_staff=False, is_superuser=False))
        self._remove(current - wanted)
        self._add(wanted - current)

    def _add(self, users: Iterable[User]) -> None:
        for user in users:
            user.groups.add(self.obj)

    def _remove(self, users: Iterable[User]) -> None:
        for user in users:
            user.groups.remove(self.obj)

    def _check_changeable(self) -> None:
        if self.obj.pk and self.obj.permissions.exists():
            raise _forbidden("SCIM does not change groups with permissions.")


_USER_COLUMNS = {
    ("userName", None, None): "username",
    ("name", "familyName", None): "last_name",
    ("name", "givenName", None): "first_name",
    ("active", None, None): "is_active",
}


def _check_changeable(user: User) -> None:
    if user.is_staff or user.is_superuser:
        raise _forbidden("SCIM does not change accounts of staff.")


def _check_mapping(value: Any) -> None:
    if not isinstance(value, dict):
        raise exceptions.BadRequestError("Write an object.")


def _check_members_path(path: Any) -> None:
    if path.first_path[0] != "members":
        raise exceptions.NotImplementedError("This attribute cannot be changed.")


def _find_members(value: Any) -> list[User]:
    """Raises SCIMException: for unknown users, and for staff."""
    members = value if isinstance(value, list) else [value]
    texts = [str(each.get("value")) for each in members if isinstance(each, dict)]
    if len(texts) != len(members) or not all(
        re.fullmatch(r"\d{1,18}", t) for t in texts
    ):
        raise exceptions.BadRequestError("members: write a list of {value: id}.")
    users = list(User.objects.filter(pk__in=map(int, texts)))
    if len(users) != len(set(texts)):
        raise exceptions.BadRequestError("members: there is no user of an id.")
    for user in users:
        _check_changeable(user)
    return users


def _clean(row: User | Group) -> None:
    """Raises SCIMException."""
    try:
        row.full_clean()
    except ValidationError as exc:
        errors = exc.error_dict
        taken = [e for each in errors.values() for e in each if e.code == "unique"]
        text = " ".join(exc.messages)
        if taken:
            raise exceptions.IntegrityError(text, scim_type="uniqueness") from exc
        raise exceptions.BadRequestError(text, scim_type="invalidValue") from exc


def _external_id(row: User | Group) -> str:
    found = ScimResource.objects.filter(**_owner(row)).first() if row.pk else None
    return found.external_id if found else ""


def _store_external_id(row: Any, **owner: Any) -> None:
    text = getattr(row, "scim_external_id", None)
    if text is not None:
        values = {"external_id": str(text)[:254]}
        ScimResource.objects.update_or_create(**owner, defaults=values)


def _owner(row: User | Group) -> dict[str, Any]:
    return {"user" if isinstance(row, User) else "group": row}


def _forbidden(text: str) -> exceptions.SCIMException:
    return exceptions.SCIMException(text, status=403)
