"""Version history of tools: snapshots after each change, restore and differences.

A version has the row's columns after a change, without secrets: of secret headers it
has only the names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from llm.db.columns import list_columns
from tools.models.tool import Tool
from tools.text_diff import FieldDifference, diff_fields

#: Columns that staff do not set, or that a snapshot stores by name elsewhere.
_EXCLUDED_COLUMNS = {
    "id",
    "tool",
    "is_missing",
    "created_at",
    "approvers",
    "secret_headers",
    "secret_id",
    "runs_unasked",
}
#: Columns that restoring a version does not change.
_NOT_RESTORED = {"kind", "enabled", "only_in_presets"}

MAX_NOTE = 200  # characters

Snapshot = dict[str, Any]


class ToolVersionQuerySet(models.QuerySet["ToolVersion"]):
    def record(
        self,
        tool: Tool,
        user: Any = None,
        note: str = "",
        *,
        before: Snapshot | None = None,
    ) -> bool:
        """Store a version of the row as it is in the database; False if unchanged.

        `before` is the earlier snapshot, for a row that has no version yet.
        """
        with transaction.atomic():
            # The lock makes concurrent changes get different version numbers.
            row = type(tool).objects.select_for_update().get(pk=tool.pk)
            last = self.filter(tool=row).order_by("-number").first()
            snapshot = ToolVersion.take_snapshot(row)
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
        default_permissions = ()  # the permissions of its tool apply
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["tool", "number"], name="tools_toolversion_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.number}"

    @staticmethod
    def take_snapshot(tool: Tool) -> Snapshot:
        """The state of a tool as JSON: its columns, its groups by name, the columns of
        its HTTP request, and the approved definition of an MCP tool."""
        http, mcp = getattr(tool, "http", None), getattr(tool, "mcp", None)
        return {
            "tool": _columns(tool),
            "groups": sorted(tool.groups.values_list("name", flat=True)),
            "approvers": tool.approvers.name if tool.approvers else None,
            "http": _columns(http) if http else None,
            **({"mcp": mcp.definition} if mcp else {}),
        }

    @transaction.atomic
    def restore(self, user: Any = None) -> list[str]:
        """Restore the tool to this version, except secrets and the enabled flag.

        Returns the names of groups that no longer exist. Raises ValidationError if the
        tool would no longer be valid.
        """
        tool, snapshot = self.tool, self.snapshot
        _set(tool, snapshot["tool"])
        names = {*snapshot["groups"], *filter(None, [snapshot["approvers"]])}
        groups = {group.name: group for group in Group.objects.filter(name__in=names)}
        if snapshot["approvers"] and snapshot["approvers"] not in groups:
            # Without the group, the user alone could approve calls.
            problem = _("The approving group %(name)r no longer exists.")
            raise ValidationError(problem, params={"name": snapshot["approvers"]})
        tool.approvers = groups.get(snapshot["approvers"])
        tool.full_clean()
        tool.save()
        if snapshot["groups"] and not groups.keys() & set(snapshot["groups"]):
            # A tool without groups would be open to everybody.
            raise ValidationError(
                _("None of the groups that could use the tool exists any more.")
            )
        tool.groups.set(g for name, g in groups.items() if name in snapshot["groups"])
        if snapshot["http"] and (http := getattr(tool, "http", None)):
            _set(http, snapshot["http"])
            http.full_clean()
            http.save()
        note = str(_("Version %d restored")) % self.number
        ToolVersion.objects.record(tool, user, note)
        return sorted(names - groups.keys())


def compare_snapshots(before: Snapshot, after: Snapshot) -> list[FieldDifference]:
    """One difference for each field that changed, in the order of the fields."""
    return diff_fields(_flatten(before), _flatten(after))


def _columns(row: models.Model) -> Snapshot:
    """The columns, converted through JSON so that they compare equal to a stored
    snapshot."""
    values = {
        column.name: getattr(row, column.attname)
        for column in list_columns(type(row))
        if column.name not in _EXCLUDED_COLUMNS
    }
    columns: Snapshot = json.loads(json.dumps(values))
    return columns


def _set(row: models.Model, values: Mapping[str, Any]) -> None:
    """Set the columns; one that an older snapshot does not have gets its default."""
    for column in list_columns(type(row)):
        name = column.name
        if name in _EXCLUDED_COLUMNS | _NOT_RESTORED or not column.editable:
            continue
        setattr(row, name, values[name] if name in values else column.get_default())


def _flatten(snapshot: Snapshot) -> dict[str, Any]:
    http, mcp = snapshot["http"] or {}, snapshot.get("mcp") or {}
    return {
        **snapshot["tool"],
        "approvers": snapshot["approvers"],
        "groups": snapshot["groups"],
        **{f"HTTP {name}": value for name, value in http.items()},
        **{f"MCP {name}": value for name, value in mcp.items()},
    }
