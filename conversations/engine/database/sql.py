"""The turn protocol's most frequent statements, as SQL for SQLite and PostgreSQL.

Every turn executes each of them several times, and building such a query with the ORM
costs ten times the time that the database needs for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import orjson
from django.conf import settings
from django.db import connection, models
from django.utils import timezone

from conversations.engine.process.fair_turns import ClaimableTurn
from llm.db.clock import database_now
from llm.db.statements import (
    Statement,
    adapt_value,
    execute_after,
    fetch_rows,
    prepared_cursor,
)
from llm.wire.sanitize import replace_nul, sanitize_json


@dataclass(frozen=True, slots=True)
class Moment:
    """A time so many seconds from now by the database's clock, as the value of a
    `_MOMENT`.

    Leases use it because the clocks of several machines differ, and one that is ahead
    would claim what others still run. With SQLite there is one process, whose clock is
    used.
    """

    seconds: float = 0.0

    @property
    def value(self) -> Any:
        if connection.vendor == "postgresql":
            return float(self.seconds)
        return adapt_value(timezone.now() + timedelta(seconds=self.seconds))

    @property
    def expression(self) -> Any:
        """The time as an expression for Django's queries."""
        return database_now(self.seconds)


LAPSED = Moment(-1.0)  # the end of a released lease
_MOMENT = "/* by the clock of all */ %s"
_ON_POSTGRESQL = "(statement_timestamp() + make_interval(secs => %s))"

_UNFINISHED = "('queued', 'in_progress', 'waiting')"

#: The number of claims without progress after which a turn becomes a suspect: the
#: process ended that often while it ran. From then on it runs alone, as one of the
#: turns that were running has ended the process.
TRUSTED = 2
_FRUITLESS = "t.claims - t.claims_until_progress"
_SUSPECT = f"""
(NOT t.cancel_requested
 AND {_FRUITLESS} BETWEEN {TRUSTED} AND {settings.TURN_MAX_CLAIMS - 1})
"""

#: Whether a turn that `t` follows is not over. A turn that ended by itself has waited
#: for the turns before it; one that was stopped or failed may have ended before them.
_WAITS = f"""
EXISTS (
    WITH RECURSIVE line(id, parent_id, status) AS (
        SELECT p.id, p.parent_id, p.status FROM conversations_turn p
        WHERE p.id = t.parent_id
        UNION
        SELECT p.id, p.parent_id, p.status FROM line
        JOIN conversations_turn p ON p.id = line.parent_id
        WHERE line.status IN ('cancelled', 'failed')
    )
    SELECT 1 FROM line WHERE line.status IN {_UNFINISHED}
)
"""

#: Claimable turns `t`: queued ones whose ancestors are over, and running ones whose
#: lease has expired. A cancelled one waits for no other turn. Takes the current time.
#: Other branches of the conversation run side by side.
_CLAIMABLE = f"""
(t.status = 'queued'
 OR (t.status = 'in_progress' AND t.lease_until < {_MOMENT})
 OR (t.status = 'waiting' AND t.cancel_requested))
AND (t.cancel_requested OR NOT {_WAITS})
"""


def _claim(condition: str, returned: str) -> str:
    return f"""
    UPDATE conversations_turn AS t
    SET epoch = epoch + 1, claims = claims + 1, status = 'in_progress',
        last_sequence = NULL, lease_until = {_MOMENT},
        started_at = COALESCE(started_at, %s),
        deadline_at = COALESCE(deadline_at, {_MOMENT})
    WHERE t.id = %s AND {condition}
    RETURNING {returned}
    """


def _claim_and_read(condition: str) -> str:
    """Before a query for turns: lets it read the claimed turn alone, in the same
    statement. A part of WITH hides the table of its name, but not from itself."""
    return f'WITH "conversations_turn" AS ({_claim(condition, "t.*")})'


