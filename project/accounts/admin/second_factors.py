"""Admin of second factors: without their secrets. Deleting one resets it for a person
who lost the phone or key."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.http import HttpRequest

from conversations.access.sessions import end_others
from conversations.admin.grantable_rights import may_manage
from llm.admin.bases import ReadOnlyAdmin

admin.site.unregister(Authenticator)  # of django-allauth: its form has the secret


class SignInMethodAdmin(ReadOnlyAdmin):
    """Rows by which people sign in. Staff delete those of accounts without more rights
    than they have; their own on the page Account, which asks for the password."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if not admin.ModelAdmin.has_delete_permission(self, request, obj):
            return False
        if obj is None:
            return True
        is_own = obj.user_id == request.user.pk
        return not is_own and may_manage(request.user, obj.user)


@admin.register(Authenticator)
class SecondFactorAdmin(SignInMethodAdmin):
    list_display = ["user", "type", "created_at", "last_used_at"]
    list_filter = ["type"]
    list_select_related = ["user"]
    search_fields = ["=user__username"]
    fields = ["user", "type", "created_at", "last_used_at"]

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        _delete_unused_codes(obj.user_id)
        end_others(obj.user, None)


def _delete_unused_codes(user_id: int) -> None:
    """Recovery codes without another factor, as where people delete it themselves:
    they may be lost with the phone."""
    rows = Authenticator.objects.filter(user=user_id)
    if not rows.exclude(type=Authenticator.Type.RECOVERY_CODES).exists():
        rows.delete()
