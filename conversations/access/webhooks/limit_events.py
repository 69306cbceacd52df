"""Events of limits of use and budgets: most of one is used, or all of it.

Each endpoint gets one event for a limit in a period, and another if its amount changes.
A refusal has no transaction that lasts, so these rows have their own.
"""

from __future__ import annotations

from typing import Any

from conversations.access.limits.amounts import AppliedLimit, BalanceKey
from conversations.access.webhooks import recipients
from conversations.access.webhooks.outbox import write_deliveries
from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from conversations.models.limits.usage_limit import DEFAULT_WARNING
from conversations.models.webhooks.endpoint import EventType
from llm.models import LanguageModel


def note_reached(limit: AppliedLimit, measure: str) -> None:
    """A message or call was refused for this limit."""
    if recipients.wants_webhooks():
        amount = getattr(limit.caps, measure) or 0
        _write(EventType.LIMIT_REACHED, limit.key, measure, amount)


def note_scarce(key: BalanceKey, measure: str, cap: int) -> None:
    """So much of a limit is used that its `warn_at`, or the limit, is reached."""
    _write(EventType.LIMIT_WARNING, key, measure, cap)


def note_budget_reached(token: AccessToken) -> None:
    """A call was refused for the token's budget."""
    if recipients.wants_webhooks():
        _write_budget(EventType.LIMIT_REACHED, token)


def warn_of_budget(token: AccessToken, spent: int) -> None:
    """Note that most of the token's budget is spent, if it is; `spent` in billionths
    of a USD."""
    budget = token.budget_nanos
    if budget and 100 * spent >= DEFAULT_WARNING * budget:
        _write_budget(EventType.LIMIT_WARNING, token)


def _write_budget(event: EventType, token: AccessToken) -> None:
    key = BalanceKey("budget", token.pk, token.period())
    _write(event, key, "cost", token.budget_nanos or 0)


def _write(event: EventType, key: BalanceKey, measure: str, amount: int) -> None:
    user_id = group_id = token_id = None
    match key.kind:
        case "user":
            user_id = key.owner_id
        case "group":
            group_id = key.owner_id
        case _:
            token_id = key.owner_id
            tokens = AccessToken.objects.filter(pk=token_id)
            user_id = tokens.values_list("user_id", flat=True).first()
    data: dict[str, Any] = {
        "object": "limit",
        "kind": key.kind,
        "period": key.period,
        "measure": measure,
        "limit": amount / NANOS_PER_DOLLAR if measure == "cost" else amount,
        "user": user_id,
        "group": group_id,
        "token": token_id,
        "model": _model_name(key.model_id),
    }
    model = "" if key.model_id is None else f":{key.model_id}"
    write_deliveries(
        event,
        data,
        user_id,
        group_id=group_id,
        once_key=f"{event}:{key.kind}:{key.owner_id}:{key.period}{model}:{measure}:{amount}",
    )


def _model_name(model_id: int | None) -> str | None:
    """None for the limit of all models together."""
    if model_id is None:
        return None
    row = LanguageModel.objects.select_related("provider").filter(pk=model_id).first()
    return row.public_name if row else None
