from __future__ import annotations

from typing import Any

from django.db import migrations

_TABLE = "llm_usagesum"
_COUNTS = (
    "calls, failed, input_tokens, cached_tokens, cache_write_tokens,"
    " cache_write_1h_tokens, output_tokens, reasoning_tokens, cost, saved_cost,"
    " unpriced, unmeasured, estimated, waited, wait_ms, from_cache, web_searches,"
    " file_searches"
)
_CHARTED = "level, calls, failed, input_tokens, output_tokens, cost"
#: The rows that a report of a year reads are scattered over the table: these indexes
#: have all that it sums up. SQLite has no such indexes and reads from memory.
_INDEXES = {
    "llm_usage_models": (
        "(level, day)",
        f"provider_name, model_name, purpose, status, {_COUNTS}",
        "model",
    ),
    "llm_usage_token_days": ("(token_id, day)", f"token_label, {_CHARTED}", "token"),
    "llm_usage_user_days": ("(user_id, day)", _CHARTED, "user"),
}


def add_indexes(apps: Any, editor: Any) -> None:
    """Beside others' work; a repetition after an interruption begins anew."""
    if editor.connection.vendor != "postgresql":
        return
    for name, (columns, included, level) in _INDEXES.items():
        editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        editor.execute(
            f"CREATE INDEX CONCURRENTLY {name} ON {_TABLE} {columns}"
            f" INCLUDE ({included}) WHERE level = '{level}'"
        )


def drop_indexes(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        for name in _INDEXES:
            editor.execute(f"DROP INDEX IF EXISTS {name}")


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("llm", "0036_searches_in_sums")]

    operations = [migrations.RunPython(add_indexes, drop_indexes, elidable=False)]
