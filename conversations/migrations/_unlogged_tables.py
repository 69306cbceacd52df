"""Create and drop the tables with which PostgreSQL does what Redis does elsewhere."""

from __future__ import annotations

from typing import Any

_EVENT_BATCHES = (
    """
CREATE UNLOGGED TABLE conversations_eventbatch (
  turn_id varchar(64) NOT NULL,
  epoch integer NOT NULL,
  first integer NOT NULL,
  data bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  PRIMARY KEY (turn_id, epoch, first)
)
""",
    # Compression would cost more than it saves: rows last for a minute.
    "ALTER TABLE conversations_eventbatch ALTER COLUMN data SET STORAGE EXTERNAL",
)
_RATE_LIMITS = (
    # Room on each page, so that a new version of a row needs no new entry of the index.
    """
CREATE UNLOGGED TABLE conversations_ratelimit (
  key text PRIMARY KEY,
  level double precision NOT NULL,
  at double precision NOT NULL
) WITH (fillfactor = 50)
""",
    # `Buckets.take` with PostgreSQL's own clock. Returns whether the charges were made,
    # and the levels.
    """
CREATE FUNCTION conversations_take_charges(
  keys text[], limits double precision[], amounts double precision[],
  taken boolean[], unconditional boolean[]
) RETURNS TABLE (is_allowed boolean, levels double precision[])
LANGUAGE plpgsql AS $$
DECLARE
  moment double precision;
  bucket conversations_ratelimit;
BEGIN
  is_allowed := true;
  levels := '{}';
  INSERT INTO conversations_ratelimit (key, level, at)
    SELECT new.key, new.level, 0 FROM unnest(keys, limits) AS new (key, level)
    ORDER BY new.key ON CONFLICT DO NOTHING;
  PERFORM FROM conversations_ratelimit AS locked WHERE locked.key = ANY(keys)
    ORDER BY locked.key FOR UPDATE;
  moment := extract(epoch FROM clock_timestamp());
  FOR i IN 1 .. cardinality(keys) LOOP
    SELECT * INTO bucket FROM conversations_ratelimit AS known
      WHERE known.key = keys[i];
    levels[i] := least(
      limits[i], bucket.level + greatest(0, moment - bucket.at) * limits[i] / 60
    );
    IF NOT unconditional[i] AND amounts[i] > 0
        AND levels[i] + 0.000001 < least(amounts[i], limits[i]) THEN
      is_allowed := false;
    END IF;
  END LOOP;
  FOR i IN 1 .. cardinality(keys) LOOP
    IF is_allowed AND taken[i] THEN
      levels[i] := greatest(-limits[i], least(limits[i], levels[i] - amounts[i]));
    END IF;
    UPDATE conversations_ratelimit AS known SET level = levels[i], at = moment
      WHERE known.key = keys[i];
  END LOOP;
  RETURN NEXT;
END
$$
""",
)


def create(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        for statement in (*_EVENT_BATCHES, *_RATE_LIMITS):
            editor.execute(statement)


def drop(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("DROP FUNCTION conversations_take_charges")
        editor.execute("DROP TABLE conversations_ratelimit")
        editor.execute("DROP TABLE conversations_eventbatch")
