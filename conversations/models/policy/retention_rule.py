"""How long conversations of a group's members are kept."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


class RetentionRule(models.Model):
    """A user in several groups with rules has the shortest time."""

    group = models.OneToOneField(
        Group, models.CASCADE, related_name="retention_rule", verbose_name=_("group")
    )
    days = models.PositiveIntegerField(
        _("days"),
        validators=[MinValueValidator(1)],
        help_text=_(
            "Conversations of the group's members in which nothing has happened for"
            " so many days are erased, with their files."
        ),
    )

    class Meta:
        ordering = ["group__name"]
        verbose_name = _("rule of retention")
        verbose_name_plural = _("rules of retention")

    def __str__(self) -> str:
        return f"{self.group}: {self.days}"
