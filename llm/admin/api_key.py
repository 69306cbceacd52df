"""Admin of API keys, which are write-only, with a test of the key."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from llm.admin.bases import SecretFormAdmin, describe_sending, note_author
from llm.admin.key_actions import KeyActionsMixin
from llm.admin.key_import import KeyImportMixin
from llm.admin.key_rotation import RotationMixin
from llm.admin.used_by import UsedByAdmin
from llm.error_texts.for_staff import describe_reason
from llm.forms.fields import ApiKeyForm
from llm.keys.references import show_reference
from llm.models import ApiKey, ModelCall

NEWEST_CALLS = 1_000  # rows that are read


@admin.register(ApiKey)
class ApiKeyAdmin(
    KeyActionsMixin, UsedByAdmin, RotationMixin, KeyImportMixin, SecretFormAdmin
):
    form = ApiKeyForm
    actions = ["test", "enable", "disable", "drain", "set_weight"]
    list_display = [
        "label",
        "provider",
        "hint_shown",
        "state_shown",
        "weight",
        "group",
        "is_sent",
        "added_by",
        "last_used_at",
        "last_error_shown",
    ]
    list_filter = ["state", "provider"]
    list_select_related = ["provider", "group", "added_by"]
    search_fields = ["label", "hint", "fingerprint", "provider__name"]
    readonly_fields = [
        "hint_shown",
        "fingerprint",
        "reference_shown",
        "added_by",
        "recent_errors",
        "is_sent",
        "reason_shown",
        "model_rests_shown",
        "last_used_at",
        "last_error_shown",
        "created_at",
    ]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "provider",
                    "label",
                    "secret",
                    "hint_shown",
                    "fingerprint",
                    "reference_shown",
                    "is_sent",
                ]
            },
        ),
        (
            _("Use"),
            {
                "fields": [
                    "state",
                    "rest_until",
                    "reason_shown",
                    "model_rests_shown",
                    "expires_at",
                    "drains_at",
                    "weight",
                    "group",
                ]
            },
        ),
        (
            _("Activity"),
            {
                "fields": [
                    "last_used_at",
                    "last_error_shown",
                    "recent_errors",
                    "added_by",
                    "created_at",
                ]
            },
        ),
    ]

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: Any, change: bool
    ) -> None:
        note_author(request, obj, form)
        super().save_model(request, obj, form, change)

    @admin.display(description=_("hint"), ordering="hint")
    def hint_shown(self, obj: ApiKey) -> str:
        return obj.shown_hint

    @admin.display(description=_("read from"))
    def reference_shown(self, obj: ApiKey) -> str:
        return show_reference(obj.reference)

    @admin.display(description=_("errors of its last calls"))
    def recent_errors(self, obj: ApiKey) -> str:
        # Without a condition on the key, so that no index over all its calls is sorted.
        calls = ModelCall.objects.order_by("-id").values_list("key_id", "status")
        statuses = [status for key, status in calls[:NEWEST_CALLS] if key == obj.pk]
        failed = statuses.count(ModelCall.Status.FAILED)
        text = _("%(failed)d of %(all)d, among the last %(newest)d calls of all keys")
        counts = {"failed": failed, "all": len(statuses), "newest": NEWEST_CALLS}
        return text % counts

    @admin.display(description=_("state"), ordering="state")
    def state_shown(self, obj: ApiKey) -> str:
        now = timezone.now()
        if obj.state != obj.State.DISABLED and obj.has_ended:
            is_expired = obj.expires_at is not None and obj.expires_at <= now
            return str(_("expired") if is_expired else _("draining"))
        shown = str(obj.State(obj.state).label)
        if obj.state == obj.State.RESTING and obj.rest_until:
            if obj.rest_until <= now:
                shown = str(obj.State.ACTIVE.label)
            else:
                rest_end = timezone.localtime(obj.rest_until)
                is_today = rest_end.date() == timezone.localdate(now)
                time_format = "TIME_FORMAT" if is_today else "SHORT_DATETIME_FORMAT"
                until = date_format(rest_end, time_format)
                shown = _("resting until %(time)s") % {"time": until}
        elif obj.is_disabled_automatically:
            shown = _("disabled: %(reason)s") % {
                "reason": describe_reason(obj.state_reason)
            }
        elif obj.state != obj.State.DISABLED and obj.ends_at:
            end = date_format(timezone.localtime(obj.ends_at), "SHORT_DATETIME_FORMAT")
            shown += ", " + _("until %(when)s") % {"when": end}
        if obj.state != obj.State.DISABLED and (rests := obj.model_rests_after(now)):
            names = ", ".join(sorted(rests))
            shown = _("%(state)s, resting for %(models)s") % {
                "state": shown,
                "models": names,
            }
        return shown

    @admin.display(description=_("reason"))
    def reason_shown(self, obj: ApiKey) -> str:
        return describe_reason(obj.state_reason)

    @admin.display(description=_("last error"))
    def last_error_shown(self, obj: ApiKey) -> str:
        return describe_reason(obj.last_error)

    @admin.display(description=_("resting for models"))
    def model_rests_shown(self, obj: ApiKey) -> str:
        rests = obj.model_rests_after(timezone.now())
        return "\n".join(f"{name}: {rest['reason']}" for name, rest in rests.items())

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
                    "reason": describe_reason(key.state_reason),
                }
                self.message_user(request, text % params, messages.WARNING)
        return super().changelist_view(request, *args, **kwargs)
