"""What a user has set for themselves: look, language, models, memory, shortcuts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.validators import (
    MaxLengthValidator,
    MaxValueValidator,
    MinValueValidator,
)
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.keyboard_shortcuts import keys_of, validate_shortcuts
from llm.db.statements import CompiledQuery
from llm.models import LanguageModel

MAX_INSTRUCTIONS = 4000  # characters


def language_choices() -> list[tuple[str, Any]]:
    return [("", _("As the browser")), *settings.LANGUAGES]


class UserSettingsQuerySet(models.QuerySet["UserSettings"]):
    def for_user(self, user_id: int) -> UserSettings:
        """The user's row, or an unsaved one with the usual values."""
        return _BY_USER.first(user_id) or UserSettings(user_id=user_id)

    def with_wishes(self) -> UserSettingsQuerySet:
        """Those that say something to models."""
        return self.exclude(custom_instructions="", memory_enabled=True)

    def change(self, user_id: int, **values: Any) -> None:
        """Store these settings of the user; the others stay as they are by now."""
        self.update_or_create(user_id=user_id, defaults=values)

    def begin_dictation(self, user_id: int, until: datetime) -> bool:
        """Whether no other dictation of the user runs now, in any process."""
        self.get_or_create(user_id=user_id)
        is_free = Q(dictating_until=None) | Q(dictating_until__lt=timezone.now())
        rows = self.filter(is_free, user_id=user_id)
        return rows.update(dictating_until=until) == 1

    def end_dictation(self, user_id: int, until: datetime) -> None:
        """The one that began with `until`; a later one stays."""
        rows = self.filter(user_id=user_id, dictating_until=until)
        rows.update(dictating_until=None)


class UserSettings(models.Model):
    class Theme(models.TextChoices):
        SYSTEM = "system", _("As the device")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    class FontSize(models.TextChoices):
        SMALL = "small", _("Small")
        NORMAL = "normal", _("Normal")
        LARGE = "large", _("Large")
        LARGEST = "largest", _("Very large")

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        primary_key=True,
        related_name="preferences",
    )
    theme = models.CharField(
        _("colours"), max_length=10, choices=Theme.choices, default=Theme.SYSTEM
    )
    language = models.CharField(
        _("language"), max_length=10, choices=language_choices, blank=True, default=""
    )
    font_size = models.CharField(
        _("size of text"),
        max_length=10,
        choices=FontSize.choices,
        default=FontSize.NORMAL,
    )
    default_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("model of new chats"),
        help_text=_("Empty means the one that was used last."),
    )
    favourite_models = models.JSONField(
        _("favourite models"),
        default=list,
        db_default=[],
        blank=True,
        help_text=_("Names of models that stand first in the list of models."),
    )
    notify_title = models.BooleanField(
        _("in the title of the tab"),
        default=True,
        help_text=_("Marks the tab when an answer is ready and you look elsewhere."),
    )
    notify_browser = models.BooleanField(
        _("by a notification of the browser"),
        default=False,
        help_text=_("The browser asks for your permission once."),
    )
    email_after_minutes = models.PositiveSmallIntegerField(
        _("by an e-mail, after minutes"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1440)],
        help_text=_(
            "When an answer took longer than this and you were not looking. Empty means"
            " never."
        ),
    )
    shortcuts_enabled = models.BooleanField(_("use keyboard shortcuts"), default=True)
    shortcuts = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_shortcuts],
        help_text=_("Keys by action, where they are not the usual ones."),
    )
    memory_enabled = models.BooleanField(
        _("let models remember"),
        default=True,
        help_text=_(
            "If switched off, models neither store memories about you nor read them."
            " Existing memories stay until you delete them."
        ),
    )
    custom_instructions = models.TextField(
        _("custom instructions"),
        blank=True,
        validators=[MaxLengthValidator(MAX_INSTRUCTIONS)],
        max_length=MAX_INSTRUCTIONS,
        help_text=_(
            "What models should know about you and how they should answer. It is sent"
            " with each of your messages in chats."
        ),
    )
    dictating_until = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("Until then no other dictation of the person may begin."),
    )
    account_deleted_at = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("When the person deleted their account; retention erases it."),
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = UserSettingsQuerySet.as_manager()

    class Meta:
        verbose_name = _("settings of a user")
        verbose_name_plural = _("settings of users")

    def __str__(self) -> str:
        return f"settings of user {self.user_id}"

    @property
    def keys(self) -> dict[str, str]:
        """The key of each shortcut; none if shortcuts are switched off."""
        return keys_of(self.shortcuts) if self.shortcuts_enabled else {}

    @property
    def page_classes(self) -> str:
        """Classes of <html> that give a page its look."""
        return f"theme-{self.theme} size-{self.font_size}"


_BY_USER = CompiledQuery[UserSettings](
    lambda user: UserSettings.objects.filter(user_id=user), -1
)
