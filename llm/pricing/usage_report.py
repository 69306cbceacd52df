"""What models were used for and what that cost: sums by day, model, user and so on.

Read from `UsageSum`, so that it takes no longer with a million calls. A user in two
groups, and a call with two tags, count for both: these sums may exceed the total.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import add, attrgetter
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Max, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext as _

from llm.models import ApiKey, UsageSum
from llm.pricing.first_token_times import (
    UNKNOWN_WAITS,
    Waits,
    count_first_tokens,
    merge_counts,
    waits_of,
)
from llm.pricing.usage_counting import COUNTS, catch_up
from llm.pricing.usage_months import MONTHS_OF, complete_months, days_beside

MAX_DAYS = 366
UNKNOWN_KEY = -1  # in place of an id
MAX_SERIES = 6  # groups that a chart shows by colour
GROUPINGS = (
    "model",
    "provider",
    "user",
    "group",
    "token",
    "key",
    "tag",
    "purpose",
    "status",
    "day",
)
_Level = UsageSum.Level
_LEVELS: Mapping[str, UsageSum.Level] = {
    "user": _Level.USER,
    "group": _Level.USER,
    "token": _Level.TOKEN,
    "tag": _Level.TAG,
    "key": _Level.KEY,
}
_COLUMNS: Mapping[str, Sequence[str]] = {
    "model": ("provider_name", "model_name"),
    "provider": ("provider_name",),
    "user": ("user_id",),
    "group": ("user_id",),
    "token": ("token_id",),
    "key": ("key_id",),
    "tag": ("tags",),
    "purpose": ("purpose",),
    "status": ("status",),
    "day": ("day",),
}


@dataclass(frozen=True, slots=True)
class Usage:
    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0  # those of them that stay for an hour
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: Decimal = Decimal(0)  # USD, of the calls whose price is known
    saved_cost: Decimal = Decimal(0)  # USD, by answers from the cache
    unpriced: int = 0  # calls whose cost is unknown
    unmeasured: int = 0  # calls whose tokens are unknown
    estimated: int = 0  # calls whose tokens are estimated
    waited: int = 0  # calls whose time to the first token is known
    wait_ms: int = 0  # the sum of these times
    from_cache: int = 0  # calls that a stored answer made unnecessary
    web_searches: int = 0  # of hosts, which bill each
    file_searches: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _all_counts(self), _all_counts(other)))

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Usage.__slots__}

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def is_exact(self) -> bool:
        """Whether each call's tokens and cost are known."""
        return not (self.unpriced or self.unmeasured or self.estimated)

    @property
    def mean_wait(self) -> float | None:
        """Seconds to the first token."""
        return self.wait_ms / self.waited / 1000 if self.waited else None

    @property
    def cache_rate(self) -> float | None:
        """The share of the input that hosts read from their caches."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def error_rate(self) -> float | None:
        return self.failed / self.calls if self.calls else None


_all_counts = attrgetter(*Usage.__slots__)


@dataclass(frozen=True, slots=True)
class UsageGroup:
    name: str
    usage: Usage
    waits: Waits = UNKNOWN_WAITS
    #: Lookups that find its rows of `ModelCall`; None where none do.
    lookups: Mapping[str, Any] | None = None
    #: The column values of its rows of `UsageSum`. Empty where a call counts for
    #: several groups.
    keys: Sequence[tuple[Any, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which calls to sum up, and by what."""

    first: date
    last: date
    grouping: str = "model"
    user_id: int | None = None  # None: everybody's

    @classmethod
    def of_last(cls, days: int, **fields: Any) -> UsageQuery:
        today = timezone.localdate()
        return cls(first=today - timedelta(days=days - 1), last=today, **fields)

    @property
    def days(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=number) for number in range(count)]

    def sums(self, level: UsageSum.Level) -> QuerySet[UsageSum]:
        """The sums of the level; of one user those of each call's details."""
        if self.user_id is None:
            return self._period().filter(level=level)
        return self.sums_of_users([self.user_id], _Level.DETAIL)

    def sums_of_users(
        self, ids: Sequence[int], level: UsageSum.Level
    ) -> QuerySet[UsageSum]:
        """SQLite would read all rows of a level that is filtered by, and not use the
        index on users; so the other levels are excluded. PostgreSQL uses the index of
        a level's users only where the level is filtered by."""
        rows = self._period().filter(user_id__in=ids)
        if connection.vendor == "postgresql":
            return rows.filter(level=level)
        others = [each for each in _Level.values if each != level]
        return rows.exclude(level__in=others)

    def _period(self) -> QuerySet[UsageSum]:
        return UsageSum.objects.filter(day__range=(self.first, self.last))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    query: UsageQuery
    total: Usage
    waits: Waits
    by_day: list[tuple[date, Usage]]  # every day, the oldest first
    groups: list[UsageGroup]  # the dearest first
    is_complete: bool = True  # False while calls wait to be counted


