from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from tools import registry
from tools.registry import python_tools

LONGEST_TIMEOUT = 24 * 60 * 60  # seconds


class ToolQuerySet(models.QuerySet["Tool"]):
    def available(self, user: Any) -> dict[str, registry.Tool]:
        """The tools that a turn of `user` may call, by name, in one query."""
        rows = self.filter(enabled=True).permitted(user)
        used = {row.name: row.used() for row in rows.order_by("name")}
        return {name: tool for name, tool in used.items() if tool}

    def permitted(self, user: Any) -> ToolQuerySet:
        """Those that `user` may know of. None is the program itself."""
        if user is None or user.is_superuser:
            return self
        named = Tool.groups.through.objects.filter(tool=OuterRef("pk"))
        if user.pk is None:  # nobody signed in
            return self.filter(~Exists(named))
        return self.filter(~Exists(named) | Exists(named.filter(group__user=user.pk)))

    def sync(self) -> None:
        """A row for each tool that code offers; those without code are marked.

        What staff have set stays. Raises InvalidTool.
        """
        code = python_tools()
        rows = self.filter(kind=Tool.Kind.PYTHON)
        known = set(rows.values_list("name", flat=True))
        new = [Tool(name=name) for name in code if name not in known]
        Tool.objects.using(self.db).bulk_create(new, ignore_conflicts=True)
        rows.filter(name__in=code, is_missing=True).update(is_missing=False)
        rows.exclude(name__in=code).filter(is_missing=False).update(is_missing=True)


class Tool(models.Model):
    class Kind(models.TextChoices):
        PYTHON = "python", _("Python")

    class Replay(models.TextChoices):
        SAFE = "safe", _("safe to run again")
        IDEMPOTENT = "idempotent", _("safe to run again with the same key")
        ONCE = "once", _("never run twice")

    name = models.SlugField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(registry.NAME)],
        help_text=_("What models call it by."),
    )
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PYTHON)
    label = models.CharField(
        max_length=100,
        blank=True,
        help_text=_("What people see; empty for the code's own label."),
    )
    description = models.TextField(
        blank=True,
        help_text=_("What the model is told; empty for the code's words."),
    )
    enabled = models.BooleanField(default=True)
    is_missing = models.BooleanField(
        _("code is gone"),
        default=False,
        editable=False,
        help_text=_("Its code was not found at the last start or migration."),
    )
    timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_("Seconds; empty for the code's own limit."),
    )
    replay = models.CharField(
        max_length=10,
        choices=Replay.choices,
        blank=True,
        help_text=_("What a crash may repeat; empty for the code's own word."),
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Who may use it; nobody named means everybody.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ToolQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(timeout=None) | Q(timeout__gt=0),
                name="tools_tool_timeout_above_0",
            )
        ]

    def __str__(self) -> str:
        return self.label or self.name

    def offered(self) -> registry.Tool | None:
        """The tool as its code declares it; None where the code is gone."""
        return python_tools().get(self.name)

    def used(self) -> registry.Tool | None:
        """The tool as a turn uses it: the code's word, where the row has none."""
        if (offered := self.offered()) is None:
            return None
        return replace(
            offered,
            label=self.label or offered.label,
            description=self.description or offered.description,
            timeout=offered.timeout if self.timeout is None else self.timeout,
            replay=cast(registry.Replay, self.replay) or offered.replay,
        )
