"""Prompts that people save to use them again, with variables to fill in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

MAX_TEXT = 20_000  # characters
MAX_VARIABLES = 20
MAX_COUNT = 500  # of one user
#: `{{ name }}`; the name may have spaces.
_VARIABLE = re.compile(r"\{\{[ \t]*([^{}\n]{1,60}?)[ \t]*\}\}")


def find_variables(text: str) -> list[str]:
    """The names of the variables in `text`, each once, in their order."""
    return list(dict.fromkeys(name for name in _VARIABLE.findall(text) if name.strip()))


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with the variables that have a value replaced by it. Values are not
    searched for variables."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def validate_variables(text: str) -> None:
    if len(find_variables(text)) > MAX_VARIABLES:
        raise ValidationError(
            _("A prompt has at most %(count)s variables."),
            params={"count": MAX_VARIABLES},
        )


class SavedPromptQuerySet(models.QuerySet["SavedPrompt"]):
    def available_to(self, user: Any) -> SavedPromptQuerySet:
        """The user's own prompts and those of the user's groups, by name."""
        rows = self.filter(models.Q(owner=user.pk) | models.Q(group__user=user.pk))
        return rows.select_related("group").order_by("name", "pk")

    def of(self, user: Any) -> SavedPromptQuerySet:
        """The prompts that the user may change."""
        return self.filter(owner_id=user.pk)


class SavedPrompt(models.Model):
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="saved_prompts",
    )
    group = models.ForeignKey(
        Group,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="saved_prompts",
        help_text=_("Everybody in the group may use it."),
    )
    name = models.CharField(
        _("name"),
        max_length=40,
        validators=[
            RegexValidator(
                r"\A[\w-]+\Z", _("Use letters, digits, “-” and “_” only, no spaces.")
            )
        ],
        help_text=_("What you type after “/” in the message box."),
    )
    title = models.CharField(
        _("title"), max_length=100, blank=True, help_text=_("Shown beside the name.")
    )
    text = models.TextField(
        _("text"),
        max_length=MAX_TEXT,
        validators=[MaxLengthValidator(MAX_TEXT), validate_variables],
        help_text=_(
            "Write {{name}} for what changes from time to time; you are asked for it"
            " when you use the prompt."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = SavedPromptQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(owner=None) ^ models.Q(group=None),
                name="conversations_prompt_has_one_owner",
                violation_error_message=_("A prompt belongs to a user or to a group."),
            ),
            models.UniqueConstraint(
                fields=["owner", "name"],
                name="conversations_prompt_of_owner",
                violation_error_message=_("You have a prompt of this name already."),
            ),
            models.UniqueConstraint(
                fields=["group", "name"], name="conversations_prompt_of_group"
            ),
        ]

    def __str__(self) -> str:
        return f"prompt {self.pk}"  # its text must not get into logs

    @property
    def variables(self) -> list[str]:
        return find_variables(self.text)