def report_usage(query: UsageQuery) -> UsageReport:
    """A few queries over sums, whatever the number of calls."""
    is_complete = catch_up()
    days = _grouped(query, ("day",), _Level.MODEL)
    by_day = {row["day"]: _usage(row) for row in days}
    waits = (
        {}
        if query.user_id is not None
        else count_first_tokens(query.first, query.last, query.grouping)
    )
    columns = _COLUMNS[query.grouping]
    rows = _rows_of_groups(query, columns, by_day)
    keyed = [(tuple(row[each] for each in columns), row) for row in rows]
    names = {} if query.grouping in _GROUPED else _names(keyed, query.grouping)
    found = _GROUPED.get(query.grouping, _by_name)(keyed, names)
    lookups, keys = _lookups(query, keyed, names), _keys_by_name(names)
    groups = [
        UsageGroup(
            name,
            usage,
            waits_of(waits.get(name, {})),
            lookups.get(name),
            keys.get(name, ()),
        )
        for name, usage in found.items()
    ]
    groups.sort(key=lambda each: (-each.usage.cost, -each.usage.tokens, each.name))
    if query.grouping == "day":
        groups.sort(key=lambda each: each.name, reverse=True)
    return UsageReport(
        query=query,
        total=sum(by_day.values(), Usage()),
        waits=waits_of(merge_counts(waits.values())),
        by_day=[(day, by_day.get(day, Usage())) for day in query.days],
        groups=groups,
        is_complete=is_complete,
    )


def _grouped(
    query: UsageQuery, columns: Sequence[str], level: UsageSum.Level | None = None
) -> Any:
    level = level or _LEVELS.get(query.grouping, _Level.MODEL)
    return _sum_by(query.sums(level), columns)


def _rows_of_groups(
    query: UsageQuery, columns: Sequence[str], by_day: Mapping[date, Usage]
) -> list[Mapping[str, Any]]:
    """Sums by group, of everybody's whole months where there are any. A group may have
    several rows."""
    level = _LEVELS.get(query.grouping, _Level.MODEL)
    calls = {day: by_day[day].calls if day in by_day else 0 for day in query.days}
    months = complete_months(level, calls) if query.user_id is None else []
    if not months:
        found = list(_grouped(query, columns))
        if query.grouping == "key":
            found += _of_unknown_keys(found, by_day)
        return found
    whole = UsageSum.objects.filter(level=MONTHS_OF[level][0], day__in=months)
    rows = list(_sum_by(whole, columns))
    for first, last in days_beside(query.first, query.last, months):
        days = UsageSum.objects.filter(level=level, day__range=(first, last))
        rows += _sum_by(days, columns)
    return rows


