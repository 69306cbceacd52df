"""Admit messages and model calls under the limits of use, or say what is used up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
from django.db.models import Q, Sum
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from conversations.access.budget import nanos
from conversations.access.errors import UsageLimitReached
from conversations.access.limits import applicable, refusal_texts
from conversations.access.limits.amounts import (
    MEASURES,
    Amounts,
    AppliedLimit,
    BalanceKey,
    limits_of_all_models,
    limits_of_models,
)
from conversations.access.limits.applicable import Applied, limits_of
from conversations.access.limits.leases import (
    LimitExceeded,
    Reservation,
    amounts_taken,
    leases,
)
from conversations.access.limits.refusal_texts import describe_amount
from conversations.access.webhooks.limit_events import note_reached
from conversations.models import Attachment, Participant
from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from conversations.models.limits.usage_limit import (
    DEFAULT_WARNING,
    LimitPeriod,
    period_end,
)
from llm.generation.result import cost_of
from llm.http.client import ProviderCall
from llm.pricing.usage_estimate import billed_tokens
from llm.provider import Route
from llm.wire.deltas import UsageDelta
from llm.wire.items import Item

#: What a message must find besides its own request and bytes: one token, and a
#: billionth of a USD. Its model calls reserve what they need.
_LEAST = Amounts(tokens=1, cost=1)
_SHOWN_MEASURES = ("requests", "tokens", "cost")  # in headers


def admit_message(
    user_id: int,
    token: AccessToken | None,
    items: Sequence[Item] = (),
    files_size: int = 0,
) -> None:
    """Count one message with these items and the files that they name, or one request
    of a program. `files_size`: bytes of files that the items do not name yet.

    Call it last in the transaction that stores the message, so that none is counted
    that another check refuses. Raises UsageLimitReached.
    """
    if applicable.state.exists is False:
        return
    applied = limits_of_all_models(limits_of(user_id, token.pk if token else None))
    if not applied:
        return
    size = files_size + (len(orjson.dumps(items)) if items else 0)
    if _limits_size(applied):
        size += _size_of_files(user_id, items)
    admit_request(applied, size)


def admit_change(
    user_id: int,
    token: AccessToken | None,
    before: Sequence[Item],
    after: Sequence[Item],
) -> None:
    """Count the bytes by which a message grows that waits, and was counted before.
    Raises UsageLimitReached."""
    if applicable.state.exists is False:
        return
    applied = limits_of_all_models(limits_of(user_id, token.pk if token else None))
    if not _limits_size(applied):
        return
    old, new = (
        len(orjson.dumps(items)) + _size_of_files(user_id, items)
        for items in (before, after)
    )
    if new > old:
        grown = Amounts(size=new - old)
        leases.settle(reserve(applied, grown), grown)


def _limits_size(applied: Applied) -> bool:
    return any(each.caps.size is not None for each in applied)


def _size_of_files(user_id: int, items: Sequence[Item]) -> int:
    """Bytes of the stored files that the items name, of the user's own chats and those
    with others. Another's file counts for nothing; opening the message refuses it."""
    ids = {
        part["file_id"]
        for item in items
        for name in ("content", "output")
        if isinstance(parts := item.get(name), list)
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("file_id"), str)
    }
    if not ids:
        return 0
    shared = Participant.objects.filter(user=user_id).values("conversation")
    may_name = Q(conversation__owner=user_id) | Q(conversation__in=shared)
    rows = Attachment.objects.filter(may_name, pk__in=ids)
    return rows.aggregate(size=Sum("size"))["size"] or 0


def admit_request(applied: Applied, size: int) -> None:
    """Count one request of `size` bytes. Raises UsageLimitReached."""
    applied = limits_of_all_models(applied)
    counted = Amounts(requests=1, size=size)
    leases.settle(reserve(applied, counted + _LEAST), counted)


def reserve(
    applied: Applied, amounts: Amounts, *, notifies: bool = True
) -> Reservation:
    """`notifies`: tell webhooks of a refusal. Raises UsageLimitReached."""
    try:
        return leases.reserve(applied, amounts)
    except LimitExceeded as exc:
        needed = getattr(amounts, exc.measure)
        refusal = limit_error(exc.limit, exc.measure, needed)
        if notifies:
            note_reached(refusal, exc.limit, exc.measure)
        raise refusal from exc


def charge_call(applied: Applied, call: ProviderCall, route: Route) -> None:
    """Count a finished call whose cost could not be known before it."""
    cost, usage = cost_of(call, route), call.usage or UsageDelta()
    tokens = billed_tokens(usage)
    used = Amounts(tokens=tokens, cost=nanos(cost) if cost is not None else 0)
    leases.charge(limits_of_models(applied, route.model_id), used)


def limit_error(limit: AppliedLimit, measure: str, needed: int) -> UsageLimitReached:
    """`needed`: the amount of the measure that did not fit, in its unit in `Amounts`:
    requests, tokens, billionths of a USD, or bytes."""
    end = period_end(limit.period)
    wait = _DAY if end is None else (end - timezone.now()).total_seconds()
    taken = amounts_taken(limit.key) - leases.idle(limit.key)
    left = (getattr(limit.caps, measure) or 0) - max(0, getattr(taken, measure))
    localized = partial(_message, limit, measure, needed, left)
    with translation.override("en"):
        exc = UsageLimitReached(localized(), retry_after=wait)
    exc.localized = localized
    return exc