#: A turn that runs alone may be a suspect.
_TRUSTED = f"{_CLAIMABLE} AND NOT {_SUSPECT}"
CLAIMED_COLUMNS = (
    *("conversation_id", "epoch", "claims", "claims_until_progress"),
    *("seconds_left", "deadline_at"),
)
_COLUMNS = f"{', '.join(CLAIMED_COLUMNS)}, {_MOMENT}"
CLAIM_ALONE, CLAIM = _claim(_CLAIMABLE, _COLUMNS), _claim(_TRUSTED, _COLUMNS)
#: For PostgreSQL: SQLite has no `UPDATE` within `WITH`.
CLAIM_ALONE_AND_READ = _claim_and_read(_CLAIMABLE)
CLAIM_AND_READ = _claim_and_read(_TRUSTED)


#: Seconds of waiting that count as much as a place: without it a turn whose author has
#: others would wait for ever while turns of new authors come.
_STEP = 30
_AGE = {
    "postgresql": "EXTRACT(EPOCH FROM statement_timestamp() - u.created_at)",
    "sqlite": "(julianday('now') - julianday(u.created_at)) * 86400",
}
#: Unfinished turns by their rank: the place among those of their author that are queued
#: or run, less one for each step of waiting. One that waits for a person is here to be
#: cancelled, and has the place 0.
_RANKED = f"""
SELECT u.id, u.parent_id, u.status, u.lease_until, u.cancel_requested, u.claims,
    u.claims_until_progress, u.created_at, COALESCE(u.author_id, c.owner_id) AS author,
    CASE WHEN u.status = 'waiting' THEN 0 ELSE row_number() OVER (
        PARTITION BY u.status = 'waiting', COALESCE(u.author_id, c.owner_id)
        ORDER BY u.created_at, u.id
    ) END - CAST({{age}} / {_STEP} AS INTEGER) AS rank
FROM conversations_turn u JOIN conversations_conversation c ON c.id = u.conversation_id
WHERE u.status IN {_UNFINISHED} AND (u.status <> 'waiting' OR u.cancel_requested)
ORDER BY rank, u.created_at, u.id
"""
#: Sorted first, so that of thousands of waiting turns only the first are examined, each
#: by a query of its own.
_TO_SWEEP = f"""
SELECT t.id, t.author, t.rank FROM ({_RANKED}) AS t {{locked}}
WHERE {_CLAIMABLE} AND NOT {_SUSPECT}
ORDER BY t.rank, t.created_at, t.id LIMIT %s
"""
_LOCKED = "JOIN conversations_turn locked ON locked.id = t.id"
#: Turns with fewer dead processes first: most of them were only running beside the
#: cause.
_SUSPECTS = f"""
SELECT t.id, {_FRUITLESS} > {TRUSTED} FROM conversations_turn t
WHERE t.status IN {_UNFINISHED} AND {_CLAIMABLE} AND {_SUSPECT}
ORDER BY {_FRUITLESS}, t.created_at, t.id LIMIT %s
"""


def to_sweep(limit: int) -> list[ClaimableTurn]:
    """Skips turns whose row is locked: a claim would wait for it."""
    lock = _skip_locked("locked")
    query = _TO_SWEEP.format(
        age=_AGE[connection.vendor], locked=_LOCKED if lock else ""
    )
    found = rows(f"{query} {lock}", [Moment(), limit])
    return [ClaimableTurn._make(row) for row in found]


def suspects(limit: int) -> list[tuple[str, bool]]:
    """Turns that must run alone, and whether they have ended a process again since they
    became suspects."""
    found = rows(f"{_SUSPECTS} {_skip_locked()}", [Moment(), limit])
    return [(turn_id, bool(again)) for turn_id, again in found]


def _skip_locked(table: str = "t") -> str:
    is_postgres = connection.vendor == "postgresql"
    return f"FOR NO KEY UPDATE OF {table} SKIP LOCKED" if is_postgres else ""


#: Results of background calls that were not delivered to the model.
_UNDELIVERED = """
FROM conversations_toolcall c JOIN conversations_turn t ON t.id = c.turn_id
WHERE t.conversation_id = %s AND NOT c.blocking AND c.delivered_in_id IS NULL
AND c.state IN ('completed', 'failed', 'timed_out', 'cancelled', 'unknown', 'abandoned')
"""

