"""The row of a provider call as statements, which another statement executes."""

from __future__ import annotations

from llm.db.statements import IS_CHANGED, CompiledInsert, Statement, adapt_value
from llm.models.api_key import KEY_USE_INTERVAL
from llm.models.model_call import ModelCall

_insert = CompiledInsert(ModelCall)
#: As `ApiKeyQuerySet.note_use`.
_NOTE_USE = f"""
UPDATE llm_apikey SET last_used_at = %s, last_error = %s
WHERE id = %s AND (last_used_at IS NULL OR last_used_at < %s OR last_error <> %s)
AND {IS_CHANGED}
"""


def model_call_statements(row: ModelCall) -> list[Statement]:
    """What `ModelCall.objects.record_row` writes of a call without a recording, for
    `execute_after`."""
    statements = [_insert.dependent_statement(row)]
    if row.key_id is not None:
        now, error = row.created_at, row.key_error
        before = adapt_value(now - KEY_USE_INTERVAL)
        values = [adapt_value(now), error, row.key_id, before, error]
        statements.append((_NOTE_USE, values))
    return statements
