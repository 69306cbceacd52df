"""Add model calls to the sums of usage: each call once, whatever ends in between.

A row of `ModelCall` has a mark that it is counted. A step adds calls without it to
their sums and marks them, in one transaction; so a crash loses nothing and counts
nothing twice, and a row that another transaction commits late is found by the next
step, whatever its id. Rows never change in what is summed up.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from django.db import connection, models, transaction
from django.utils import timezone

from llm.models import FirstTokenCount, ModelCall, UsageSum

BATCH = 2000  # calls of a step
MAX_STEPS_ON_READING = 5
STEPS_PER_DOUBLING = 8  # of the time to the first token: each step is 9 % longer

TOKENS = (
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
)
SEARCHES = ("web_searches", "file_searches")
COUNTS = (
    "calls",
    "failed",
    *TOKENS,
    "cost",
    "saved_cost",
    "unpriced",
    "unmeasured",
    "estimated",
    "waited",
    "wait_ms",
    "from_cache",
    *SEARCHES,
)
_Level = UsageSum.Level
_KEY = (
    "day",
    "provider_name",
    "model_name",
    "model_id",
    "user_id",
    "token_id",
    "tags",
    "purpose",
    "status",
)
#: The columns that identify a row of each level.
LEVELS: Mapping[str, tuple[str, ...]] = {
    _Level.DETAIL: _KEY,
    _Level.MODEL: ("day", "provider_name", "model_name", "purpose", "status"),
    _Level.USER: ("day", "user_id"),
    _Level.TOKEN: ("day", "token_id"),
    _Level.TAG: ("day", "tags"),
    _Level.KEY: ("day", "key_id"),
}
_COLUMNS = (
    "pk",
    "created_at",
    "provider_name",
    "model_name",
    "model_id",
    "user_id",
    "token_id",
    "key_id",
    "token_label",
    "tags",
    "purpose",
    "status",
    *TOKENS,
    *SEARCHES,
    "cost",
    "saved_cost",
    "is_cached",
    "is_estimated",
    "ttft",
)
Row = dict[str, Any]


def catch_up(max_steps: int = MAX_STEPS_ON_READING) -> bool:
    """Count new calls before sums are read. False if some are left for the job."""
    return any(count_step() < BATCH for _ in range(max_steps))


def count_all() -> Iterator[Mapping[str, int]]:
    """Count all calls in steps, between which others may write. Yields no figures of
    what it has done, as the runner of jobs takes them."""
    while counted := count_step():
        yield {}
        if counted < BATCH:
            return


@transaction.atomic
def count_step() -> int:
    """Count some calls; returns how many."""
    rows = ModelCall.objects.filter(is_counted=False).order_by("pk")
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True)
    found: list[Row] = list(rows.values(*_COLUMNS)[:BATCH])
    if not found:
        return 0
    _add(UsageSum, "key", _sum_up(found), COUNTS)
    names = ("day", "provider_name", "model_name", "step")
    _add(FirstTokenCount, ", ".join(names), _count_first_tokens(found), ["calls"])
    ModelCall.objects.filter(pk__in=[row["pk"] for row in found]).update(
        is_counted=True
    )
    return len(found)


@dataclass(slots=True)
class _Sum:
    token_label: str = ""
    counts: dict[str, Any] = field(
        default_factory=lambda: {
            name: Decimal(0) if name.endswith("cost") else 0 for name in COUNTS
        }
    )

    def add(self, row: Row) -> None:
        self.token_label = row["token_label"] or self.token_label
        counts = self.counts
        counts["calls"] += 1
        for name in (*TOKENS, *SEARCHES, "cost", "saved_cost"):
            counts[name] += row[name] or 0
        has_failed = row["status"] == ModelCall.Status.FAILED
        counts["failed"] += has_failed
        # A host that refuses a call charges nothing for it.
        is_charged = row["input_tokens"] or row["output_tokens"] or not has_failed
        counts["unpriced"] += row["cost"] is None and bool(is_charged)
        # A stored answer has no tokens: no host was called.
        is_measured = row["input_tokens"] is not None or row["is_cached"]
        counts["unmeasured"] += not is_measured and not has_failed
        counts["estimated"] += row["is_estimated"]
        if row["ttft"] is not None and not row["is_cached"]:
            counts["waited"] += 1
            counts["wait_ms"] += round(row["ttft"] * 1000)
        counts["from_cache"] += row["is_cached"]


def _sum_up(rows: Iterable[Row]) -> list[Row]:
    sums: dict[tuple[Any, ...], _Sum] = defaultdict(_Sum)
    for row in rows:
        values = {**row, "day": _day(row)}
        for level, columns in LEVELS.items():
            key = (values[each] or _none_of(each) for each in columns)
            sums[(str(level), *key)].add(row)
    return [_row_of(key, each) for key, each in sums.items()]


def _none_of(column: str) -> Any:
    return 0 if column.endswith("_id") else ""


def _row_of(key: tuple[Any, ...], found: _Sum) -> Row:
    level, *values = key
    named = dict(zip(LEVELS[level], values, strict=True))
    return {
        **{name: named.get(name, _none_of(name)) for name in (*_KEY, "key_id")},
        "level": level,
        "key": _digest(key if level else key[1:]),
        "token_label": found.token_label if "token_id" in named else "",
        **found.counts,
    }


def _count_first_tokens(rows: Iterable[Row]) -> list[Row]:
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        # A stored answer says nothing of its host.
        if row["ttft"] is not None and not row["is_cached"]:
            host = (row["provider_name"], row["model_name"])
            counts[(_day(row), *host, step_of(row["ttft"]))] += 1
    names = ("day", "provider_name", "model_name", "step")
    return [
        {**dict(zip(names, key, strict=True)), "calls": calls}
        for key, calls in counts.items()
    ]


def step_of(seconds: float) -> int:
    return max(0, round(STEPS_PER_DOUBLING * math.log2(max(1.0, seconds * 1000))))


def seconds_of(step: int) -> float:
    return float(2 ** (step / STEPS_PER_DOUBLING) / 1000)


def _day(row: Row) -> date:
    return timezone.localdate(row["created_at"])


def _digest(key: tuple[Any, ...]) -> str:
    return hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()


def _add(
    model: type[models.Model], unique: str, rows: list[Row], counts: Iterable[str]
) -> None:
    """Insert the rows, or add their counts to those with the same key. Everybody locks
    them in one order."""
    if not rows:
        return
    table, names = model._meta.db_table, list(rows[0])
    added = ", ".join(f"{each} = {table}.{each} + EXCLUDED.{each}" for each in counts)
    places = ", ".join(["%s"] * len(names))
    columns = {each.column: each for each in model._meta.concrete_fields}
    keys = unique.split(", ")
    rows.sort(key=lambda row: tuple(str(row[name]) for name in keys))
    values = [
        [columns[name].get_db_prep_save(row[name], connection) for name in names]
        for row in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"
            f" ON CONFLICT ({unique}) DO UPDATE SET {added}",
            values,
        )
