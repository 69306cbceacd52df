"""What benchmarks need to know of the database in use: its dialect, and which clock
shows its work."""

from __future__ import annotations

import time

from django.db import connection


def is_postgresql() -> bool:
    return connection.vendor == "postgresql"


def read_clock() -> float:
    """Seconds of CPU, which other processes do not disturb; of the clock over
    PostgreSQL, which works in another process."""
    return time.perf_counter() if is_postgresql() else time.process_time()


def numbers(last: int) -> str:
    """A table `n` of a column `i`, for `WITH RECURSIVE`."""
    return (
        "n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL"
        f" SELECT i + 1 FROM n WHERE i < {last})"
    )


def time_before_now(seconds: str) -> str:
    """The time so many seconds ago; `seconds` is SQL of a number."""
    if is_postgresql():
        return f"(now() - ({seconds}) * interval '1 second')"
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now', (-({seconds})) || ' seconds')"


def random_uuid() -> str:
    return "gen_random_uuid()" if is_postgresql() else "lower(hex(randomblob(16)))"


def with_id(column: str, value: str) -> str:
    """The JSON of the column with another `id`; `value` is SQL of a text."""
    if is_postgresql():
        return f"jsonb_set({column}, '{{id}}', to_jsonb({value}))"
    return f"json_set({column}, '$.id', {value})"
