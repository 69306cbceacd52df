"""Warnings before a limit of use refuses anything: stored for staff, sent to webhooks.

People see on their pages and in `GET /api/limits/` how much is used.
"""

from __future__ import annotations

from conversations.access.limits.amounts import MEASURES, Amounts, BalanceKey, Caps
from conversations.access.webhooks import recipients
from conversations.access.webhooks.limit_events import note_scarce
from conversations.models.limits.limit_balance import LimitBalance, LimitWarning


def warn(key: BalanceKey, caps: Caps, taken: Amounts) -> None:
    """Store a warning for each measure whose use has reached `warn_at` percent of its
    cap, or the cap, and send it to webhooks. Each is stored and sent once."""
    for measure in MEASURES:
        cap, used = getattr(caps, measure), getattr(taken, measure)
        if not cap or 100 * used < caps.warn_at * cap:
            continue
        _store(key, measure, cap, 100 if used >= cap else caps.warn_at)
        if recipients.wants_webhooks():
            note_scarce(key, measure, cap)


def _store(key: BalanceKey, measure: str, amount: int, percent: int) -> None:
    balance = LimitBalance.objects.filter(
        **{f"{key.kind}_id": key.owner_id},
        period=key.period,
        model_id=key.model_id,
    ).first()
    if balance is not None:
        LimitWarning.objects.get_or_create(
            balance=balance, measure=measure, amount=amount, percent=percent
        )
