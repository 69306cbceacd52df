"""Actions on several user accounts: activate, deactivate, groups, sign out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.access.account_deletion import reopen_account
from conversations.access.sessions import end_others
from conversations.admin.grantable_rights import may_grant, may_manage
from conversations.models.user_settings import UserSettings
from llm.admin import (
    GroupRightsForm,
    ask_about_rows,
    change_each,
    filled_form,
    is_confirmed,
    regroup_each,
    report_rows,
)


class MembershipForm(GroupRightsForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["add"].help_text = ""


class PeopleActionsMixin(admin.ModelAdmin):
    """Only superusers change superusers, and no user can lock out themselves."""

    @admin.action(
        description=gettext_lazy("Activate the selected users"), permissions=["change"]
    )
    def activate(self, request: HttpRequest, rows: QuerySet[User]) -> None:
        count, left_out = self._set_active(request, rows, active=True)
        text = ngettext("%(count)d user activated", "%(count)d users activated", count)
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(
        description=gettext_lazy("Deactivate the selected users…"),
        permissions=["change"],
    )
    def deactivate(
        self, request: HttpRequest, rows: QuerySet[User]
    ) -> HttpResponse | None:
        if not is_confirmed(request):
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Deactivate these users?"),
                effect=_(
                    "They can no longer sign in, their sessions end, and their tokens"
                    " stop to work. What they have written stays."
                ),
            )
        count, left_out = self._set_active(request, rows, active=False)
        text = ngettext(
            "%(count)d user deactivated", "%(count)d users deactivated", count
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: Any
    ) -> None:
        super().save_model(request, obj, form, change)
        if change and (obj.is_active or "is_active" in form.changed_data):
            reopen_account(obj)

    def _set_active(
        self, request: HttpRequest, rows: QuerySet[User], *, active: bool
    ) -> tuple[int, Counter[str]]:
        same = _("active already") if active else _("deactivated already")
        note = "Activated." if active else "Deactivated."
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if row.is_active == active and not (active and _is_half_closed(row)):
                left_out[same] += 1
            elif why := _why_protected(request, row):
                left_out[why] += 1
            else:
                row.is_active = active
                with transaction.atomic():
                    row.save(update_fields=["is_active"])
                    # Also before a deactivation: else retention took an account that
                    # an older version restored by half for one that its owner deleted.
                    reopen_account(row)
                self.log_change(request, row, note)
                count += 1
        return count, left_out

    @admin.action(
        description=gettext_lazy("Sign the selected users out everywhere…"),
        permissions=["change"],
    )
    def sign_out(
        self, request: HttpRequest, rows: QuerySet[User]
    ) -> HttpResponse | None:
        if not is_confirmed(request):
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Sign these users out everywhere?"),
                effect=_("They have to sign in again in every browser."),
            )

        def end_sessions(row: User) -> str:
            if why := _why_protected(request, row):
                return why
            if not end_others(row, None):
                return _("not signed in")
            self.log_change(request, row, "Signed out everywhere.")
            return ""

        count, left_out = change_each(rows, end_sessions)
        text = ngettext(
            "%(count)d user signed out", "%(count)d users signed out", count
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None

    @admin.action(
        description=gettext_lazy("Change the groups of the selected users…"),
        permissions=["change"],
    )
    def change_membership(
        self, request: HttpRequest, rows: QuerySet[User]
    ) -> HttpResponse | None:
        form = filled_form(request, MembershipForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Change the groups of these users"),
                effect=_("Groups give rights, models, tools and presets."),
                form=form,
            )
        self._change_membership(request, rows, form.cleaned_data)
        return None

    def _change_membership(
        self, request: HttpRequest, rows: QuerySet[User], chosen: dict[str, Any]
    ) -> None:
        changed = {*chosen["add"], *chosen["remove"]}

        def set_groups(row: User, after: set[Group]) -> str:
            if why := _why_not_regrouped(request, row, changed):
                return why
            row.groups.set(after)
            self.log_change(request, row, [{"changed": {"fields": ["groups"]}}])
            return ""

        count, left_out = regroup_each(rows, chosen, set_groups)
        text = ngettext(
            "Groups of %(count)d user changed",
            "Groups of %(count)d users changed",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))


def _is_half_closed(row: User) -> bool:
    """Earlier versions made a closed account active and left its chats hidden."""
    return UserSettings.objects.filter(
        user=row.pk, account_deleted_at__isnull=False
    ).exists()


def _why_protected(request: HttpRequest, row: User) -> str:
    if row.pk == request.user.pk:
        return _("your own account")
    if not may_manage(request.user, row):
        return _("accounts with rights that you do not have")
    return ""


def _why_not_regrouped(request: HttpRequest, row: User, groups: set[Group]) -> str:
    """Own groups would be own rights; nor can staff give rights that they lack."""
    if row.pk == request.user.pk and not request.user.is_superuser:
        return _("your own account")
    if not all(may_grant(request.user, group) for group in groups):
        return _("groups with rights that you do not have")
    if not may_manage(request.user, row):
        return _("accounts with rights that you do not have")
    return ""
