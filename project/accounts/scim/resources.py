"""Users and groups as SCIM's resources, over django-scim2.

SCIM changes neither staff nor groups with permissions: a provisioning program must not
be a way to more rights. Source: RFC 7643, RFC 7644.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django_scim import exceptions
from django_scim.adapters import SCIMGroup, SCIMUser

from conversations.access.account_deletion import LastSuperuser, close_account
from conversations.access.policy.group_restrictions import list_rows_opened_without
from conversations.access.sessions import end_others
from conversations.models import AccessToken
from project.accounts.addresses import delete_former_addresses
from project.accounts.models import ScimResource
from project.accounts.scim.lookups import (
    find_members,
    find_remaining_members,
    without_deleted,
)
from project.accounts.scim.paths import (
    Change,
    Target,
    join_members,
    list_targets,
)
from project.accounts.scim.values import (
    check_mapping,
    check_texts,
    list_values,
    read_boolean,
    read_text,
    with_active,
)

MAX_EXTERNAL_ID = 254  # characters, as the column
MEMBERS_AT_ONCE = 5000  # whom one statement adds to a group

_NO_STAFF = "SCIM does not change accounts of staff."
_OPERATIONS = ("add", "replace", "remove")
_NAMES = {"givenname": "first_name", "familyname": "last_name"}
#: Attributes of the standard that are accepted and not stored (RFC 7643, sections 3.1,
#: 4.1 and 4.2). Programs send them together with others, and a refusal is for all.
_IGNORED = frozenset(
    (
        *("addresses", "displayname", "entitlements", "id", "ims", "locale", "meta"),
        *("name", "nickname", "password", "phonenumbers", "photos", "profileurl"),
        *("preferredlanguage", "roles", "schemas", "timezone", "title", "usertype"),
        "x509certificates",
    )
)
_IGNORED_OF_GROUPS = frozenset({"id", "meta", "schemas"})


class _Resource(ABC):
    """What users and groups share."""

    obj: Any
    request: Any

    def to_dict(self) -> dict[str, Any]:
        parent: Any = super()
        self.obj.scim_external_id = _external_id(self.obj)
        found: dict[str, Any] = parent.to_dict()
        excluded = self._excluded - {"id", "schemas"}
        return {key: found[key] for key in found if key.lower() not in excluded}

    @property
    def _excluded(self) -> set[str]:
        names = self.request.GET.get("excludedAttributes", "")
        return {name.strip().lower() for name in names.split(",")}

    def handle_operations(self, operations: Any) -> None:
        """Raises SCIMException."""
        for kind, target, value in join_members(_list_changes(operations)):
            self.change(kind, target, value)
        self.save()

    @abstractmethod
    def change(self, kind: str, target: Target, value: Any) -> None:
        """Make one change of a PATCH, without saving it. Raises SCIMException."""

    @abstractmethod
    def save(self) -> None:
        """Raises SCIMException."""


def _list_changes(operations: Any) -> Iterator[Change]:
    """Raises BadRequestError."""
    for operation in operations:
        kind = operation["op"].lower()
        if kind not in _OPERATIONS:
            raise exceptions.BadRequestError(
                "op: write add, replace or remove.", scim_type="invalidSyntax"
            )
        for target, value in list_targets(operation):
            yield Change(kind, target, value)


class ScimUser(_Resource, SCIMUser):
    id_field = "id"

    @property
    def groups(self) -> list[dict[str, str]]:
        rows = self.obj.groups.order_by("pk") if self.obj.pk else []
        groups = [ScimGroup(row, self.request) for row in rows]
        return [
            {"value": row.id, "$ref": row.location, "display": row.display_name}
            for row in groups
        ]

    @property
    def emails(self) -> list[dict[str, Any]]:
        return [{"value": self.obj.email, "primary": True}] if self.obj.email else []

    def validate_dict(self, d: Any) -> None:
        check_mapping(d)
        check_texts(d, "userName", "externalId")
        super().validate_dict(with_active(d))

    def from_dict(self, d: Any) -> None:
        name = d.get("name") or {}
        if not isinstance(name, dict):
            raise exceptions.BadRequestError("name: write an object.")
        known = {key: d[key] for key in d if key != "password"}
        super().from_dict({**with_active(known), "name": name})
        if "emails" in d and not d["emails"]:
            self.obj.email = ""

    def parse_emails(self, value: Any) -> None:
        if isinstance(value, str) and value:  # emails[type eq "work"].value
            value = [{"value": value, "primary": True}]
        emails = value or []
        if not isinstance(emails, list):
            emails = [emails]
        if not all(map(_has_address, emails)):
            raise exceptions.BadRequestError(
                "emails: write a list of {value: address}.", scim_type="invalidValue"
            )
        super().parse_emails(value)

    def change(self, kind: str, target: Target, value: Any) -> None:
        if kind == "remove" and target.name != "emails":
            value = None
        match target.name:
            case "active":
                self.obj.is_active = read_boolean(value)
            case "username":
                self.obj.username = read_text(target, value)
            case "name" if target.sub_attribute in _NAMES:
                setattr(
                    self.obj,
                    _NAMES[target.sub_attribute],
                    read_text(target, value) or "",
                )
            case "externalid":
                self.obj.scim_external_id = read_text(target, value) or ""
            case "emails":
                self._change_email(kind, target, value)
            case name if name not in _IGNORED and not target.is_extension:
                raise _unchangeable(target)

    def _change_email(self, kind: str, target: Target, value: Any) -> None:
        """An account has one address: the one for work."""
        if target.sub_attribute not in ("", "value") or not self._is_address(target):
            return
        if kind != "remove" and value:
            self.parse_emails(value)
        elif not isinstance(value, list) or self.obj.email in list_values(value):
            self.obj.email = ""

    def _is_address(self, target: Target) -> bool:
        """Whether the account's address meets the condition in brackets, if any."""
        wanted = {"type": "work", "value": self.obj.email.lower()}
        return all(
            value.lower() == wanted.get(name, value.lower())
            for name, value in target.list_clauses()
        )

    @transaction.atomic
    def save(self) -> None:
        """Raises SCIMException."""
        _check_changeable(self.obj)
        if not self.obj.pk:
            self.obj.set_unusable_password()
        # In a request null means unset (RFC 7643, section 2.5), in the row "" does.
        for name in ("first_name", "last_name"):
            if getattr(self.obj, name) is None:
                setattr(self.obj, name, "")
        _clean(self.obj)
        _check_name(self.obj)
        was = User.objects.filter(pk=self.obj.pk).values_list("email", flat=True)
        is_moved = self.obj.email not in was
        self.obj.save()
        if is_moved:
            delete_former_addresses(self.obj)
        _store_external_id(self.obj, user=self.obj)
        if not self.obj.is_active:
            end_others(self.obj, None)
            for token in AccessToken.objects.filter(user=self.obj, revoked_at=None):
                token.revoke()

    def delete(self) -> None:
        """As if the person deleted the account: it is closed now, erased later."""
        _check_changeable(self.obj)
        try:
            close_account(self.obj)
        except LastSuperuser as exc:
            raise _forbidden(str(exc.message)) from exc


