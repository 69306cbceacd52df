"""Choice of permissions by names in the reader's language; Django stores English."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import Permission
from django.utils.translation import gettext, gettext_noop

#: Each starts the names and, in lower case, the code names that Django makes.
_ACTIONS = {
    "add": gettext_noop("Can add %(name)s"),
    "change": gettext_noop("Can change %(name)s"),
    "delete": gettext_noop("Can delete %(name)s"),
    "view": gettext_noop("Can view %(name)s"),
}
#: As the models name them.
OWN = (
    gettext_noop("Can export the audit log"),
    gettext_noop("Can send test prompts to models"),
    gettext_noop("Can see everybody's usage and its cost"),
    gettext_noop("Can try a tool as any user"),
    gettext_noop("Can read other people's turns"),
    gettext_noop("Can correct or redact items"),
    gettext_noop("Can erase users and all their data"),
    gettext_noop("Can publish the terms"),
    gettext_noop("Can try a context source as any user"),
    gettext_noop("Can publish a preset without its evaluation"),
    gettext_noop("Can export ratings"),
    gettext_noop("Can run tools in a replay"),
)


class PermissionsField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.content_type} | {name_permission(obj)}"


def name_permission(row: Permission) -> str:
    action, _, model_name = row.codename.partition("_")
    model = row.content_type.model_class()
    text = _ACTIONS.get(action)
    if text is None or model is None or model._meta.model_name != model_name:
        return gettext(row.name)
    return gettext(text) % {"name": model._meta.verbose_name}
