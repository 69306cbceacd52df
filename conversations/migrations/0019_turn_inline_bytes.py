from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0018_claims_and_deadlines")]

    operations = [
        migrations.AddField(
            "turn",
            "inline_bytes",
            models.PositiveBigIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="Of files inside the items it was opened with.",
            ),
        ),
        AddIndexBeside(
            "turn",
            models.Index(
                fields=["conversation"],
                condition=models.Q(inline_bytes__gt=0),
                name="conversations_turn_inline",
            ),
        ),
    ]
