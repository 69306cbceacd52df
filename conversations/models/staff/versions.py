"""Versions of presets and of groups' prompts: snapshots after each change.

A snapshot names other rows, as a configuration file does, so that it can be read and
compared after they are gone.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from conversations.models.preset import Preset
from conversations.models.saved_prompt import SavedPrompt

MAX_NOTE = 200  # characters

Snapshot = dict[str, Any]


class VersionQuerySet(models.QuerySet[Any]):
    def record(
        self,
        row: models.Model,
        user: Any = None,
        note: str = "",
        *,
        before: Snapshot | None = None,
    ) -> Any:
        """Store a version of the row as it is in the database. Returns it, or None if
        nothing has changed.

        `before` is the earlier snapshot, for a row that has no version yet.
        """
        with transaction.atomic():
            # The lock makes concurrent changes get different version numbers.
            type(row)._default_manager.select_for_update(of=("self",)).get(pk=row.pk)
            fresh = type(row)._default_manager.get(pk=row.pk)
            last = self.filter(subject=fresh).order_by("-number").first()
            snapshot = self.model.take_snapshot(fresh)
            if snapshot == (last.snapshot if last else before):
                return None
            number = last.number if last else 0
            if last is None and before is not None:
                number += 1
                self.create(subject=fresh, number=number, snapshot=before)
            made = self.create(
                subject=fresh,
                number=number + 1,
                made_by=user,
                note=note[:MAX_NOTE],
                snapshot=snapshot,
            )
            made.after_recording(row)
        return made


class Version(models.Model):
    number = models.PositiveIntegerField()
    made_at = models.DateTimeField(auto_now_add=True)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    note = models.CharField(max_length=MAX_NOTE, blank=True)
    snapshot = models.JSONField()

    objects = VersionQuerySet.as_manager()

    class Meta:
        abstract = True
        default_permissions = ()  # the permissions of its subject apply
        ordering = ["-number"]

    @staticmethod
    def take_snapshot(row: Any) -> Snapshot:
        """The state of a row as JSON."""
        raise NotImplementedError

    def after_recording(self, row: Any) -> None:
        """Called in the transaction that has stored this version of `row`."""


class PresetVersion(Version):
    subject = models.ForeignKey(Preset, models.CASCADE, related_name="versions")

    class Meta(Version.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["subject", "number"], name="conversations_presetversion_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.number}"

    @staticmethod
    def take_snapshot(row: Preset) -> Snapshot:
        return {**row.access(), **row.content()}

    def after_recording(self, row: Preset) -> None:
        """Turns store this number."""
        Preset.objects.filter(pk=row.pk).update(version=self.number)
        row.version = self.number

    @transaction.atomic
    def restore(self, user: Any = None) -> list[str]:
        """Give the preset the content of this version; who may use it stays.

        Returns the names of rows that no longer exist. Raises ValidationError if the
        preset would no longer be valid.
        """
        gone = self.subject.set_content(self.snapshot)
        note = str(_("Version %d restored")) % self.number
        PresetVersion.objects.record(self.subject, user, note)
        return gone


class PromptVersion(Version):
    subject = models.ForeignKey(SavedPrompt, models.CASCADE, related_name="versions")

    class Meta(Version.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["subject", "number"], name="conversations_promptversion_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.number}"

    @staticmethod
    def take_snapshot(row: SavedPrompt) -> Snapshot:
        return {
            "group": row.group.name if row.group else None,
            "name": row.name,
            "title": row.title,
            "text": row.text,
        }

    @transaction.atomic
    def restore(self, user: Any = None) -> list[str]:
        """Give the prompt the name and texts of this version; its group stays. Raises
        ValidationError."""
        prompt = self.subject
        for name in ("name", "title", "text"):
            setattr(prompt, name, self.snapshot[name])
        prompt.full_clean()
        prompt.save()
        note = str(_("Version %d restored")) % self.number
        PromptVersion.objects.record(prompt, user, note)
        return []
