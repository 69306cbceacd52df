"""Permissions for tools that requests declare: model, queryset and check."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext_lazy as _

from llm.errors import BadRequest
from tools.hosted.declared_kinds import KINDS, ONLY_READING

ALL_KINDS = frozenset(kind.name for kind in KINDS)


class ToolNotAllowed(BadRequest):
    """Tools of this kind may not be declared in a request."""

    code, status = "E_TOOL_NOT_ALLOWED", 403
    openai_code = "tool_not_allowed"


def check_declared(
    declared: Iterable[tuple[str, str]], allowed: Collection[str]
) -> None:
    """Raises ToolNotAllowed. `declared` has kinds and their paths in the request."""
    for kind, path in declared:
        if kind not in allowed:
            raise ToolNotAllowed(
                f"You may not declare a tool of the kind {kind!r} in a request. Leave"
                " it out, or ask the staff to allow it for one of your groups (in the"
                " admin: 'Declared tools').",
                param=path,
            )


def kind_choices() -> list[tuple[str, Any]]:
    return [(kind.name, kind.label) for kind in KINDS]


class DeclaredToolQuerySet(models.QuerySet["DeclaredTool"]):
    def sync(self) -> None:
        """Create missing rows. Kinds that only read are allowed for everybody."""
        known = set(self.values_list("kind", flat=True))
        missing = [kind for kind in KINDS if kind.name not in known]
        self.bulk_create(
            [
                self.model(kind=kind.name, allowed_for=_default_allowed_for(kind.name))
                for kind in missing
            ],
            ignore_conflicts=True,
        )

    def kinds_for(self, user: Any) -> frozenset[str]:
        """The kinds that `user` may declare, in one query.

        As with tools, superusers may use whatever any group may use.
        """
        named = DeclaredTool.groups.through.objects.filter(
            declaredtool=OuterRef("pk"), group__user=user.pk
        )
        rows = self.annotate(is_named=Exists(named))
        is_allowed = {
            kind: _is_allowed(allowed_for, is_named or user.is_superuser)
            for kind, allowed_for, is_named in rows.values_list(
                "kind", "allowed_for", "is_named"
            )
        }
        return frozenset(k for k in ALL_KINDS if is_allowed.get(k, k in ONLY_READING))


class DeclaredTool(models.Model):
    """A kind of tool that requests declare; the provider or the client runs it."""

    class AllowedFor(models.TextChoices):
        NOBODY = "nobody", _("nobody")
        GROUPS = "groups", _("the groups below")
        EVERYBODY = "everybody", _("everybody")

    kind = models.CharField(
        max_length=32, unique=True, choices=kind_choices, editable=False
    )
    allowed_for = models.CharField(
        _("allowed for"),
        max_length=10,
        choices=AllowedFor.choices,
        default=AllowedFor.NOBODY,
    )
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        help_text=_(
            "Groups whose members may declare it, if “the groups below” is chosen."
        ),
    )

    objects = DeclaredToolQuerySet.as_manager()

    class Meta:
        ordering = ["kind"]
        verbose_name = _("declared tool")

    def __str__(self) -> str:
        return str(dict(kind_choices()).get(self.kind, self.kind))


def _default_allowed_for(kind: str) -> str:
    choices = DeclaredTool.AllowedFor
    return choices.EVERYBODY if kind in ONLY_READING else choices.NOBODY


def _is_allowed(allowed_for: str, is_named: bool) -> bool:
    choices = DeclaredTool.AllowedFor
    return allowed_for == choices.EVERYBODY or (
        allowed_for == choices.GROUPS and is_named
    )
