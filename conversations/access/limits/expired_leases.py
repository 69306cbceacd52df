"""Leases of usage limits that no process renews any more."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone

from conversations.access.limits.amounts import Amounts
from conversations.access.limits.leases import amounts_of, sums
from conversations.models.limits.limit_balance import LimitBalance, LimitLease

logger = logging.getLogger(__name__)

MAX_SWEPT = 500  # most leases that one sweep closes


def sweep_expired() -> int:
    """Count the leases of processes that died as used; returns how many."""
    expired = LimitLease.objects.filter(expires_at__lt=timezone.now())
    count = 0
    for lease in expired.order_by("expires_at")[:MAX_SWEPT]:
        count += _close_expired(lease)
    return count


@transaction.atomic
def _close_expired(lease: LimitLease) -> int:
    # The balance first, in the order of `_lock_balance`, to avoid a deadlock.
    LimitBalance.objects.select_for_update().filter(pk=lease.balance_id).first()
    # A renewed lease has another `expires_at`.
    rows = LimitLease.objects.filter(pk=lease.pk, expires_at=lease.expires_at)
    current = rows.select_for_update().first()
    if current is None or not rows.delete()[0]:
        return 0
    amounts = amounts_of(current)
    balance = LimitBalance.objects.filter(pk=lease.balance_id)
    balance.update(**sums("used", amounts), **sums("leased", Amounts() - amounts))
    logger.warning("a lost process's lease of a usage limit was counted as used")
    return 1