def _of_unknown_keys(
    found: Iterable[Mapping[str, Any]], by_day: Mapping[date, Usage]
) -> Iterator[Mapping[str, Any]]:
    """The rest: calls that were counted when sums had no keys. It is negative if calls
    were counted after `by_day` was read."""
    known = sum(map(_usage, found), Usage()).as_dict()
    total = sum(by_day.values(), Usage()).as_dict()
    rest = {f"sum_{name}": total[name] - known[name] for name in COUNTS}
    if rest["sum_calls"] > 0:
        yield {"key_id": UNKNOWN_KEY, **rest}


def _sum_by(
    rows: QuerySet[UsageSum], columns: Sequence[str], counts: Iterable[str] = COUNTS
) -> Any:
    sums: dict[str, Any] = {f"sum_{name}": Sum(name) for name in counts}
    if "token_id" in columns:
        sums["label"] = Max("token_label")
    return rows.order_by().values(*columns).annotate(**sums)


def _usage(row: Mapping[str, Any], names: Iterable[str] = COUNTS) -> Usage:
    counts: dict[str, Any] = {name: row[f"sum_{name}"] or 0 for name in names}
    for name in _MONEY & counts.keys():
        counts[name] = Decimal(counts[name])
    return Usage(**counts)


# Names of groups

_MONEY = {"cost", "saved_cost"}
_Key = tuple[Any, ...]
_Keyed = Sequence[tuple[_Key, Mapping[str, Any]]]
_Names = Mapping[_Key, str]


def _by_name(keyed: _Keyed, names: _Names) -> dict[str, Usage]:
    found: dict[str, Usage] = defaultdict(Usage)
    for key, row in keyed:
        found[names[key]] += _usage(row)
    return found


def _keys_by_name(names: _Names) -> dict[str, list[_Key]]:
    found: dict[str, list[_Key]] = defaultdict(list)
    for key, name in names.items():
        found[name].append(key)
    return found


def _names(keyed: _Keyed, grouping: str) -> _Names:
    if grouping == "user":
        known = _user_names(key[0] for key, _row in keyed)
        return {key: _user_name(key[0], known) for key, _row in keyed}
    if grouping == "token":
        return {key: _token_name(key[0], row["label"]) for key, row in keyed}
    if grouping == "key":
        return _key_names([key for key, _row in keyed])
    return {key: "/".join(map(str, key)) for key, _row in keyed}


def _user_names(ids: Iterable[int]) -> dict[int, str]:
    users = get_user_model()._default_manager.filter(pk__in=list(ids))
    return {user.pk: user.get_username() for user in users}


def _user_name(pk: int, known: Mapping[int, str]) -> str:
    if not pk:
        return _("nobody")
    return known.get(pk) or _("deleted user %(id)s") % {"id": pk}


def _token_name(pk: int, label: str) -> str:
    return f"{label} (#{pk})" if pk else _("without a token")


def _key_names(keys: Sequence[_Key]) -> _Names:
    """With their providers; the label of a person's own key is no concern of staff."""
    rows = ApiKey.every.select_related("provider").filter(pk__in=[k[0] for k in keys])
    known = {row.pk: row for row in rows}
    return {key: _key_name(key[0], known.get(key[0])) for key in keys}


def _key_name(pk: int, row: ApiKey | None) -> str:
    if pk == UNKNOWN_KEY:
        return _("key not recorded")
    if not pk:
        return _("without a key")
    if row is None:
        return _("deleted key %(id)s") % {"id": pk}
    if row.owner_id is not None:
        return f"{row.provider.name}: " + _("a person's own key (#%(id)s)") % {"id": pk}
    return f"{row.provider.name}: {row.label} (#{pk})"


def _by_group(keyed: _Keyed, names: _Names) -> dict[str, Usage]:
    """By the groups that users are in today."""
    memberships: dict[int, list[str]] = defaultdict(list)
    users = get_user_model()._default_manager.filter(pk__in=[k[0] for k, _r in keyed])
    for pk, name in users.values_list("pk", "groups__name"):
        memberships[pk].append(name or "")
    found: dict[str, Usage] = defaultdict(Usage)
    for key, row in keyed:
        for name in memberships[key[0]] or [""]:
            found[name or _("in no group")] += _usage(row)
    return found