class ScimGroup(_Resource, SCIMGroup):
    id_field = "id"

    @property
    def members(self) -> list[dict[str, str]]:
        if "members" in self._excluded:
            return []
        rows = without_deleted(self.request, self.obj.user_set.all())
        users = [ScimUser(row, self.request) for row in rows]
        return [
            {"value": user.id, "$ref": user.location, "display": user.display_name}
            for user in users
        ]

    def validate_dict(self, d: Any) -> None:
        check_mapping(d)
        check_texts(d, "displayName", "externalId")
        super().validate_dict(d)

    def from_dict(self, d: Any) -> None:
        super().from_dict(d)
        self._new_members = d.get("members")

    _new_members: Any = None

    @transaction.atomic
    def save(self) -> None:
        """Raises SCIMException."""
        self._check_changeable()
        _clean(self.obj)
        self.obj.save()
        _store_external_id(self.obj, group=self.obj)
        if self._new_members is not None:
            self._set_members(find_members(self._new_members))

    def delete(self) -> None:
        self._check_changeable()
        if opened := list_rows_opened_without([self.obj]):
            names = ", ".join(str(row) for row in opened[:5])
            raise exceptions.SCIMException(
                f"Everybody could use this without the group: {names}", status=409
            )
        self.obj.delete()

    def change(self, kind: str, target: Target, value: Any) -> None:
        self._check_changeable()
        if kind == "remove" and target.name != "members":
            value = None
        match target.name:
            case "members":
                self._change_members(kind, target, value)
            case "displayname":
                self.obj.name = read_text(target, value)
            case "externalid":
                self.obj.scim_external_id = read_text(target, value) or ""
            case name if name not in _IGNORED_OF_GROUPS and not target.is_extension:
                raise _unchangeable(target)

    def _change_members(self, kind: str, target: Target, value: Any) -> None:
        """Raises BadRequestError: a condition that is not understood must not count as
        all members."""
        if target.condition or target.sub_attribute:
            raise exceptions.BadRequestError(
                'members: only members[value eq "…"] can be removed.',
                scim_type="invalidFilter",
            )
        if kind == "add":
            self._add(find_members(value))
        elif kind == "replace":
            self._set_members(find_members(value))
        elif value is None:
            self._set_members([])
        else:
            self._remove(find_remaining_members(value))

    def _set_members(self, users: Iterable[User]) -> None:
        """Staff stay in the group: programs neither add nor remove them."""
        wanted = set(users)
        current = set(self.obj.user_set.all())
        staff = {user for user in current if user.is_staff or user.is_superuser}
        self._remove(current - wanted - staff)
        self._add(wanted - current)

    def _add(self, users: Iterable[User]) -> None:
        """A list may name staff who are members."""
        rows = list(users)
        staff = [user for user in rows if user.is_staff or user.is_superuser]
        if staff and self.obj.user_set.filter(pk__in=_keys(staff)).count() < len(staff):
            raise _forbidden(_NO_STAFF)
        for batch in _batch(rows):
            self.obj.user_set.add(*batch)

    def _remove(self, users: Iterable[User]) -> None:
        rows = list(users)
        for user in rows:
            _check_changeable(user)
        for batch in _batch(rows):
            self.obj.user_set.remove(*batch)

    def _check_changeable(self) -> None:
        if self.obj.pk and self.obj.permissions.exists():
            raise _forbidden("SCIM does not change groups with permissions.")


