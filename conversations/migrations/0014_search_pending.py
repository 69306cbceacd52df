from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0013_search_index")]

    operations = [
        AddIndexBeside(
            "turn",
            models.Index(
                condition=models.Q(is_indexed=False),
                fields=["created_at"],
                name="conversations_turn_unindexed",
            ),
        ),
        AddIndexBeside(
            "conversation",
            models.Index(
                condition=models.Q(indexed_title=None)
                | ~models.Q(title=models.F("indexed_title")),
                fields=["owner"],
                name="conversations_title_unindexed",
            ),
        ),
    ]
