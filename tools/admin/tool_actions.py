"""Actions on several tools: enable, disable, approval policy, groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.admin import (
    GroupRightsMixin,
    ask_about_rows,
    filled_form,
    report_rows,
)
from tools.models import Tool, ToolVersion


class ApprovalSettingForm(forms.Form):
    approval = forms.ChoiceField(
        label=gettext_lazy("Approval"),
        required=False,
        choices=[
            ("", gettext_lazy("as the tool itself says")),
            *Tool.Approve.choices,
        ],
        help_text=gettext_lazy(
            "“If the arguments match a rule” counts for tools that have a rule."
        ),
    )


class ToolActionsMixin(GroupRightsMixin):
    """Each change makes a version of the tool."""

    @admin.action(
        description=gettext_lazy("Enable the selected tools"), permissions=["change"]
    )
    def enable(self, request: HttpRequest, rows: QuerySet[Tool]) -> None:
        done, left_out = self._switch(request, rows, enabled=True)
        text = ngettext("%d tool enabled", "%d tools enabled", done) % done
        report_rows(self, request, text, left_out, any_done=bool(done))

    @admin.action(
        description=gettext_lazy("Disable the selected tools"), permissions=["change"]
    )
    def disable(self, request: HttpRequest, rows: QuerySet[Tool]) -> None:
        done, left_out = self._switch(request, rows, enabled=False)
        text = ngettext("%d tool disabled", "%d tools disabled", done) % done
        report_rows(self, request, text, left_out, any_done=bool(done))

    def _switch(
        self, request: HttpRequest, rows: QuerySet[Tool], *, enabled: bool
    ) -> tuple[int, Counter[str]]:
        same = _("enabled already") if enabled else _("disabled already")
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if row.enabled == enabled:
                left_out[same] += 1
                continue
            before, row.enabled = ToolVersion.take_snapshot(row), enabled
            row.save(update_fields=["enabled"])
            self._record(request, row, "enabled", before)
            count += 1
        return count, left_out

    def _record(
        self, request: HttpRequest, row: Tool, field: str, before: dict[str, Any]
    ) -> None:
        ToolVersion.objects.record(row, request.user, before=before)
        self.log_change(request, row, [{"changed": {"fields": [field]}}])

    def set_groups(self, request: HttpRequest, row: Any, groups: set[Group]) -> None:
        before = ToolVersion.take_snapshot(row)
        row.groups.set(groups)
        self._record(request, row, "groups", before)

    @admin.action(
        description=gettext_lazy("Set the approval policy…"), permissions=["change"]
    )
    def set_approval(
        self, request: HttpRequest, rows: QuerySet[Tool]
    ) -> HttpResponse | None:
        form = filled_form(request, ApprovalSettingForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Set the approval policy"),
                effect=_(
                    "It says when a person must approve a call. “Never” lets models"
                    " call a tool that changes something without asking anybody."
                ),
                form=form,
            )
        self._set_approval(request, rows, form.cleaned_data["approval"])
        return None

    def _set_approval(
        self, request: HttpRequest, rows: QuerySet[Tool], policy: str
    ) -> None:
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if why := _why_unfit(row, policy):
                left_out[why] += 1
                continue
            before, row.approval = ToolVersion.take_snapshot(row), policy
            row.save(update_fields=["approval"])
            self._record(request, row, "approval", before)
            count += 1
        text = ngettext(
            "Approval policy of %(count)d tool set",
            "Approval policy of %(count)d tools set",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))


def _why_unfit(row: Tool, policy: str) -> str:
    """Why a tool cannot get this policy; "" if it can."""
    if row.kind == Tool.Kind.HOSTED:
        return _("run by their provider, which asks nobody")
    if row.approval == policy and not row.runs_unasked:
        return _("had this policy already")
    if policy == Tool.Approve.RULE:
        changed = Tool(approval=policy, approval_rule=row.approval_rule)
        try:
            changed.clean()
        except ValidationError:
            return _("without a rule")
    return ""
