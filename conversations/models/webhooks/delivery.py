"""The outbox: a row of each webhook and e-mail that is to be sent, and its log.

A row is written in the transaction of its event, and sent later by any process,
which claims it with a lease. It holds ids, states and times, and no words of a chat.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.conversation import Conversation
from conversations.models.limits.usage_limit import LimitPeriod, period_name
from conversations.models.webhooks.endpoint import WebhookEndpoint
from llm.db.clock import database_now
from llm.wire.items import new_id

LIFETIME = timedelta(days=3)  # in which a delivery is tried again
RETENTION = timedelta(days=30)  # of the log


def event_id() -> str:
    return new_id("evt")


def expiry() -> datetime:
    return timezone.now() + LIFETIME


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def claimable(self) -> DeliveryQuerySet:
        """Those whose time has come and that no process sends now."""
        return self.filter(
            Q(lease_until=None) | Q(lease_until__lt=database_now()),
            state=Delivery.State.PENDING,
            next_attempt_at__lte=timezone.now(),
        )

    def due(self) -> DeliveryQuerySet:
        """The claimable ones, without those of endpoints that are switched off."""
        return self.claimable().filter(Q(endpoint=None) | Q(endpoint__is_enabled=True))

    def expired(self) -> DeliveryQuerySet:
        """Not those of limits whose period goes on: each is told once in it."""
        now = timezone.now()
        going_on = [period_name(period) for period in LimitPeriod]
        is_over = Q(once_key=None) | ~Q(data__period__in=going_on)
        return self.filter(is_over, created_at__lt=now - RETENTION, expires_at__lt=now)


class Delivery(models.Model):
    class State(models.TextChoices):
        PENDING = "pending", _("waits")
        DELIVERED = "delivered", _("delivered")
        FAILED = "failed", _("given up")
        SKIPPED = "skipped", _("not needed")

    event_id = models.CharField(
        _("id"),
        max_length=64,
        default=event_id,
        unique=True,
        help_text=_("The header webhook-id; each attempt has the same."),
    )
    endpoint = models.ForeignKey(
        WebhookEndpoint,
        models.CASCADE,
        null=True,
        related_name="deliveries",
        help_text=_("Empty for an e-mail."),
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        related_name="+",
        help_text=_("Whom it tells of, or whom it is mailed to."),
    )
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, null=True, related_name="+"
    )
    type = models.CharField(_("event"), max_length=40)
    data = models.JSONField(default=dict)
    once_key = models.CharField(
        max_length=150,
        null=True,
        editable=False,
        help_text=_("An endpoint is told once of what has the same key."),
    )
    state = models.CharField(
        max_length=10, choices=State.choices, default=State.PENDING
    )
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)
    lease_until = models.DateTimeField(null=True, editable=False)
    expires_at = models.DateTimeField(_("tried until"), default=expiry)
    last_status = models.PositiveSmallIntegerField(_("HTTP status"), null=True)
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    delivered_at = models.DateTimeField(null=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        default_permissions = ["view", "change"]
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint", "once_key"], name="conversations_delivery_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["next_attempt_at"],
                condition=Q(state="pending"),
                name="conversations_delivery_due",
            )
        ]

    def __str__(self) -> str:
        return self.event_id

    def envelope(self) -> dict[str, Any]:
        """The body, in the shape of OpenAI's events."""
        return {
            "id": self.event_id,
            "object": "event",
            "created_at": int(self.created_at.timestamp()),
            "type": self.type,
            "data": self.data,
        }

    def send_again(self) -> None:
        """With the same id and a new time, for as long as a new one is tried. An
        attempt that runs now keeps its lease, and counts."""
        self.state, self.attempts = self.State.PENDING, 0
        self.next_attempt_at, self.expires_at = timezone.now(), expiry()
        changed = ["state", "attempts", "next_attempt_at", "expires_at"]
        self.save(update_fields=changed)