#: Whether a turn of the conversation has anything to deliver to its model beside its
#: own question: such results, or messages that steer it; whether approvals cover
#: further calls of a tool; and whether people wrote in it to whom it does not belong.
#: Takes the conversation twice, then for each of the other two whether it matters, and
#: the conversation.
TURN_EXTRAS = f"""
SELECT EXISTS (SELECT 1 {_UNDELIVERED}) OR EXISTS (
    SELECT 1 FROM conversations_turn s
    WHERE s.conversation_id = %s AND s.status IN {_UNFINISHED} AND s.steering <> ''
), %s AND EXISTS (
    SELECT 1 FROM conversations_turn t
    JOIN conversations_toolcall c ON c.turn_id = t.id
    JOIN conversations_question q ON q.tool_call_id = c.id
    WHERE t.conversation_id = %s AND q.kind = 'approval' AND q.state = 'accepted'
    AND q.revoked_at IS NULL
), %s AND EXISTS (
    SELECT 1 FROM conversations_turn o WHERE o.conversation_id = %s
    AND (o.author_id IS NOT NULL OR o.author_name <> '')
)
"""
HAS_WAKING_RESULTS = f"""
SELECT 1 {_UNDELIVERED} AND c.state NOT IN ('cancelled', 'abandoned') LIMIT 1
"""
#: What follows a turn of the conversation: its claimable turns, and a row without an id
#: if there are results that wake the model. Not in order: with ORDER BY SQLite would
#: read all turns of the conversation. Takes the conversation, the current time, and the
#: conversation again.
NEXT_IN = f"""
SELECT t.id, t.created_at FROM conversations_turn t
WHERE t.conversation_id = %s AND t.status IN {_UNFINISHED}
AND {_CLAIMABLE} AND NOT {_SUSPECT}
UNION ALL SELECT NULL, NULL WHERE EXISTS ({HAS_WAKING_RESULTS})
"""


#: A turn and its epoch; if there is a new snapshot, its items as JSON and its last
#: sequence number; if the turn has progressed, its number of claims; as JSON, the
#: response that its provider continues in the background.
Beat = tuple[str, int, str | None, int | None, int | None, str | None]
#: Columns of a turn that hold JSON.
_JSON = frozenset({"partial", "provider_response", "usage", "error"})
_JSON_FIELD = models.JSONField()


def update_running(
    turn_id: str,
    epoch: int,
    changed: Mapping[str, Any],
    dependent: Sequence[Statement] = (),
) -> bool | None:
    """Write columns of a turn if it is running in this epoch, and then execute the
    `dependent` statements (`execute_after`) with it.

    Returns whether it is to be stopped; None if another run has claimed it.
    """
    columns = ", ".join(
        f"{name} = {_MOMENT if isinstance(value, Moment) else '%s'}"
        for name, value in changed.items()
    )
    update = (
        f"UPDATE conversations_turn SET {columns}"
        " WHERE id = %s AND epoch = %s AND status = 'in_progress'"
        " RETURNING cancel_requested"
    )
    values = [_column(name, changed[name]) for name in changed]
    found = rows(update, [*values, turn_id, epoch], dependent)
    return bool(found[0][0]) if found else None


class Renewal(NamedTuple):
    """A turn that its run has to hear about after `renew`."""

    turn_id: str
    is_ours: bool  # False if another run has claimed the turn
    is_stopped: bool  # the turn is to be stopped
    is_skipped: bool  # its snapshot was not stored


def renew(lease_until: Moment, beats: Sequence[Beat]) -> list[Renewal]:
    """Renew the leases of the turns that still run in the given epoch, and store their
    snapshots.

    Returns only the turns with news. Executes two statements for any number of turns: a
    thread gives up the interpreter at each statement and at each row that it reads.

    A turn whose row is locked is skipped: nearly always its own run is writing it, and
    the other turns must not wait for that. A snapshot that ends before the last stored
    event is older than the row, and is not stored.
    """
    if not beats:
        return []
    is_postgres = connection.vendor == "postgresql"
    table = _BEATS[connection.vendor]
    values: list[Any] = [lease_until.value]
    if is_postgres:
        values += map(list, zip(*beats, strict=True))
        values.append([turn_id for turn_id, *_ in beats])
    else:
        values.append(orjson.dumps(beats).decode())
    _execute(
        _with_clock(f"""
        UPDATE conversations_turn AS t
        SET lease_until = {_MOMENT},
            partial = CASE WHEN {_NEWER} THEN v.partial ELSE t.partial END,
            last_sequence = CASE WHEN {_NEWER} THEN v.sequence ELSE t.last_sequence END,
            claims_until_progress = COALESCE(v.claims, t.claims_until_progress),
            provider_response = COALESCE(v.response, t.provider_response)
        FROM {table} WHERE t.id = v.turn AND {_RUN} {_FREE if is_postgres else ""}
        """),
        values,
    )
    # The snapshots, which may be long, are not sent a second time.
    return _find_news([(*beat[:2], None, beat[3], None, None) for beat in beats])