def _batch(rows: list[User]) -> Iterator[list[User]]:
    """A database bounds how many values a statement has."""
    for start in range(0, len(rows), MEMBERS_AT_ONCE):
        yield rows[start : start + MEMBERS_AT_ONCE]


def _keys(rows: Iterable[User]) -> list[int]:
    return [user.pk for user in rows]


def _check_changeable(user: User) -> None:
    if user.is_staff or user.is_superuser:
        raise _forbidden(_NO_STAFF)


def _has_address(email: Any) -> bool:
    return isinstance(email, dict) and isinstance(email.get("value"), str)


def _check_name(user: User) -> None:
    """Raises IntegrityError. SCIM compares names without their case (RFC 7643, section
    4.1.1), and a program that finds two accounts by one name stops."""
    others = User.objects.exclude(pk=user.pk)
    unchanged = User.objects.filter(pk=user.pk, username=user.username)
    if others.filter(username__iexact=user.username).exists() and not unchanged:
        raise exceptions.IntegrityError(
            "A user with that username already exists.", scim_type="uniqueness"
        )


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
        if len(text) > MAX_EXTERNAL_ID:
            raise exceptions.BadRequestError(
                "externalId: the text is too long.", scim_type="invalidValue"
            )
        values = {"external_id": text}
        ScimResource.objects.update_or_create(**owner, defaults=values)


def _owner(row: User | Group) -> dict[str, Any]:
    return {"user" if isinstance(row, User) else "group": row}


def _unchangeable(target: Target) -> exceptions.SCIMException:
    text = f"{target.name}: this attribute cannot be changed."
    return exceptions.BadRequestError(text[:200], scim_type="mutability")


def _forbidden(text: str) -> exceptions.SCIMException:
    return exceptions.SCIMException(text, status=403)
