from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.admin.bases import SecretFormAdmin, describe_sending
from llm.forms.fields import ApiKeyForm
from llm.models import ApiKey


@admin.register(ApiKey)
class ApiKeyAdmin(SecretFormAdmin):
    form = ApiKeyForm
    actions = ["enable"]
    list_display = [
        "label",
        "provider",
        "hint",
        "state_shown",
        "weight",
        "is_sent",
        "last_used_at",
        "last_error",
    ]
    list_filter = ["state", "provider"]
    list_select_related = ["provider"]
    search_fields = ["label", "hint", "provider__name"]
    readonly_fields = [
        "hint",
        "is_sent",
        "state_reason",
        "model_rests_shown",
        "last_used_at",
        "last_error",
        "created_at",
    ]
    fieldsets = [
        (None, {"fields": ["provider", "label", "secret", "hint", "is_sent"]}),
        (
            _("Use"),
            {
                "fields": [
                    "state",
                    "rest_until",
                    "state_reason",
                    "model_rests_shown",
                    "weight",
                ]
            },
        ),
        (_("Seen"), {"fields": ["last_used_at", "last_error", "created_at"]}),
    ]

    @admin.display(description=_("state"), ordering="state")
    def state_shown(self, obj: ApiKey) -> str:
        now = timezone.now()
        shown = str(obj.State(obj.state).label)
        if obj.state == obj.State.RESTING and obj.rest_until:
            if obj.rest_until <= now:
                shown = str(obj.State.ACTIVE.label)
            else:
                until = date_format(timezone.localtime(obj.rest_until), "TIME_FORMAT")
                shown = _("resting until %(time)s") % {"time": until}
        elif obj.is_disabled_automatically:
            shown = _("disabled: %(reason)s") % {"reason": obj.state_reason}
        if obj.state != obj.State.DISABLED and (rests := obj.model_rests_after(now)):
            names = ", ".join(sorted(rests))
            shown = _("%(state)s, not for %(models)s") % {
                "state": shown,
                "models": names,
            }
        return shown

    @admin.display(description=_("models it rests for"))
    def model_rests_shown(self, obj: ApiKey) -> str:
        rests = obj.model_rests_after(timezone.now())
        return "\n".join(f"{name}: {rest['reason']}" for name, rest in rests.items())

    @admin.action(description=_("Enable the selected keys"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            key.enable()
            self.log_change(request, key, "Enabled.")
        count = len(queryset)
        text = ngettext("%(count)d key enabled.", "%(count)d keys enabled.", count)
        self.message_user(request, text % {"count": count}, messages.SUCCESS)

    @admin.display(description=_("sent"))
    def is_sent(self, obj: ApiKey) -> str:
        return describe_sending(obj)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method == "GET":
            for key in ApiKey.objects.auto_disabled():
                text = _("The key %(key)s of %(provider)s was disabled: %(reason)s")
                params = {
                    "key": key,
                    "provider": key.provider.name,
                    "reason": key.state_reason,
                }
                self.message_user(request, text % params, messages.WARNING)
        return super().changelist_view(request, *args, **kwargs)
