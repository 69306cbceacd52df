from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("conversations", "0036_indexes_of_lists"),
    ]

    operations = [
        migrations.AddField(
            model_name="toolcall",
            name="is_counted",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Statistics have counted it, after it had ended.",
            ),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(
                fields=["id"],
                condition=models.Q(is_counted=False),
                name="conversations_call_uncounted",
            ),
        ),
    ]
