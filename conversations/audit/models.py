"""Rows of the audit log: events in a hash chain, their erasable texts, checkpoints.

An event is written once, and linked once: `audit/chain.py` sets its position and its
hash. Its texts (who, and what in words) are in a row of their own, so that they can be
erased; the chain goes over their salted digests. Triggers of the database refuse every
other change (`audit/triggers.py`).
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from conversations.audit.act import Channel


class AppendOnly(Exception):
    """Rows of the audit log are neither changed nor deleted."""


class AppendOnlyRows(models.QuerySet):
    def update(self, **values: Any) -> int:
        raise AppendOnly("Rows of the audit log are not changed.")

    def bulk_update(self, *args: Any, **kwargs: Any) -> int:
        raise AppendOnly("Rows of the audit log are not changed.")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnly("Rows of the audit log are not deleted.")


class AppendOnlyRow(models.Model):
    """`objects` reads and adds. `chained` is for this app alone: it links events,
    erases texts and removes what a checkpoint stands for."""

    objects = AppendOnlyRows.as_manager()
    chained = models.Manager()  # noqa: DJ012 (ruff takes it for a field)

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("Rows of the audit log are not changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnly("Rows of the audit log are not deleted.")


class AuditEvent(AppendOnlyRow):
    """One act. No column holds words of a person; users are named by their keys, which
    are not foreign keys, because an event outlives its user."""

    class Outcome(models.TextChoices):
        DONE = "done", _("done")
        REFUSED = "refused", _("refused")

    at = models.DateTimeField(_("time"), db_index=True)
    action = models.CharField(_("action"), max_length=64)
    channel = models.CharField(_("channel"), max_length=16, choices=Channel.choices)
    outcome = models.CharField(
        _("outcome"), max_length=16, choices=Outcome.choices, default=Outcome.DONE
    )
    actor = models.BigIntegerField(_("actor"), null=True)
    #: The user whom the act concerns, whose erasure erases the details.
    subject = models.BigIntegerField(_("concerned user"), null=True)
    target_type = models.CharField(_("kind of object"), max_length=64, default="")
    target_id = models.CharField(_("object"), max_length=64, default="")
    identity_digest = models.CharField(max_length=64)
    details_digest = models.CharField(max_length=64)
    #: Set once, when the event is linked.
    position = models.BigIntegerField(_("position"), null=True, unique=True)
    key_id = models.CharField(max_length=16, default="")
    hash = models.CharField(max_length=64, default="")

    class Meta:
        ordering = ["-id"]
        default_permissions = ("view",)
        permissions = [("export_auditevent", "Can export the audit log")]
        verbose_name = _("audit event")
        verbose_name_plural = _("audit log")
        indexes = [
            models.Index(fields=["action", "-id"], name="audit_by_action"),
            models.Index(fields=["actor", "-id"], name="audit_by_actor"),
            models.Index(fields=["subject", "-id"], name="audit_by_subject"),
            models.Index(
                fields=["target_type", "target_id", "-id"], name="audit_by_target"
            ),
            models.Index(
                fields=["id"],
                name="audit_unlinked",
                condition=models.Q(position=None),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.action}"


class AuditText(AppendOnlyRow):
    """The texts of an event, as JSON. An erased text and its salt are None."""

    event = models.OneToOneField(
        AuditEvent, models.DO_NOTHING, primary_key=True, related_name="text"
    )
    identity = models.TextField(null=True)  # name, address, browser, token
    identity_salt = models.CharField(max_length=64, null=True)
    details = models.TextField(null=True)  # before, after, reason, and the like
    details_salt = models.CharField(max_length=64, null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.pk)


class AuditCheckpoint(AppendOnlyRow):
    """Stands for all events up to a position, which were removed after their
    retention."""

    position = models.BigIntegerField(primary_key=True)
    hash = models.CharField(max_length=64)  # of the event at that position
    created_at = models.DateTimeField()
    key_id = models.CharField(max_length=16)
    signature = models.CharField(max_length=64)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.pk)
