"""Forms for access tokens, and their spending and limits as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.access.budget import balance_of
from conversations.audit.watch import merged
from conversations.models import Conversation
from conversations.models.access_token import (
    AccessToken,
    Scope,
    usual_scopes,
    validate_networks,
)
from conversations.models.folder import Folder
from conversations.models.ledger import dollars
from llm import router
from llm.models import LanguageModel
from tools.models import Tool

_SEPARATORS = re.compile(r"[\s,;]+")
_LIMITS = [
    "requests_per_minute",
    "tokens_per_minute",
    "budget",
    "budget_period",
]


_CONVERSATIONS = ["allowed_folders", "allowed_conversations"]
_GATEWAY = ["stores_responses", "allowed_origins"]
_GATEWAY_LABELS = {
    "stores_responses": _("Store responses"),
    "allowed_origins": _("Web pages"),
}


def list_scopes(user: Any) -> list[tuple[str, Any]]:
    """The choices of scopes that this user may give to a token."""
    refused = set() if user.is_staff else {Scope.ADMIN_READ.value}
    if not user.is_superuser:
        refused.add(Scope.SCIM.value)
    return [each for each in Scope.choices if each[0] not in refused]


class ScopesField(forms.MultipleChoiceField):
    widget = forms.CheckboxSelectMultiple

    def __init__(self, **kwargs: Any) -> None:
        # `models.JSONField.formfield` passes `encoder` and `decoder`.
        supported = {n: v for n, v in kwargs.items() if n not in ("encoder", "decoder")}
        super().__init__(**{**supported, "choices": Scope.choices})


class NetworksField(forms.CharField):
    """Addresses and networks, one per line."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})

    def __init__(self, **kwargs: Any) -> None:
        supported = {n: v for n, v in kwargs.items() if n not in ("encoder", "decoder")}
        super().__init__(**supported)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        if isinstance(value, list):
            return value
        return list(filter(None, _SEPARATORS.split(value or "")))

    def run_validators(self, value: Any) -> None:
        validate_networks(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool((initial or []) != self.to_python(data))


class ToolNamesField(forms.MultipleChoiceField):
    """Names of tools, which the row has as one text."""

    widget = forms.CheckboxSelectMultiple

    def prepare_value(self, value: Any) -> Any:
        return value.split() if isinstance(value, str) else value

    def clean(self, value: Any) -> Any:
        return " ".join(sorted(super().clean(value)))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class OwnIdsField(forms.MultipleChoiceField):
    """Ids of the user's own rows, which the token has as one text. The newest ones are
    shown to choose from; `AccessToken.clean` checks whose they are."""

    def valid_value(self, value: Any) -> bool:
        return True

    def clean(self, value: Any) -> Any:
        return " ".join(sorted(super().clean(value)))


LISTED_CONVERSATIONS = 200  # the latest of the user, to choose from
_ORIGINS = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})


class LimitsForm(forms.ModelForm):
    """The limits of a token, for the token page and the admin."""

    scopes = ScopesField(
        initial=usual_scopes,
        label=_("Scopes"),
        help_text=_("The APIs that the token may use."),
    )
    networks = NetworksField(
        required=False,
        label=_("Addresses"),
        help_text=_(
            "Client addresses that may use the token, one per line; empty means any"
            " address."
        ),
    )
    allowed_tools = ToolNamesField(
        required=False,
        label=_("Tools"),
        help_text=_(
            "Tools of this server that the token may use; if none is chosen, all tools"
            " of its user."
        ),
    )

    class Meta:
        model = AccessToken
        fields = ["scopes", "allowed_tools", *_CONVERSATIONS, "networks", *_LIMITS]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tools: Any = self.fields.get("allowed_tools")
        if tools is not None:  # it is missing for staff who only look
            # Names of deleted tools are choices too. Otherwise a list that has no
            # others would be saved as an empty one, which allows all tools.
            names = {*Tool.objects.values_list("name", flat=True)}
            tools.choices = [(n, n) for n in sorted(names | self.instance.tool_names)]


