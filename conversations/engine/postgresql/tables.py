"""SQL of the unlogged tables of PostgreSQL: batches of events, and rate limits.

PostgreSQL writes no log for them, so writes cost little, and empties them after a
crash. Then runs write the events of their turns again, and subscribers read the other
turns from their rows.

Source: https://www.postgresql.org/docs/15/sql-createtable.html
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

FINISHED_EXPIRY = 60  # seconds after which events of finished turns are deleted
UNFINISHED_EXPIRY = 24 * 3600  # seconds after which those of unfinished turns are

#: Write batches of events, except those of runs that have lost their claim, and
#: announce the turns. Returns the runs that have lost their claim, as "<turn> <epoch>":
#: the row of the turn has a later epoch, or none as the turn was deleted. The row was
#: committed before the later run begins, so of two runs only the later one can write.
WRITE = """
WITH batch AS (
  SELECT * FROM unnest(
    %(turns)s::text[], %(epochs)s::integer[], %(firsts)s::integer[], %(data)s::bytea[]
  ) AS batch (turn_id, epoch, first, data)
), current AS MATERIALIZED (
  SELECT id, epoch FROM conversations_turn WHERE id = ANY(%(turns)s::text[])
), written AS (
  INSERT INTO conversations_eventbatch (turn_id, epoch, first, data)
  SELECT batch.* FROM batch
  JOIN current ON current.id = batch.turn_id AND current.epoch = batch.epoch
  ON CONFLICT DO NOTHING
)
SELECT
  ARRAY(
    SELECT DISTINCT batch.turn_id || ' ' || batch.epoch FROM batch WHERE NOT EXISTS (
      SELECT FROM current
      WHERE current.id = batch.turn_id AND current.epoch = batch.epoch
    )
  ),
  (SELECT count(pg_notify(%(channel)s, payload)::text)
   FROM unnest(%(payloads)s::text[]) AS payload)
"""

#: How many batches there are of each of these runs.
COUNT = """
SELECT batch.turn_id, count(*)::integer FROM conversations_eventbatch AS batch
JOIN unnest(%(turns)s::text[], %(epochs)s::integer[]) AS run (turn_id, epoch)
ON batch.turn_id = run.turn_id AND batch.epoch = run.epoch
GROUP BY batch.turn_id
"""

#: The next batches of each turn after a position, in order.
READ = """
SELECT batch.turn_id, batch.epoch, batch.first, batch.data
FROM unnest(%(turns)s::text[], %(epochs)s::integer[], %(lasts)s::integer[])
  AS log (turn_id, epoch, last)
CROSS JOIN LATERAL (
  SELECT * FROM conversations_eventbatch AS later
  WHERE later.turn_id = log.turn_id
  AND (later.epoch, later.first) > (log.epoch, log.last)
  ORDER BY later.epoch, later.first LIMIT %(limit)s::integer
) AS batch
ORDER BY batch.turn_id, batch.epoch, batch.first
"""

DELETE = "DELETE FROM conversations_eventbatch WHERE turn_id = ANY(%(turns)s::text[])"

_DELETE_OLD = f"""
DELETE FROM conversations_eventbatch AS batch
WHERE batch.created_at < now() - interval '{UNFINISHED_EXPIRY} seconds'
OR (
  batch.created_at < now() - interval '{FINISHED_EXPIRY} seconds'
  AND NOT EXISTS (
    SELECT FROM conversations_turn AS turn WHERE turn.id = batch.turn_id
    AND (turn.finished_at IS NULL
         OR turn.finished_at > now() - interval '{FINISHED_EXPIRY} seconds')
  )
)
"""


#: A bucket is full two minutes after its last use at the latest, so a row that is three
#: minutes old says nothing.
_DELETE_FULL = """
DELETE FROM conversations_ratelimit
WHERE at < extract(epoch FROM clock_timestamp()) - 180
"""


def delete_events(turn_ids: Sequence[str]) -> None:
    """Delete the events of these turns. Synchronous."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE, {"turns": list(turn_ids)})


def delete_old() -> int:
    """Delete unused rate limits, and events of turns that are over or deleted, which a
    process that ended has left. Synchronous; returns the number of batches."""
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_FULL)
        cursor.execute(_DELETE_OLD)
        return int(cursor.rowcount)
