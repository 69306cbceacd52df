"""Events of limits of use and budgets: most of one is used, or all of it.

Each endpoint gets one event for a limit in a period, and another if its amount changes.
A refusal rolls its transaction back, so its event is written behind that: the error
carries it out of the transaction to a function with `notes_refusals`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from django.db import connection

from conversations.access.errors import BudgetExhausted, UsageLimitReached
from conversations.access.limits.amounts import AppliedLimit, BalanceKey
from conversations.access.webhooks import recipients
from conversations.access.webhooks.outbox import write_deliveries
from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from conversations.models.limits.usage_limit import DEFAULT_WARNING
from conversations.models.webhooks.endpoint import EventType
from llm.models import LanguageModel

Refusal: TypeAlias = BudgetExhausted | UsageLimitReached
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def notes_refusals(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """For a function that opens a transaction in which a limit may refuse."""

    @wraps(function)
    def noting(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (BudgetExhausted, UsageLimitReached) as exc:
            write_note(exc)
            raise

    return noting


def note_reached(refusal: UsageLimitReached, limit: AppliedLimit, measure: str) -> None:
    """A message or call is refused for this limit."""
    if recipients.wants_webhooks():
        amount = getattr(limit.caps, measure) or 0
        event = EventType.LIMIT_REACHED
        refusal.note = partial(_write, event, limit.key, measure, amount)
        write_note(refusal)


def note_scarce(key: BalanceKey, measure: str, cap: int) -> None:
    """So much of a limit is used that its `warn_at`, or the limit, is reached."""
    _write(EventType.LIMIT_WARNING, key, measure, cap)


def note_budget_reached(refusal: BudgetExhausted, token: AccessToken) -> None:
    """A call is refused for the token's budget."""
    if recipients.wants_webhooks():
        refusal.note = partial(_write_budget, EventType.LIMIT_REACHED, token)
        write_note(refusal)


def write_note(refusal: Refusal) -> None:
    """Write the event of a refusal; in a transaction it stays with the error."""
    if refusal.note is not None and not connection.in_atomic_block:
        note, refusal.note = refusal.note, None
        note()


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
