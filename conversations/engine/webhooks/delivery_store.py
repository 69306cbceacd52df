"""Claims of deliveries and what came of them. Synchronous."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations.access.webhooks.outbox import MAIL_OF_ENDPOINT
from conversations.audit.act import Act, Channel, acting
from conversations.models.webhooks.delivery import Delivery
from conversations.models.webhooks.endpoint import WebhookEndpoint
from conversations.models.webhooks.error_texts import TOO_LATE, UNWANTED
from llm.db.clock import database_now

logger = logging.getLogger(__name__)

#: Longer than an attempt: a webhook takes 20 seconds at most, a mail `EMAIL_TIMEOUT`
#: for each of some nine steps (connect, TLS, sign in, ... quit).
LEASE = timedelta(seconds=120)
FIRST_DELAY = timedelta(seconds=10)
GROWTH = 3  # from one delay to the next
LONGEST_DELAY = timedelta(hours=12)
JITTER = 0.2  # part of a delay
#: An endpoint is switched off after so many failures and so much time without success.
MOST_FAILURES = 10
LONGEST_FAILING = timedelta(days=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    """What came of an attempt; without an error it was delivered."""

    status: int | None = None
    error: str = ""
    retry_after: timedelta = timedelta()  # that the receiver asks for
    is_skipped: bool = False  # it need not be sent any more
    is_final: bool = False  # another attempt would not help


def find_due(
    limit: int, *, without: Collection[int], busy: Collection[int | None]
) -> list[tuple[int, int | None]]:
    """Keys of deliveries and their endpoints, oldest first; not those in `without`,
    nor those to the endpoints `busy`. Mails have the endpoint None."""
    rows = Delivery.objects.due().exclude(pk__in=without)
    rows = rows.exclude(endpoint__in=[e for e in busy if e is not None])
    if None in busy:
        rows = rows.exclude(endpoint=None)
    found = rows.order_by("next_attempt_at").values_list("pk", "endpoint_id")
    return list(found[:limit])


def claim(pk: int) -> Delivery | None:
    """The delivery, for one process until its lease ends; None if another process has
    it, or if the time in which it is tried is over."""
    until = database_now(LEASE.total_seconds())
    changed = {"lease_until": until, "attempts": F("attempts") + 1}
    if not Delivery.objects.claimable().filter(pk=pk).update(**changed):
        return None
    rows = Delivery.objects.select_related("endpoint", "user")
    row = rows.filter(pk=pk).first()
    if row is not None and row.expires_at < timezone.now():
        _give_up(row)
        return None
    return row


def _give_up(delivery: Delivery) -> None:
    """End the delivery without an attempt: the server or the endpoint was off for days,
    or a backup was restored. Nobody wants a mail about an answer of weeks ago."""
    changed: dict[str, Any] = {"lease_until": None, "attempts": F("attempts") - 1}
    if delivery.endpoint_id is None:
        changed["state"] = Delivery.State.SKIPPED
    else:
        error = delivery.last_error or TOO_LATE
        changed |= {"state": Delivery.State.FAILED, "last_error": error}
    _same_attempt(delivery).update(**changed)


def give_back(delivery: Delivery) -> None:
    """Let another process send it at once."""
    _same_attempt(delivery).update(lease_until=None)


def release_all() -> None:
    """Called at the start of the only process: the one that leased them has ended."""
    Delivery.objects.exclude(lease_until=None).update(lease_until=None)


def _same_attempt(delivery: Delivery) -> Any:
    """By its lease, as each attempt has another; "Send again" resets their number."""
    return Delivery.objects.filter(
        pk=delivery.pk, lease_until=delivery.lease_until, state=Delivery.State.PENDING
    )


@transaction.atomic
def record(delivery: Delivery, outcome: DeliveryOutcome) -> None:
    """Store the outcome, with the delivery's next attempt and its endpoint's state."""
    now = timezone.now()
    changed: dict[str, Any] = {
        "lease_until": None,
        "last_status": outcome.status,
        "last_error": outcome.error[:300],
    }
    if outcome.error:
        changed |= _after_failure(delivery, outcome, now)
    elif outcome.is_skipped:
        changed["state"] = Delivery.State.SKIPPED
    else:
        changed |= {"state": Delivery.State.DELIVERED, "delivered_at": now}
    is_current = _same_attempt(delivery).update(**changed)
    if is_current and delivery.endpoint is not None:
        _record_at_endpoint(delivery.endpoint, outcome, now)


def _after_failure(
    delivery: Delivery, outcome: DeliveryOutcome, now: datetime
) -> dict[str, Any]:
    wanted = now + max(delay_after(delivery.attempts), outcome.retry_after)
    if outcome.is_final or wanted > delivery.expires_at:
        return {"state": Delivery.State.FAILED}
    return {"next_attempt_at": wanted}


def delay_after(attempts: int) -> timedelta:
    """10 s, 30 s, 90 s and so on up to 12 hours, with jitter."""
    delay = FIRST_DELAY
    for _ in range(attempts - 1):
        delay = min(LONGEST_DELAY, delay * GROWTH)
    return delay * random.uniform(1 - JITTER, 1 + JITTER)


def _record_at_endpoint(
    endpoint: WebhookEndpoint, outcome: DeliveryOutcome, now: datetime
) -> None:
    rows = WebhookEndpoint.objects.filter(pk=endpoint.pk)
    if not outcome.error:
        rows.update(last_success_at=now, last_error="", failures=0, failing_since=None)
        return
    rows.filter(failing_since=None).update(failing_since=now)
    error = outcome.error[:300]
    rows.update(last_failure_at=now, last_error=error, failures=F("failures") + 1)
    if outcome.status == HTTPStatus.GONE:
        _disable(rows, UNWANTED)
        return
    hopeless = rows.filter(
        failures__gte=MOST_FAILURES, failing_since__lt=now - LONGEST_FAILING
    )
    _disable(hopeless, f"It failed for {LONGEST_FAILING.days} days: {error}")


def _disable(rows: Any, reason: str) -> None:
    if not (row := rows.filter(is_enabled=True).first()):
        return
    row.is_enabled, row.disabled_reason = False, reason[:300]
    with acting(Act(channel=Channel.SYSTEM)):  # for the audit log
        row.save(update_fields=["is_enabled", "disabled_reason"])
    logger.warning("webhook endpoint %s was switched off: %s", row.pk, reason)
    recipient = row.owner_id or row.created_by_id
    if recipient and settings.SENDS_MAIL:
        data = {"endpoint": row.pk, "name": row.name}
        Delivery.objects.create(user_id=recipient, type=MAIL_OF_ENDPOINT, data=data)
