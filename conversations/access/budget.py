"""Spending of access tokens: reserved before a provider call, settled after it.

A *balance* is the amount that one token has spent and reserved in one period. It
changes by conditional updates only, so that concurrent calls, in any number of
processes, never reserve more than the budget together. An *entry* is one request to a
provider: first its maximum cost, then its real cost. If its process died, the sweep
charges the maximum once the deadline has passed: what the provider has done by then is
unknown, and it may bill it.

Money is in billionths of a US dollar, whole numbers, so that sums are exact in every
database. Synchronous; a token without a budget has no rows here.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations.access.errors import BudgetExhausted, Unauthorized
from conversations.access.webhooks import recipients
from conversations.access.webhooks.limit_events import (
    note_budget_reached,
    warn_of_budget,
)
from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from conversations.models.ledger import Balance, LedgerEntry

logger = logging.getLogger(__name__)

MARGIN = 60.0  # seconds added to the longest possible call
_MAX_NANOS = 10**9 * NANOS_PER_DOLLAR  # the column can store nine times as much
MAX_CHARGED = 500  # most entries that one sweep charges


def nanos(amount: Decimal) -> int:
    """USD in billionths, rounded up; at most a billion USD."""
    return min(
        _MAX_NANOS, int((amount * NANOS_PER_DOLLAR).to_integral_value(ROUND_CEILING))
    )


def reserve(entry: str, token_id: int, amount: int) -> None:
    """Reserve `amount` for a new `entry`.

    Raises BudgetExhausted, and Unauthorized where the token was deleted; then nothing
    has changed but the events for webhook endpoints.
    """
    tokens = AccessToken.objects.filter(pk=token_id)
    if (token := tokens.only("budget", "budget_period").first()) is None:
        raise Unauthorized
    try:
        _reserve(entry, token, amount)
    except BudgetExhausted as exc:
        note_budget_reached(exc, token)
        raise


@transaction.atomic
def _reserve(entry: str, token: AccessToken, amount: int) -> None:
    budget = token.budget_nanos
    if budget is None:  # the budget was removed after the call began
        return
    balance, _ = Balance.objects.get_or_create(token=token, period=token.period())
    fitting = Balance.objects.filter(
        pk=balance.pk, reserved__lte=budget - amount - F("spent")
    )
    if not fitting.update(reserved=F("reserved") + amount):
        raise budget_error(token)
    LedgerEntry.objects.create(
        pk=entry, balance=balance, amount=amount, deadline=_deadline()
    )


@transaction.atomic
def settle(entry: str, cost: int, *, is_resumed: bool = False) -> None:
    """Record the real cost of `entry`. Idempotent; an unknown entry is ignored.

    A resumed response replaces what the run before it has recorded, an estimate.
    """
    entries = LedgerEntry.objects.filter(pk=entry).select_related("balance")
    if (row := entries.first()) is None:
        return
    balance, added = Balance.objects.filter(pk=row.balance_id), cost
    if _close(row, LedgerEntry.State.SETTLED, cost):
        balance.update(reserved=F("reserved") - row.amount, spent=F("spent") + cost)
        if cost > row.amount:
            logger.warning(
                "ledger entry %s cost %d billionths of a USD more than was reserved",
                entry,
                cost - row.amount,
            )
    elif (charged := _settle_late(entry, cost, is_resumed)) is not None:
        added = cost - charged
        balance.update(spent=F("spent") + added)
    else:
        return
    _warn(row, added)


def _warn(row: LedgerEntry, added: int) -> None:
    """Tell webhook endpoints once the budget is nearly spent; `row` was read before
    `added` was."""
    if recipients.wants_webhooks():
        warn_of_budget(row.balance.token, row.balance.spent + added)


def charge_expired() -> int:
    """Charge reservations of processes that died; returns how many entries."""
    expired = LedgerEntry.objects.filter(
        state=LedgerEntry.State.RESERVED, deadline__lt=timezone.now()
    ).select_related("balance")
    return sum(_charge(row) for row in expired.order_by("deadline")[:MAX_CHARGED])


@transaction.atomic
def _charge(row: LedgerEntry) -> bool:
    if not _close(row, LedgerEntry.State.CHARGED, row.amount):
        return False
    balance = Balance.objects.filter(pk=row.balance_id)
    balance.update(reserved=F("reserved") - row.amount, spent=F("spent") + row.amount)
    logger.warning("ledger entry %s was never settled; its maximum is charged", row.pk)
    _warn(row, row.amount)
    return True


def _close(row: LedgerEntry, state: str, cost: int) -> bool:
    """False where another process closed the entry first."""
    open_ones = LedgerEntry.objects.filter(pk=row.pk, state=LedgerEntry.State.RESERVED)
    return bool(open_ones.update(state=state, cost=cost))


def _settle_late(entry: str, cost: int, is_resumed: bool) -> int | None:
    """Settle an entry whose call outlasted the deadline, or the run that made it.
    Returns what was charged for it; None where there is no such entry."""
    states = [*LedgerEntry.LATE, *([LedgerEntry.State.SETTLED] if is_resumed else [])]
    late = LedgerEntry.objects.filter(pk=entry, state__in=states)
    row = late.select_for_update().first()
    if row is None:
        return None
    late.update(state=LedgerEntry.State.SETTLED, cost=cost)
    return row.cost or 0


def check_budget(token: AccessToken) -> None:
    """Check the budget for a turn that will run later. Raises BudgetExhausted."""
    budget = token.budget_nanos
    if budget is None:
        return
    spent, reserved = balance_of(token)
    if spent + reserved >= budget:
        refusal = budget_error(token)
        note_budget_reached(refusal, token)
        raise refusal


def balance_of(token: AccessToken) -> tuple[int, int]:
    """Spent and reserved in the current period, in billionths of a USD."""
    rows = Balance.objects.filter(token=token, period=token.period())
    found: Any = rows.values_list("spent", "reserved").first()
    return found or (0, 0)


def budget_error(token: AccessToken) -> BudgetExhausted:
    when = {"day": " for today", "month": " for this month"}
    return BudgetExhausted(
        f"The rest of this access token's budget"
        f"{when.get(token.budget_period, '')} is not enough for this call;"
        " request fewer tokens or ask for a higher budget."
    )


def _deadline() -> Any:
    lifetime = settings.LLM_TOTAL_TIMEOUT + MARGIN
    return timezone.now() + timedelta(seconds=lifetime)
