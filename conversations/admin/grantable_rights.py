"""Staff who may change users or groups can give no right that they do not have."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import QuerySet
from django.http import HttpRequest

from conversations.forms.permission_names import PermissionsField

#: What staff cannot change of their own account.
OWN_RIGHTS = ("is_active", "is_staff", "groups", "user_permissions")


def rights_of(user: Any) -> set[str]:
    """As `app.codename`; a superuser has all."""
    found: set[str] = user.get_all_permissions()
    return found


def rights_of_group(group: Group) -> set[str]:
    rows = group.permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


def may_manage(staff: Any, user: User) -> bool:
    """Whether the user has no right that the staff member lacks."""
    if staff.is_superuser:
        return True
    return not user.is_superuser and rights_of_account(user) <= rights_of(staff)


def rights_of_account(user: User) -> set[str]:
    """The rights that the account would have if it were active: switching it on again
    brings them back at once."""
    rows = Permission.objects.filter(group__user=user) | user.user_permissions.all()
    names = rows.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in names}


def may_grant(staff: Any, group: Group) -> bool:
    return staff.is_superuser or rights_of_group(group) <= rights_of(staff)


def permissions_to_grant(staff: Any) -> QuerySet[Permission]:
    rows = Permission.objects.select_related("content_type")
    if staff.is_superuser:
        return rows
    own = rights_of(staff)
    keys = [
        pk
        for pk, app, codename in rows.values_list(
            "pk", "content_type__app_label", "codename"
        )
        if f"{app}.{codename}" in own
    ]
    return rows.filter(pk__in=keys)


def groups_to_grant(staff: Any) -> QuerySet[Group]:
    rows = Group.objects.order_by("name")
    if staff.is_superuser:
        return rows
    own = [g.pk for g in rows.prefetch_related("permissions") if may_grant(staff, g)]
    return rows.filter(pk__in=own)


class GrantableRightsMixin(admin.ModelAdmin):
    """For the admin of users and of groups: staff change only rows whose rights they
    have themselves, and choose only among their own rights."""

    def is_within_rights(self, request: HttpRequest, obj: Any) -> bool:
        if isinstance(obj, Group):
            return may_grant(request.user, obj)
        return may_manage(request.user, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may = super().has_change_permission(request, obj)
        return may and (obj is None or self.is_within_rights(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or self.is_within_rights(request, obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = [*super().get_readonly_fields(request, obj)]
        if request.user.is_superuser or isinstance(obj, Group):
            return fields
        own = OWN_RIGHTS if obj is not None and obj.pk == request.user.pk else ()
        unknown = {"is_superuser", *own} & _field_names(self.model)
        return [*fields, *sorted(unknown - set(fields))]

    def formfield_for_manytomany(
        self, db_field: Any, request: Any = None, **kwargs: Any
    ) -> Any:
        if db_field.remote_field.model is Permission:
            kwargs = {"form_class": PermissionsField, **kwargs}
        field = super().formfield_for_manytomany(db_field, request, **kwargs)
        if field is not None and db_field.remote_field.model is Permission:
            field.queryset = permissions_to_grant(request.user)
        if field is not None and db_field.remote_field.model is Group:
            field.queryset = groups_to_grant(request.user)
        return field


def _field_names(model: Any) -> set[str]:
    return {field.name for field in model._meta.get_fields()}