class TokenForm(LimitsForm):
    """The form with which users create their own tokens."""

    expires_on = forms.DateField(
        required=False,
        label=_("Valid until"),
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text=_(
            "Last day on which the token is valid; empty means until you revoke it."
        ),
    )

    allowed_folders = OwnIdsField(
        required=False,
        label=_("Folders"),
        widget=forms.CheckboxSelectMultiple,
        help_text=_(
            "The token may read, continue and delete the conversations of these"
            " folders, and add new ones, but reach no others."
        ),
    )
    allowed_conversations = OwnIdsField(
        required=False,
        label=_("Conversations"),
        widget=forms.SelectMultiple(attrs={"size": 8}),
        help_text=_(
            "The token may read, continue and delete these conversations, but reach no"
            " others. If neither folders nor conversations are chosen, it may reach"
            " all."
        ),
    )

    class Meta(LimitsForm.Meta):
        fields = [
            "label",
            "scopes",
            "allowed_models",
            "allowed_tools",
            *_CONVERSATIONS,
            "networks",
            *_LIMITS,
            *_GATEWAY,
        ]
        labels = {
            "label": _("Name of the token"),
            "allowed_models": _("Models"),
            "requests_per_minute": _("Requests per minute"),
            "tokens_per_minute": _("Tokens per minute"),
            "budget": _("Budget in USD"),
            "budget_period": _("Budget period"),
            **_GATEWAY_LABELS,
        }
        widgets = {
            "allowed_models": forms.CheckboxSelectMultiple,
            "allowed_origins": _ORIGINS,
        }

    def __init__(self, data: Any = None, *, user: Any) -> None:
        super().__init__(data)
        self.instance.user = user
        self.fields["label"].initial = ""
        scopes: Any = self.fields["scopes"]
        scopes.choices = list_scopes(user)
        models: Any = self.fields["allowed_models"]
        models.queryset = router.available(user)
        models.label_from_instance = _name
        tools: Any = self.fields["allowed_tools"]
        rows = Tool.objects.rows_for(user)
        tools.choices = [(row.name, row.label or row.name) for row in rows]
        folders: Any = self.fields["allowed_folders"]
        folders.choices = [(str(row.pk), row.name) for row in Folder.objects.of(user)]
        conversations: Any = self.fields["allowed_conversations"]
        latest = Conversation.objects.of(user).kept().for_people()
        shown = latest.order_by("-updated_at", "-pk")[:LISTED_CONVERSATIONS]
        conversations.choices = [(row.pk, str(row)) for row in shown]

    @property
    def main_fields(self) -> Sequence[forms.BoundField]:
        return [self[name] for name in ("label", "scopes", "expires_on")]

    @property
    def limit_fields(self) -> Sequence[forms.BoundField]:
        """Fields in a collapsed section of the page, as few tokens need them."""
        names = ("allowed_models", "allowed_tools", *_CONVERSATIONS, "networks")
        return [self[name] for name in (*names, *_LIMITS, *_GATEWAY)]

    @property
    def has_limit_errors(self) -> bool:
        return any(field.errors for field in self.limit_fields)

    def clean_expires_on(self) -> Any:
        day = self.cleaned_data["expires_on"]
        if day is not None and day < timezone.localdate():
            raise forms.ValidationError(_("This day is in the past."))
        return day

    def issue(self) -> tuple[AccessToken, str]:
        """Save the row; return it and the token, which is not stored."""
        row = self.instance
        if day := self.cleaned_data["expires_on"]:
            row.expires_at = _end_of(day)
        token = row.generate_token()
        with transaction.atomic(), merged():
            self.save()
        return row, token


class TokenSettingsForm(forms.ModelForm):
    """What owners change of a token; its limits stay as they were created."""

    class Meta:
        model = AccessToken
        fields = ["label", *_GATEWAY]
        labels = {"label": _("Name of the token"), **_GATEWAY_LABELS}
        widgets = {"allowed_origins": _ORIGINS}

    def save(self, commit: bool = True) -> AccessToken:
        """Write what changes alone: meanwhile the token may have been revoked or
        narrowed."""
        row: AccessToken = self.instance
        row.save(update_fields=self.changed_data)
        return row


def _name(model: LanguageModel) -> str:
    return model.public_name


def _end_of(day: Any) -> Any:
    return timezone.make_aware(datetime.combine(day, time.max))


def describe_spending(token: AccessToken) -> str:
    """Spending within the budget, as `$0.42 of $5.00 a month`; "" without a budget."""
    if token.budget is None:
        return ""
    spent, _reserved = balance_of(token)
    period = AccessToken.Period(token.budget_period).label
    return f"{money(dollars(spent))} of {money(token.budget)} {period}"


def money(amount: Any) -> str:
    """Dollars with two decimals; four decimals below one dollar."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def unrevoked_tokens(user: Any) -> QuerySet[AccessToken]:
    tokens = AccessToken.objects.filter(user=user, revoked_at=None)
    return tokens.prefetch_related("allowed_models__provider")
