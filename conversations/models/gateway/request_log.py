"""Row of one request of a token whose owner or staff have switched its log on."""

from __future__ import annotations

import zlib

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import LOG_DURATION, AccessToken

MAX_BODY = 64 * 1024  # bytes of each body
MAX_ROWS = 1000  # of a token; the oldest go first


class LoggedRequestQuerySet(models.QuerySet["LoggedRequest"]):
    def fresh(self) -> LoggedRequestQuerySet:
        return self.filter(created_at__gte=timezone.now() - LOG_DURATION)

    def expired(self) -> LoggedRequestQuerySet:
        return self.filter(created_at__lt=timezone.now() - LOG_DURATION)

    def add(self, row: LoggedRequest) -> None:
        """Save a row, and erase what is beyond `MAX_ROWS` of its token."""
        row.save()
        same = self.filter(token_id=row.token_id).order_by("-pk")
        if (last := same.values_list("pk", flat=True)[MAX_ROWS : MAX_ROWS + 1]) and (
            found := list(last)
        ):
            same.filter(pk__lte=found[0]).delete()


class LoggedRequest(models.Model):
    """A request to `/v1` and its answer, without keys, cut to `MAX_BODY`."""

    token = models.ForeignKey(
        AccessToken, models.CASCADE, related_name="logged_requests"
    )
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    method = models.CharField(max_length=10)
    path = models.CharField(max_length=200)
    status = models.PositiveSmallIntegerField(
        null=True, help_text=_("Empty if the client left before an answer.")
    )
    seconds = models.FloatField()
    request_id = models.CharField(max_length=64, db_index=True)
    client_request_id = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=300, blank=True)
    request_size = models.PositiveBigIntegerField(default=0)
    response_size = models.PositiveBigIntegerField(default=0)
    request_body = models.BinaryField(default=bytes)  # compressed
    response_body = models.BinaryField(default=bytes)  # compressed

    objects = LoggedRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        default_permissions = ["view"]
        verbose_name = _("logged request")
        verbose_name_plural = _("logged requests")

    def __str__(self) -> str:
        return self.request_id

    @property
    def request_text(self) -> str:
        return _unpack(bytes(self.request_body))

    @property
    def response_text(self) -> str:
        return _unpack(bytes(self.response_body))


def pack_text(text: str) -> bytes:
    return zlib.compress(text.encode(errors="replace"))


def _unpack(packed: bytes) -> str:
    return zlib.decompress(packed).decode() if packed else ""
