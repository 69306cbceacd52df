"""Admin of users, their settings and the saved prompts of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from conversations.access.policy.group_restrictions import list_rows_opened_without
from conversations.admin.actions.people import PeopleActionsMixin
from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.admin.grantable_rights import GrantableRightsMixin
from conversations.admin.policy.erasing import ErasureMixin
from conversations.admin.reauthentication import ReauthenticationMixin
from conversations.forms.preset_forms import NotedForm
from conversations.models.saved_prompt import SavedPrompt
from conversations.models.staff.versions import PromptVersion
from conversations.models.user_settings import UserSettings
from tools.admin.versions import VersionedAdmin

admin.site.unregister([User, Group])  # of Django's own admin


@admin.register(User)
class PeopleAdmin(
    ReauthenticationMixin,
    GrantableRightsMixin,
    PeopleActionsMixin,
    ErasureMixin,
    UserAdmin,
):
    list_per_page = 50  # as in other large tables
    actions = ["activate", "deactivate", "sign_out", "change_membership", "erase"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the password, and the button that sets it, for who may not."""
        found = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return found
        return [
            (title, {**options, "fields": [*_without_password(options["fields"])]})
            for title, options in found
        ]


def _without_password(names: Any) -> Iterator[Any]:
    return (name for name in names if name != "password")


@admin.register(Group)
class RightsGroupAdmin(ReauthenticationMixin, GrantableRightsMixin, GroupAdmin):
    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """As Django's. Also protected is what would be open to everybody without the
        groups."""
        rows, counts, lacking, protected = super().get_deleted_objects(objs, request)
        opened = [_describe_opened(row) for row in list_rows_opened_without(list(objs))]
        return rows, counts, lacking, [*protected, *opened]


def _describe_opened(row: Model) -> str:
    return gettext("%(kind)s “%(name)s”, which everybody could use then") % {
        "kind": row._meta.verbose_name,
        "name": row,
    }


@admin.register(UserSettings)
class UserSettingsAdmin(ConversationContentAdmin):
    owner = "user"
    list_display = ["user", "theme", "language", "memory_enabled", "account_deleted_at"]
    list_filter = [("account_deleted_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user"]
    ordering = ["-pk"]
    search_fields = ["=user__username"]
    search_help_text = _("A user's name.")

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> UserSettings | None:
        """None for a number that no column holds, too; Django finds that out for keys
        that are no relations."""
        rows: QuerySet[UserSettings] = self.get_queryset(request)
        with suppress(ValueError):
            return rows.filter(user__id=object_id).first()
        return None


class GroupPromptForm(NotedForm):
    class Meta:
        model = SavedPrompt
        fields = ["group", "name", "title", "text"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "group" in self.fields:  # which who may only look has not
            self.fields["group"].required = True


@admin.register(SavedPrompt)
class SavedPromptAdmin(VersionedAdmin):
    """Prompts of groups. Those of users are only for them."""

    form = GroupPromptForm
    version_model = PromptVersion
    restore_note = _("The prompt stays with its group.")
    change_form_template = "admin/conversations/savedprompt/change_form.html"
    fields = ["group", "name", "title", "text", "note"]
    list_display = ["name", "title", "group"]
    list_filter = ["group"]
    list_select_related = ["group"]
    search_fields = ["name", "title"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[SavedPrompt]:
        return super().get_queryset(request).exclude(group=None)
