"""Row of an Idempotency-Key of `/v1`: the answer that its first request got."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import AccessToken
from conversations.models.turn import Turn
from llm.db.clock import database_now

#: For so long a key belongs to its request.
LONGEST = timedelta(hours=24)
#: For so long after the last renewal no other process answers the request. Then its
#: process has died, and a repetition is answered by another.
LEASE = timedelta(seconds=60)


class ClaimLost(Exception):
    """Another process answers the request, as this one was taken for dead."""


class AnsweredRequestQuerySet(models.QuerySet["AnsweredRequest"]):
    def claim(
        self, token_id: int, key: str, fingerprint: str
    ) -> tuple[AnsweredRequest, bool]:
        """The row of this key, and whether the caller answers the request."""
        now, leased_at = timezone.now(), time.monotonic()
        until = database_now(LEASE.total_seconds())
        claimed = {"created_at": now, "lease_expires_at": until}
        try:
            with transaction.atomic():
                made = self.create(
                    token_id=token_id, key=key, fingerprint=fingerprint, **claimed
                )
                made.leased_at = leased_at
                return made, True
        except IntegrityError:
            found = self.filter(token_id=token_id, key=key).first()
        if found is None:  # released meanwhile
            return self.claim(token_id, key, fingerprint)
        lost = self.filter(
            models.Q(created_at__lt=now - LONGEST)
            | models.Q(lease_expires_at__lt=database_now()),
            pk=found.pk,
            status=None,
            fingerprint=fingerprint,
        )
        if not lost.update(**claimed):
            return found, False
        found.created_at, found.leased_at = now, leased_at
        return found, True

    def renew(self, claims: Mapping[int, datetime]) -> set[int]:
        """Extend the leases of rows by key, each with the time at which this process
        claimed it. Returns the keys of those that it still has."""
        rows = self.filter(pk__in=claims).values_list("pk", "created_at")
        own = {pk for pk, claimed_at in rows if claimed_at == claims[pk]}
        self.filter(
            pk__in=own,
            created_at__in=[claims[pk] for pk in own],
            status=None,
            lease_expires_at__isnull=False,
        ).update(lease_expires_at=database_now(LEASE.total_seconds()))
        return own


class AnsweredRequest(models.Model):
    """A request with an Idempotency-Key. `status` is empty until it is answered."""

    token = models.ForeignKey(AccessToken, models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=list)  # pairs of name and value
    body = models.BinaryField(null=True)  # compressed; empty if it was too large
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    #: Empty if the key stays in use without its process.
    lease_expires_at = models.DateTimeField(null=True)
    #: Of the stored response that the request has opened.
    turn_id = models.CharField(max_length=64, blank=True, default="", db_default="")

    #: A time of `time.monotonic()` before the database began the lease. No column.
    leased_at = 0.0
    #: Whether another process may answer the request by now. No column.
    is_lost = False
    #: Whether the request takes effect without its client too. No column.
    is_unstoppable = False

    objects = AnsweredRequestQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        verbose_name = _("answered request")
        constraints = [
            models.UniqueConstraint(
                fields=["token", "key"], name="conversations_answered_request_once"
            )
        ]

    def __str__(self) -> str:
        return self.key

    def save_answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes | None
    ) -> None:
        packed = None if body is None else zlib.compress(body, 1)
        fields: dict[str, Any] = {"status": status, "headers": headers, "body": packed}
        self._own_rows().update(**fields)

    def note_turn(self, turn_id: str, *, stays_in_use: bool = False) -> None:
        """Called in the transaction that opens the turn: a request that takes the key
        over continues the turn. `stays_in_use`: no request takes it over.

        Raises ClaimLost, so that a request does not open two turns.
        """
        fields: dict[str, Any] = {"turn_id": turn_id}
        if stays_in_use:
            fields["lease_expires_at"] = None
        if not self._own_rows().update(**fields):
            raise ClaimLost

    def release(self) -> None:
        """Let the same key be used again: the request had no effect."""
        self._own_rows().filter(status=None).delete()

    def hand_over(self) -> None:
        """As `release`, unless the stored response of the request goes on without it,
        in another process: then the next request with the key gets that response."""
        going_on = Turn.objects.not_finished().filter(cancel_requested=False)
        rows = self._own_rows().filter(status=None, turn_id__in=going_on.values("pk"))
        if not rows.update(lease_expires_at=database_now(-LEASE.total_seconds())):
            self.release()

    def end_lease(self) -> None:
        """For a request that was cancelled because its lease ran out: as `release`,
        unless it has opened a stored response. Then the next request with the key gets
        that response, however it has ended by now."""
        rows = self._own_rows().filter(status=None)
        rows.filter(lease_expires_at__isnull=False).exclude(turn_id="").update(
            lease_expires_at=database_now(-LEASE.total_seconds())
        )
        rows.filter(turn_id="").delete()

    def _own_rows(self) -> AnsweredRequestQuerySet:
        """None if another process has taken the key over, which each does at a time of
        its own."""
        return AnsweredRequest.objects.filter(pk=self.pk, created_at=self.created_at)

    def read_body(self) -> bytes:
        return zlib.decompress(bytes(self.body or b""))
