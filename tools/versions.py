"""What staff have made of a tool, time after time, and what differs between two times.

A version is what the row says after a change, without secrets: of secret headers only
their names are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from tools.differences import Line, differing

if TYPE_CHECKING:
    from tools.models import Tool

#: Columns that are no wish of anybody's, or that stand in a snapshot by name.
_NOT_KEPT = {
    "id",
    "tool",
    "is_missing",
    "created_at",
    "approvers",
    "secret_headers",
    "secret_id",
    "runs_unasked",
}
#: What a restored version leaves as it is: whether models may call the tool now.
_NOT_RESTORED = {"kind", "enabled"}

MAX_NOTE = 200  # characters

Snapshot = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    field: str  # as people read it
    lines: list[Line]


class ToolVersionQuerySet(models.QuerySet["ToolVersion"]):
    def record(
        self,
        tool: Tool,
        user: Any = None,
        note: str = "",
        *,
        before: Snapshot | None = None,
    ) -> bool:
        """Keep the row as it is now in the database; False where nothing is new.

        `before` is what it was, for the first version of a row that has none.
        """
        with transaction.atomic():
            # Two at once: the second sees the first one's number.
            row = type(tool).objects.select_for_update().get(pk=tool.pk)
            last = self.filter(tool=row).order_by("-number").first()
            snapshot = snapshot_of(row)
            number = last.number if last else 0
            if snapshot == (last.snapshot if last else before):
                return False
            if not last and before:
                number += 1
                self.create(tool=row, number=number, snapshot=before)
            self.create(
                tool=row,
                number=number + 1,
                made_by=user,
                note=note,
                snapshot=snapshot,
            )
        return True


class ToolVersion(models.Model):
    tool = models.ForeignKey("tools.Tool", models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    made_at = models.DateTimeField(auto_now_add=True)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    note = models.CharField(max_length=MAX_NOTE, blank=True)
    snapshot = models.JSONField()

    objects = ToolVersionQuerySet.as_manager()

    class Meta:
        default_permissions = ()  # those of its tool
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["tool", "number"], name="tools_toolversion_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.number}"

    @transaction.atomic
    def restore(self, user: Any = None) -> list[str]:
        """The tool as this version says; whether it is enabled stays, secrets too.

        The names of groups that are gone. Raises ValidationError where it would not be
        valid any more.
        """
        tool, told = self.tool, self.snapshot
        _set(tool, told["tool"])
        names = {*told["groups"], *filter(None, [told["approvers"]])}
        groups = {group.name: group for group in Group.objects.filter(name__in=names)}
        if told["approvers"] and told["approvers"] not in groups:
            # Without it the user's own word would be enough.
            problem = _("The group %(name)r, which has to approve, is gone.")
            raise ValidationError(problem, params={"name": told["approvers"]})
        tool.approvers = groups.get(told["approvers"])
        tool.full_clean()
        tool.save()
        if told["groups"] and not groups.keys() & set(told["groups"]):
            # Nobody named means everybody.
            raise ValidationError(_("All groups that might use it are gone."))
        tool.groups.set(g for name, g in groups.items() if name in told["groups"])
        if told["http"] and (http := getattr(tool, "http", None)):
            _set(http, told["http"])
            http.full_clean()
            http.save()
        note = str(_("Version %d restored")) % self.number
        ToolVersion.objects.record(tool, user, note)
        return sorted(names - groups.keys())


def snapshot_of(tool: Tool) -> Snapshot:
    """As JSON: columns of the tool, of its HTTP request, groups by name, and what staff
    approved of an MCP server's tool."""
    http, mcp = getattr(tool, "http", None), getattr(tool, "mcp", None)
    return {
        "tool": _columns(tool),
        "groups": sorted(tool.groups.values_list("name", flat=True)),
        "approvers": tool.approvers.name if tool.approvers else None,
        "http": _columns(http) if http else None,
        **({"mcp": mcp.definition} if mcp else {}),
    }


def differences(before: Snapshot, after: Snapshot) -> list[Difference]:
    """One for each field that is not the same, in the order of the fields."""
    old, new = _flat(before), _flat(after)
    return [
        Difference(name, differing(_shown(old.get(name)), _shown(new.get(name))))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _columns(row: models.Model) -> Snapshot:
    """Through JSON, so that it compares with what the database gives back."""
    values = {
        column.name: getattr(row, column.attname)
        for column in row._meta.concrete_fields
        if column.name not in _NOT_KEPT
    }
    told: Snapshot = json.loads(json.dumps(values))
    return told


def _set(row: models.Model, values: Mapping[str, Any]) -> None:
    """What the snapshot does not know, because it is older, gets its default."""
    for column in row._meta.concrete_fields:
        name = column.name
        if name in _NOT_KEPT | _NOT_RESTORED or not column.editable:
            continue
        setattr(row, name, values[name] if name in values else column.get_default())


def _flat(snapshot: Snapshot) -> dict[str, Any]:
    http, mcp = snapshot["http"] or {}, snapshot.get("mcp") or {}
    return {
        **snapshot["tool"],
        "approvers": snapshot["approvers"],
        "groups": snapshot["groups"],
        **{f"HTTP {name}": value for name, value in http.items()},
        **{f"MCP {name}": value for name, value in mcp.items()},
    }


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, indent=2, ensure_ascii=False)
