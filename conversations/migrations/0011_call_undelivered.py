from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0010_turn_in_line")]

    operations = [
        AddIndexBeside(
            "toolcall",
            models.Index(
                fields=["delivered_in", "turn"],
                condition=models.Q(blocking=False, delivered_in=None),
                name="conversations_call_untold",
            ),
        ),
        migrations.RemoveIndex("toolcall", "conversations_call_background"),
    ]
