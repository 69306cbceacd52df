"""Which usage a page, a CSV file or the API reports: days, grouping, measure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from llm.pricing.usage_report import GROUPINGS, MAX_DAYS, UsageQuery

DAYS = 30  # unless a period is named
EARLIEST = date(2000, 1, 1)
CONVERSATION = "conversation"  # grouping of the dearest conversations
KEY = "key"  # grouping by providers' keys, of everybody's calls only
TOOL = "tool"  # grouping of tool calls, which cost no tokens

LABELS: Mapping[str, Any] = {
    "model": _("model"),
    "provider": _("provider"),
    "user": _("user"),
    "group": _("group of users"),
    "token": _("access token"),
    KEY: _("API key"),
    "tag": _("tag"),
    "purpose": _("purpose"),
    "status": _("status"),
    "day": _("day"),
    CONVERSATION: _("conversation"),
    TOOL: _("tool"),
}
MEASURES: Mapping[str, Any] = {
    "cost": _("cost"),
    "tokens": _("tokens"),
    "calls": _("calls"),
    "failed": _("failed calls"),
}
#: What a user's own usage is grouped by.
OWN_GROUPINGS = (
    "model",
    "provider",
    "token",
    "tag",
    "purpose",
    "status",
    "day",
    CONVERSATION,
    TOOL,
)
STAFF_GROUPINGS = (*GROUPINGS, CONVERSATION, TOOL)


class _DateInput(forms.DateInput):
    input_type = "date"

    def format_value(self, value: Any) -> str | None:
        """As browsers want it, whatever the language."""
        return value.isoformat() if isinstance(value, date) else value


class UsageForm(forms.Form):
    """Everything may be left out. `query` is set once it is valid."""

    first = forms.DateField(
        label=_("From"), required=False, widget=_DateInput, input_formats=["%Y-%m-%d"]
    )
    last = forms.DateField(
        label=_("to"), required=False, widget=_DateInput, input_formats=["%Y-%m-%d"]
    )
    by = forms.ChoiceField(label=_("by"), required=False)
    measure = forms.ChoiceField(
        label=_("chart of"), required=False, choices=list(MEASURES.items())
    )
    query: UsageQuery

    def __init__(
        self, sent: Mapping[str, Any], *, own: int | None = None, costs: bool = True
    ) -> None:
        """`own`: the user whose usage it is. `costs`: whether they may be shown."""
        data = {**_defaults(), **{name: sent[name] for name in sent if sent[name]}}
        if not costs and data["measure"] == "cost":
            data["measure"] = "tokens"
        super().__init__(data)
        self.own = own
        groupings = OWN_GROUPINGS if own is not None else STAFF_GROUPINGS
        by: Any = self.fields["by"]
        by.choices = [(name, LABELS[name]) for name in groupings]
        if not costs:
            measure: Any = self.fields["measure"]
            measure.choices = [pair for pair in MEASURES.items() if pair[0] != "cost"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        if cleaned["by"] == KEY and self.own is not None:
            raise ValidationError(_("By API key there is only everybody's usage."))
        first, last = cleaned["first"], cleaned["last"]
        if not EARLIEST <= first <= last:
            raise ValidationError(_("The period ends before it begins."))
        if last > timezone.localdate() + timedelta(days=1):
            raise ValidationError(_("The period ends in the future."))
        if (last - first).days >= MAX_DAYS:
            problem = _("The period may have %(days)d days at most.")
            raise ValidationError(problem % {"days": MAX_DAYS})
        self.query = UsageQuery(
            first=first,
            last=last,
            grouping="model" if cleaned["by"] == TOOL else cleaned["by"],
            user_id=self.own,
        )
        return cleaned

    @property
    def by_tool(self) -> bool:
        return bool(self.cleaned_data["by"] == TOOL)

    @property
    def by_conversation(self) -> bool:
        return bool(self.cleaned_data["by"] == CONVERSATION)

    @property
    def heading(self) -> str:
        """Of the column with the groups' names."""
        return str(LABELS[self.cleaned_data["by"]])

    @property
    def query_string(self) -> str:
        """What is asked for, as another address takes it."""
        asked = {name: value for name, value in self.cleaned_data.items() if value}
        return urlencode(asked)

    @property
    def problem(self) -> str:
        """The first problem, with the name of its field."""
        for name, found in self.errors.items():
            text = str(found[0])
            return text if name == "__all__" else f"{name}: {text}"
        return ""


class StaffUsageForm(UsageForm):
    """Everybody's usage, or that of one user."""

    user = forms.IntegerField(
        required=False, min_value=1, max_value=2**63 - 1, widget=forms.HiddenInput
    )

    def clean(self) -> dict[str, Any]:
        self.own = self.cleaned_data.get("user")
        return super().clean()

    @property
    def user_name(self) -> str:
        """Of the one user, if it is about one."""
        if self.own is None:
            return ""
        found = get_user_model()._default_manager.filter(pk=self.own).first()
        return found.get_username() if found else f"#{self.own}"


def _defaults() -> dict[str, Any]:
    today = timezone.localdate()
    return {
        "first": today - timedelta(days=DAYS - 1),
        "last": today,
        "by": "model",
        "measure": "cost",
    }
