from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("llm", "0018_dictation_purpose"),
    ]

    operations = [
        AddIndexBeside(
            model_name="modelcall",
            index=models.Index(fields=["response_id"], name="llm_call_response"),
        ),
        AddIndexBeside(
            model_name="modelcall",
            index=models.Index(fields=["created_at"], condition=models.Q(is_cached=True), name="llm_call_from_cache"),
        ),
    ]
