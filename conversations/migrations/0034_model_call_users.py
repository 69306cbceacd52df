from __future__ import annotations

from typing import Any

from django.db import migrations

_BATCH = 20_000  # ids of a transaction
_LAST = "SELECT MAX(id) FROM llm_modelcall"
#: The author of a turn; without one its conversation's owner, unless its author is gone.
_NAME_USERS = """
UPDATE llm_modelcall SET user_id = (
    SELECT CASE WHEN t.author_id IS NULL AND t.author_name = ''
        THEN c.owner_id ELSE t.author_id END
    FROM conversations_turn t
    JOIN conversations_conversation c ON c.id = t.conversation_id
    WHERE t.id = llm_modelcall.turn_id
) WHERE id > %s AND id <= %s AND user_id IS NULL AND turn_id <> ''
"""


def name_users(apps: Any, schema_editor: Any) -> None:
    """Calls of before they named their user belong to the author of their turn."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(_LAST)
        (last,) = cursor.fetchone()
        for first in range(0, last or 0, _BATCH):
            cursor.execute(_NAME_USERS, [first, first + _BATCH])


class Migration(migrations.Migration):
    atomic = False  # each batch is a transaction of its own

    dependencies = [
        ("conversations", "0033_import_position"),
        ("llm", "0014_model_call_caller_indexes"),
    ]

    operations = [migrations.RunPython(name_users, migrations.RunPython.noop)]