def _by_tag(keyed: _Keyed, names: _Names) -> dict[str, Usage]:
    found: dict[str, Usage] = defaultdict(Usage)
    for key, row in keyed:
        for tag in key[0].split(","):
            found[tag or _("without a tag")] += _usage(row)
    return found


_GROUPED: Mapping[str, Callable[[_Keyed, _Names], dict[str, Usage]]] = {
    "group": _by_group,
    "tag": _by_tag,
}


def sum_first_groups(
    report: UsageReport, counts: Sequence[str]
) -> dict[str, dict[date, Usage]]:
    """Usage by day of the dearest groups, in these counts alone, for a chart. None
    where a call counts for several groups, or groups are days."""
    query, groups = report.query, report.groups[:MAX_SERIES]
    names = {key: group.name for group in groups for key in group.keys}
    if not names or query.grouping == "day":
        return {}
    columns, wanted = _COLUMNS[query.grouping], list(names)
    if query.grouping == "user" and query.user_id is None:
        rows = query.sums_of_users([key[0] for key in wanted], _Level.USER)
    else:
        level = _LEVELS.get(query.grouping, _Level.MODEL)
        rows = query.sums(level).filter(_any_of(columns, wanted))
    found: dict[str, dict[date, Usage]] = {group.name: {} for group in groups}
    for row in _sum_by(rows, ("day", *columns), counts):
        of_name = found[names[tuple(row[each] for each in columns)]]
        day, usage = row["day"], _usage(row, counts)
        of_name[day] = of_name[day] + usage if day in of_name else usage
    return found


def _any_of(columns: Sequence[str], keys: Sequence[_Key]) -> Q:
    if len(columns) == 1:
        return Q(**{f"{columns[0]}__in": [key[0] for key in keys]})
    wanted = Q(pk=None)
    for key in keys:
        wanted |= Q(**dict(zip(columns, key, strict=True)))
    return wanted


# Rows of groups


def _lookups(
    query: UsageQuery, keyed: _Keyed, names: _Names
) -> dict[str, Mapping[str, Any]]:
    """By name; the day's own bounds replace those of the period."""
    if query.grouping == "group":  # the users of one are known by today's rows only
        return {}
    period = {**created_between(query.first, query.last)}
    if query.user_id is not None:
        period["user"] = query.user_id
    if query.grouping == "tag":
        tags = {tag for key, _row in keyed for tag in key[0].split(",")}
        return {tag or _("without a tag"): period | _of_tag(tag) for tag in tags}
    columns = _COLUMNS[query.grouping]
    return {
        name: period | _of_key(dict(zip(columns, key, strict=True)))
        for key, name in names.items()
        if key != (UNKNOWN_KEY,)
    }


def created_between(first: date, last: date) -> dict[str, Any]:
    """Lookups of the calls of these days, in the server's time zone."""
    zone = timezone.get_default_timezone()
    begin = datetime.combine(first, time.min, zone)
    end = datetime.combine(last + timedelta(days=1), time.min, zone)
    return {"created_at__gte": begin.isoformat(), "created_at__lt": end.isoformat()}


def _of_tag(tag: str) -> dict[str, Any]:
    return {"tags__regex": rf"(^|,){re.escape(tag)}(,|$)"} if tag else {"tags": ""}


def _of_key(key: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in key.items():
        # A model call has a column `token_id`, and foreign keys for the others.
        column = name if name == "token_id" else name.removesuffix("_id")
        if name == "day":
            found |= created_between(value, value)
        elif not name.endswith("_id"):
            found[name] = value
        elif value:
            found[column] = value
        else:
            found[f"{column}__isnull"] = True
    return found