def _find_news(beats: Sequence[Beat]) -> list[Renewal]:
    table = _BEATS[connection.vendor]
    values: Sequence[Any] = [orjson.dumps(beats).decode()]
    if connection.vendor == "postgresql":
        values = list(map(list, zip(*beats, strict=True)))
    found = fetch_rows(
        f"""
        SELECT v.turn, t.id IS NOT NULL, COALESCE(t.cancel_requested, FALSE),
            t.id IS NOT NULL AND COALESCE({_NEWER}, FALSE)
        FROM {table} LEFT JOIN conversations_turn t ON t.id = v.turn AND {_RUN}
        WHERE t.id IS NULL OR t.cancel_requested OR {_NEWER}
        """,
        values,
    )
    return [Renewal(turn_id, *map(bool, flags)) for turn_id, *flags in found]


#: Beats as a table `v`. Their number is not in the text of the statement: sqlite3 and
#: psycopg store prepared statements by their text, and each with a row for every beat
#: would take more memory than all the turns.
_BEATS = {
    "sqlite": """
    (SELECT json_extract(value, '$[0]') AS turn, json_extract(value, '$[1]') AS epoch,
        json_extract(value, '$[2]') AS partial,
        json_extract(value, '$[3]') AS sequence,
        json_extract(value, '$[4]') AS claims, json_extract(value, '$[5]') AS response
    FROM json_each(%s)) AS v""",
    "postgresql": """
    unnest(%s::text[], %s::integer[], %s::jsonb[], %s::integer[], %s::integer[],
        %s::jsonb[]) AS v(turn, epoch, partial, sequence, claims, response)""",
}
_NEWER = "v.sequence > COALESCE(t.last_sequence, -1)"
#: The array is computed once. For `t.id IN (SELECT …)` PostgreSQL, which expects few
#: rows, searches the selected ones anew for each turn: seconds for five hundred turns.
_FREE = """
AND t.id = ANY(ARRAY(SELECT f.id FROM conversations_turn f WHERE f.id = ANY(%s::text[])
    FOR NO KEY UPDATE SKIP LOCKED))
"""
_RUN = "t.epoch = v.epoch AND t.status = 'in_progress'"


def to_json(value: Any) -> str:
    """JSON that PostgreSQL accepts: one rejected beat would fail all of them."""
    try:
        return replace_nul(orjson.dumps(value)).decode()
    except orjson.JSONEncodeError:  # an unpaired surrogate, or too large a number
        return json.dumps(sanitize_json(value))


def _column(name: str, value: Any) -> Any:
    if name in _JSON and value is not None:
        return _JSON_FIELD.get_db_prep_value(value, connection)
    return value


def first(sql: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row; None if there is none."""
    found = rows(sql, values)
    return found[0] if found else None


def rows(
    sql: str, values: Sequence[Any], dependent: Sequence[Statement] = ()
) -> list[tuple[Any, ...]]:
    """JSON is returned as text by both databases. `dependent`: as `execute_after` has
    it."""
    adapted = [
        value.value if isinstance(value, Moment) else adapt_value(value)
        for value in values
    ]
    if dependent:
        return execute_after((_with_clock(sql), adapted), dependent)
    return fetch_rows(_with_clock(sql), adapted)


def _execute(sql: str, values: Sequence[Any]) -> None:
    with prepared_cursor() as cursor:
        cursor.execute(sql, values)


def _with_clock(sql: str) -> str:
    on_postgresql = connection.vendor == "postgresql"
    return sql.replace(_MOMENT, _ON_POSTGRESQL) if on_postgresql else sql


def column(sql: str, values: Sequence[Any]) -> list[Any]:
    """The first column of all rows."""
    return [row[0] for row in rows(sql, values)]
