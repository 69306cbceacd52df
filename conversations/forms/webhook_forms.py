"""Forms of webhook endpoints: users' own, and those of staff."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from conversations.models.webhooks.endpoint import (
    COUNTED,
    MAX_ENDPOINTS,
    EventType,
    WebhookEndpoint,
    validate_address,
)


class EventsField(forms.MultipleChoiceField):
    widget = forms.CheckboxSelectMultiple

    def __init__(self, **kwargs: Any) -> None:
        # `models.JSONField.formfield` passes `encoder` and `decoder`.
        supported = {n: v for n, v in kwargs.items() if n not in ("encoder", "decoder")}
        labels = [(name, f"{name}: {label}") for name, label in EventType.choices]
        super().__init__(**{**supported, "choices": labels, "required": True})


class UsernamesField(forms.ModelMultipleChoiceField):
    """Users by their names, a line each: for staff who may not list the users."""

    widget = forms.Textarea(attrs={"rows": 3, "dir": "auto"})
    default_error_messages = {"unknown": _("There is no user “%(name)s”.")}

    def __init__(self, **kwargs: Any) -> None:
        users = get_user_model()._default_manager.all()
        hint = _("Usernames, one a line.")
        super().__init__(users, **{"help_text": hint, "required": False, **kwargs})

    def clean(self, value: Any) -> Any:
        lines = value.splitlines() if isinstance(value, str) else ()
        names = {line.strip() for line in lines} - {""}
        assert self.queryset is not None, "`__init__` sets it"
        field = get_user_model().USERNAME_FIELD
        found = self.queryset.filter(**{f"{field}__in": names})
        if unknown := names - set(found.values_list(field, flat=True)):
            raise ValidationError(
                self.error_messages["unknown"], params={"name": min(unknown)[:150]}
            )
        return found

    def prepare_value(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        rows = get_user_model()._default_manager.filter(
            pk__in=[getattr(each, "pk", each) for each in value]
        )
        return "\n".join(sorted(row.get_username() for row in rows))

    def has_changed(self, initial: Any, data: Any) -> bool:
        before = str(self.prepare_value(initial) or "").split("\n")
        after = [line.strip() for line in str(data or "").splitlines()]
        return {*before} - {""} != {*after} - {""}


class WebhookForm(forms.ModelForm):
    """A new endpoint of a user. Its address does not change later: staff may have
    allowed its network."""

    class Meta:
        model = WebhookEndpoint
        fields = ["name", "url", "events"]
        field_classes = {"events": EventsField}
        widgets = {
            "name": forms.TextInput(attrs={"autocomplete": "off", "dir": "auto"}),
            "url": forms.URLInput(
                attrs={"autocomplete": "off", "placeholder": "https://"}
            ),
        }

    def __init__(self, data: Any = None, *, owner: Any) -> None:
        super().__init__(data)
        self.instance.owner = self.instance.created_by = owner
        self.fields["events"].initial = EventType.values

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        validate_address(url, "")
        return url

    def clean(self) -> dict[str, Any]:
        if self.instance.owner.webhook_endpoints.count() >= MAX_ENDPOINTS:
            raise ValidationError(
                _("You have %(count)s endpoints already; delete one first."),
                params={"count": MAX_ENDPOINTS},
            )
        return super().clean() or self.cleaned_data

    def issue(self) -> tuple[WebhookEndpoint, str]:
        """Save the row; return it and its secret, which is shown once."""
        row = self.save(commit=False)
        return row, row.renew_secret()


class _ChangeForm(forms.ModelForm):
    """Writes what the form changes alone: meanwhile the row may have got a new secret,
    or been switched off by itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # An endpoint that was switched off by itself after the page was opened is not
        # switched on by saving the page. REST sends no such field.
        name = self.add_initial_prefix("is_enabled")
        if (field := self.fields.get("is_enabled")) is not None:  # else it is only read
            field.show_hidden_initial = not self.is_bound or name in self.data

    def save(self, commit: bool = True) -> Any:
        row = self.instance
        if row.pk is None:
            return super().save(commit)
        if self._is_switched_on:  # the failures that were counted before are forgotten
            row.is_enabled = False
            row.switch(on=True)
        super().save(commit=False)
        if commit:
            row.save(update_fields=self.changed_columns())
            self.save_m2m()
        return row

    def changed_columns(self) -> list[str]:
        """Of an endpoint that exists."""
        columns = {field.name for field in self.instance._meta.concrete_fields}
        changed = [name for name in self.changed_data if name in columns]
        return [*changed, *(COUNTED if self._is_switched_on else ())]

    @property
    def _is_switched_on(self) -> bool:
        is_on = self.cleaned_data.get("is_enabled")
        return bool(is_on) and "is_enabled" in self.changed_data


class WebhookChangeForm(_ChangeForm):
    """What owners change of an endpoint."""

    class Meta:
        model = WebhookEndpoint
        fields = ["name", "events", "is_enabled"]
        field_classes = {"events": EventsField}
        widgets = WebhookForm.Meta.widgets


class StaffWebhookForm(_ChangeForm):
    class Meta:
        model = WebhookEndpoint
        fields = ["name", "url", "networks", "events", "is_enabled", "users", "groups"]
        field_classes = {"events": EventsField}

    def clean(self) -> dict[str, Any]:
        found = super().clean() or self.cleaned_data
        url, networks = found.get("url"), found.get("networks")
        if url is not None and networks is not None:
            try:
                validate_address(url, networks)
            except ValidationError as exc:
                self.add_error("url", exc)
        return found
