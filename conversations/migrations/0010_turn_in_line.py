from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0009_conversation_rewritten")]

    operations = [
        AddIndexBeside(
            "turn",
            models.Index(
                fields=["conversation"],
                condition=models.Q(status__in=["queued", "in_progress", "waiting"]),
                name="conversations_turn_in_line",
            ),
        ),
    ]
