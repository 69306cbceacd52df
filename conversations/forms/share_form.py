"""Form of a new read-only link to a conversation."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from conversations.access.sharing import (
    LONGEST,
    SHOWN,
    allowed_audiences,
    create_link,
)
from conversations.models import Conversation, ShareLink
from conversations.models.share_link import Audience


class ShareForm(forms.ModelForm):
    """The fields of `create_link`, with the choices that the user has."""

    days = forms.IntegerField(
        label=_("Expires after"),
        help_text=_("Days; empty for never."),
        required=False,
        min_value=1,
        max_value=LONGEST,
    )
    turn = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    class Meta:
        model = ShareLink
        fields = ["audience", "group", "kind", *SHOWN]
        labels = {
            "audience": _("Who may open it"),
            "group": _("Group"),
            "kind": _("It shows"),
        }
        widgets = {"audience": forms.RadioSelect, "kind": forms.RadioSelect}

    def __init__(
        self, *args: Any, user: Any, conversation: Conversation, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._user, self._conversation = user, conversation
        labels: dict[str, Any] = dict(Audience.choices)
        groups = Group.objects.filter(user=user.pk).order_by("name")
        allowed = [
            name
            for name in allowed_audiences(user)
            if name != Audience.GROUP or groups.exists()
        ]
        audience: Any = self.fields["audience"]
        audience.choices = [(name, labels[name]) for name in allowed]
        group: Any = self.fields["group"]
        group.queryset, group.help_text = groups, ""
        group.empty_label = _("none")
        if Audience.GROUP not in allowed:
            del self.fields["group"]
        self.fields["kind"].choices = ShareLink.Kind.choices  # type: ignore[attr-defined]
        if not self.is_bound and allowed:
            usual = Audience.SIGNED_IN if Audience.SIGNED_IN in allowed else allowed[0]
            self.initial.setdefault("audience", usual)
            self.initial.setdefault("kind", ShareLink.Kind.SNAPSHOT)

    @property
    def shown_fields(self) -> list[forms.BoundField]:
        """The boxes that say what the link shows."""
        return [self[name] for name in SHOWN]

    def create(self) -> ShareLink | None:
        """The stored link; None if the form has errors."""
        if not self.is_valid():
            return None
        try:
            return create_link(self._conversation, self._user, self.cleaned_data)
        except ValidationError as exc:
            self.add_error(None, exc)
        return None

    def _post_clean(self) -> None:
        """`create_link` checks and makes the row."""