_DAY = 86_400.0  # seconds; a limit without a period is asked for again the next day


def _message(limit: AppliedLimit, measure: str, needed: int, left: int) -> str:
    period = str(LimitPeriod(limit.period).label)
    if limit.model_name:
        period += f" ({limit.model_name})"
    values = {
        "amount": describe_amount(measure, getattr(limit.caps, measure) or 0),
        "period": period,
        "left": describe_amount(measure, left),
        "needed": describe_amount(measure, needed),
    }
    # More than is needed may be left where another process has leased it for a moment.
    if 0 < left < needed:
        advice = refusal_texts.ADVICE.get(measure, refusal_texts.OTHER_ADVICE)
        sentences = [_(refusal_texts.SHORTAGES[limit.key.kind]) % values, _(advice)]
    else:
        sentences = [_(refusal_texts.ENDS[limit.key.kind]) % values]
    if (end := period_end(limit.period)) is not None:
        when = date_format(timezone.localtime(end), "DATETIME_FORMAT")
        sentences.append(_(refusal_texts.NEW_PERIOD) % {"when": when})
    sentences.append(_(refusal_texts.ASK))
    return " ".join(sentences)


@dataclass(frozen=True, slots=True)
class LimitLeft:
    """One measure of a limit, as people see it."""

    kind: str  # "user", "group" or "token"
    period: str
    measure: str
    limit: int
    used: int
    warn_at: int = DEFAULT_WARNING  # percent
    model_name: str = ""  # if it is the limit of one model

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def percent(self) -> int:
        """Of the limit that is used, at most 100."""
        return min(100, math.ceil(100 * self.used / self.limit)) if self.limit else 100

    @property
    def is_scarce(self) -> bool:
        """Whether people are warned."""
        return self.percent >= self.warn_at

    @property
    def period_label(self) -> str:
        return str(LimitPeriod(self.period).label)

    @property
    def kind_label(self) -> str:
        labels = {
            "user": _("your own"),
            "group": _("shared by your group"),
            "token": _("of this access token"),
        }
        return labels[self.kind]

    @property
    def words(self) -> str:
        """ "7 messages of 10 messages left a day"."""
        values = {
            "left": describe_amount(self.measure, self.left),
            "limit": describe_amount(self.measure, self.limit),
            "period": self.period_label,
        }
        words = _("%(left)s left of %(limit)s %(period)s") % values
        return f"{words} ({self.model_name})" if self.model_name else words

    @property
    def warning(self) -> str:
        """Empty as long as enough is left."""
        if not self.is_scarce:
            return ""
        if not self.left:
            return _("This limit is reached.")
        return _("%(percent)s %% of this limit are used.") % {"percent": self.percent}

    @property
    def ends_at(self) -> Any:
        return period_end(self.period)


def find_limits_left(user_id: int, token: AccessToken | None = None) -> list[LimitLeft]:
    """What is left of each limit; what processes have leased counts as used."""
    return _rows_left(
        limits_of(user_id, token.pk if token else None),
        lambda key: amounts_taken(key) - leases.idle(key),
    )


def _find_scarcest(limits: Applied) -> list[LimitLeft]:
    """For each measure and period, the limit that leaves least. The numbers may be two
    seconds old."""
    found: dict[tuple[str, str], LimitLeft] = {}
    for row in _rows_left(limits, leases.used):
        other = found.setdefault((row.measure, row.period), row)
        if row.left < other.left:
            found[row.measure, row.period] = row
    return list(found.values())


def _rows_left(
    limits: Applied, used_of: Callable[[BalanceKey], Amounts]
) -> list[LimitLeft]:
    found = []
    for applied in limits:
        taken = used_of(applied.key)
        for measure in MEASURES:
            cap = getattr(applied.caps, measure)
            if cap is not None:
                used = max(0, getattr(taken, measure))
                row = LimitLeft(
                    applied.key.kind,
                    applied.period,
                    measure,
                    cap,
                    used,
                    applied.caps.warn_at,
                    applied.model_name,
                )
                found.append(row)
    return found


def build_headers(limits: Applied) -> dict[str, str]:
    """Headers that state what the limits of use leave. They are named like those of
    rate limits, with the period at the end; costs are in USD, times in seconds."""
    headers = {}
    for row in _find_scarcest(limits):
        if row.measure not in _SHOWN_MEASURES:
            continue
        name = f"{row.measure}-{row.period}"
        unit = NANOS_PER_DOLLAR if row.measure == "cost" else 1
        headers[f"x-ratelimit-limit-{name}"] = f"{Decimal(row.limit) / unit:f}"
        headers[f"x-ratelimit-remaining-{name}"] = f"{Decimal(row.left) / unit:f}"
        if (end := row.ends_at) is not None:
            seconds = max(0.0, (end - timezone.now()).total_seconds())
            headers[f"x-ratelimit-reset-{name}"] = str(math.ceil(seconds))
    return headers
