"""Admin of users: a password that staff set must be changed at the next sign-in."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseRedirect

from conversations.admin.people import PeopleAdmin
from conversations.admin.reauthentication import ask_for_proof
from project.accounts.addresses import delete_former_addresses
from project.accounts.models import RequiredPasswordChange

admin.site.unregister(User)


@admin.register(User)
class AccountsAdmin(PeopleAdmin):
    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> Any:
        super().save_model(request, obj, form, change)
        if "email" in form.changed_data:
            delete_former_addresses(obj)
        if not change:
            _require_change(obj)

    def has_secret(self, object_id: str | None) -> bool:
        return object_id is None  # the password of a new account

    def user_change_password(
        self, request: HttpRequest, id: str, form_url: str = ""
    ) -> HttpResponse:
        if question := ask_for_proof(request, has_secret=True):
            return question
        response: HttpResponse = super().user_change_password(request, id, form_url)
        is_changed = isinstance(response, HttpResponseRedirect)
        if request.method == "POST" and is_changed and id != str(request.user.pk):
            _require_change(User.objects.get(pk=id))
        return response


def _require_change(user: Any) -> None:
    if user.has_usable_password():
        RequiredPasswordChange.objects.get_or_create(user=user)
