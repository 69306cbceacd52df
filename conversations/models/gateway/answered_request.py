"""Row of an Idempotency-Key of `/v1`: the answer that its first request got."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import AccessToken

#: For so long a key belongs to its request, also to one that was lost with its process:
#: it may have been charged.
LONGEST = timedelta(hours=24)


class AnsweredRequestQuerySet(models.QuerySet["AnsweredRequest"]):
    def claim(
        self, token_id: int, key: str, fingerprint: str
    ) -> tuple[AnsweredRequest, bool]:
        """The row of this key, and whether the caller answers the request."""
        try:
            with transaction.atomic():
                return self.create(
                    token_id=token_id, key=key, fingerprint=fingerprint
                ), True
        except IntegrityError:
            found = self.filter(token_id=token_id, key=key).first()
        if found is None:  # released meanwhile
            return self.claim(token_id, key, fingerprint)
        lost = self.filter(
            pk=found.pk,
            status=None,
            fingerprint=fingerprint,
            created_at__lt=timezone.now() - LONGEST,
        )
        return found, bool(lost.update(created_at=timezone.now()))


class AnsweredRequest(models.Model):
    """A request with an Idempotency-Key. `status` is empty until it is answered."""

    token = models.ForeignKey(AccessToken, models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(default=list)  # pairs of name and value
    body = models.BinaryField(null=True)  # compressed; empty if it was too large
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

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
        AnsweredRequest.objects.filter(pk=self.pk).update(**fields)

    def release(self) -> None:
        """Let the same key be used again: the request had no effect."""
        AnsweredRequest.objects.filter(pk=self.pk, status=None).delete()

    def read_body(self) -> bytes:
        return zlib.decompress(bytes(self.body or b""))
