"""Which limits apply to a user and a token, from a cache of some seconds.

A user's own limit comes before that of a group, and a group's before everybody's, for
each measure by itself; of several groups the widest counts. What the members of a group
share, and the limit of a token, apply besides: they narrow only.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils import timezone

from conversations.access.limits.amounts import (
    Amounts,
    AppliedLimit,
    BalanceKey,
    Caps,
)
from conversations.models.limits.usage_limit import (
    DEFAULT_WARNING,
    LimitedAmounts,
    LimitPeriod,
    LimitRaise,
    UsageLimit,
    period_name,
)

#: Sums by "user" or "group", its key, the period and the key of a model, or None.
Raises = dict[tuple[str, int, str, int | None], Amounts]
SECONDS = 5.0  # until a cached look-up expires; as for tokens of the gateway
MAX_ENTRIES = 10_000  # a full cache is cleared

Applied = tuple[AppliedLimit, ...]


class _State:
    """A plain attribute, as every request to the gateway reads it."""

    exists: bool | None = None  # whether there is any limit; None: not known


state = _State()


class _Cache:
    """Limits by user and token. Thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int | None], tuple[float, Applied]] = {}
        self._lock = threading.Lock()
        self._clear_count = 0

    def get(self, user_id: int, token_id: int | None) -> Applied | None:
        """None where the database must be asked."""
        if state.exists is False:
            return ()
        entry = self._entries.get((user_id, token_id))
        return entry[1] if entry and entry[0] > time.monotonic() else None

    def load(self, user_id: int, token_id: int | None) -> Applied:
        clear_count = self._clear_count
        found = _look_up(user_id, token_id)
        until = time.monotonic() + SECONDS
        with self._lock:
            if clear_count != self._clear_count:
                return found
            if len(self._entries) >= MAX_ENTRIES:
                self._entries.clear()
            self._entries[user_id, token_id] = until, found
        return found

    def clear(self) -> None:
        with self._lock:
            self._clear_count += 1
            self._entries.clear()
            state.exists = None


_cache = _Cache()


def cached_limits(user_id: int, token_id: int | None) -> Applied | None:
    """Without a query; None where `limits_of` has to look them up."""
    return _cache.get(user_id, token_id)


def limits_of(user_id: int, token_id: int | None = None) -> Applied:
    """The limits that apply now. At most four queries every few seconds."""
    found = _cache.get(user_id, token_id)
    return _cache.load(user_id, token_id) if found is None else found


def clear_cache() -> None:
    _cache.clear()


def note_existence() -> bool:
    """Read whether there is any limit; the engine does so every few seconds."""
    state.exists = UsageLimit.objects.exists()
    return state.exists


def _look_up(user_id: int, token_id: int | None) -> Applied:
    user_groups = (
        get_user_model()
        .groups.through.objects.filter(user_id=user_id)
        .values_list("group_id", flat=True)
    )
    group_ids = list(user_groups)
    rows = UsageLimit.objects.filter(
        Q(user_id=user_id)
        | Q(group_id__in=group_ids)
        | (Q(token_id=token_id) if token_id is not None else Q(pk__in=[]))
        | Q(user=None, group=None, token=None)
    )
    by_period: dict[tuple[str, int | None], list[UsageLimit]] = defaultdict(list)
    for row in rows.select_related("model__provider"):
        by_period[row.period, row.model_id].append(row)
    raises = _raises(user_id, group_ids)
    found: list[AppliedLimit] = []
    for period in LimitPeriod.values:
        rows_of_all = by_period.pop((period, None), [])
        found += _of_period(user_id, period, None, rows_of_all, raises)
    for (period, model_id), limits in by_period.items():
        name = limits[0].model.public_name if limits[0].model else ""
        for each in _of_period(user_id, period, model_id, limits, raises):
            found.append(replace(each, model_name=name))
    return tuple(found)


def _of_period(
    user_id: int,
    period: str,
    model_id: int | None,
    rows: list[UsageLimit],
    raises: Raises,
) -> Iterable[AppliedLimit]:
    """The limits of one model, or of all together."""

    def apply(kind: str, owner_id: int, caps: Caps) -> AppliedLimit:
        more = raises.get((kind, owner_id, period, model_id))
        key = BalanceKey(kind, owner_id, period_name(period), model_id)
        return AppliedLimit(key, period, caps.raised(more) if more else caps)

    personal = _personal_caps(rows)
    if personal != Caps():
        yield apply("user", user_id, personal)
    for row in rows:
        if row.is_shared and row.group_id is not None:
            yield apply("group", row.group_id, caps_of(row))
        elif row.token_id is not None:
            yield apply("token", row.token_id, caps_of(row))


def _personal_caps(rows: list[UsageLimit]) -> Caps:
    own = [caps_of(row) for row in rows if row.user_id is not None]
    of_groups = [
        caps_of(row) for row in rows if row.group_id is not None and not row.is_shared
    ]
    default = [
        caps_of(row)
        for row in rows
        if row.user_id is None and row.group_id is None and row.token_id is None
    ]
    widest = reduce(Caps.most, of_groups, Caps())
    return (
        reduce(Caps.fallback, own, Caps())
        .fallback(widest)
        .fallback(reduce(Caps.fallback, default, Caps()))
    )


def caps_of(row: LimitedAmounts) -> Caps:
    warn_at = row.warn_at if isinstance(row, UsageLimit) else DEFAULT_WARNING
    return Caps(
        requests=row.requests,
        tokens=row.tokens,
        cost=row.cost_nanos,
        size=row.size,
        warn_at=warn_at,
    )


def _raises(user_id: int, group_ids: list[int]) -> Raises:
    now = timezone.now()
    rows = LimitRaise.objects.filter(
        Q(user_id=user_id) | Q(group_id__in=group_ids),
        created_at__lte=now,
        ends_at__gt=now,
    )
    sums: Raises = defaultdict(Amounts)
    for row in rows:
        kind = "user" if row.user_id is not None else "group"
        owner_id: Any = row.user_id if row.user_id is not None else row.group_id
        sums[kind, owner_id, row.period, row.model_id] += Amounts(
            requests=row.requests or 0,
            tokens=row.tokens or 0,
            cost=row.cost_nanos or 0,
            size=row.size or 0,
        )
    return dict(sums)


def _clear_on_change(sender: Any, **kwargs: Any) -> None:
    _cache.clear()
    # A look-up before the commit would cache the old rows.
    transaction.on_commit(_cache.clear)


for _model in (UsageLimit, LimitRaise):
    post_save.connect(_clear_on_change, sender=_model)
    post_delete.connect(_clear_on_change, sender=_model)
m2m_changed.connect(_clear_on_change, sender=get_user_model().groups.through)
