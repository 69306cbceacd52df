from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("llm", "0038_calls_of_replays")]

    operations = [
        AddIndexBeside(
            "modelcall",
            models.Index(
                condition=models.Q(("replayed_turn_id__isnull", False)),
                fields=["replayed_turn_id"],
                name="llm_call_of_replay",
            ),
        ),
    ]
