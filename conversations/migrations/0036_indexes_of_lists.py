from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("conversations", "0035_process_status"),
    ]

    operations = [
        AddIndexBeside(
            model_name="attachment",
            index=models.Index(fields=["created_at"], name="conversations_attachment_new"),
        ),
        AddIndexBeside(
            model_name="question",
            index=models.Index(fields=["asked_at"], name="conversations_question_asked"),
        ),
        AddIndexBeside(
            model_name="sharelink",
            index=models.Index(fields=["created_at"], name="conversations_link_new"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(fields=["call_id"], name="conversations_call_id"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(fields=["created_at"], name="conversations_call_created"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(fields=["name", "id"], name="conversations_call_name"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(fields=["state", "id"], name="conversations_call_state"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(fields=["id"], condition=models.Q(blocking=False), name="conversations_call_unawaited"),
        ),
        AddIndexBeside(
            model_name="toolcall",
            index=models.Index(
                fields=["late_at"],
                condition=models.Q(late_at__isnull=False),
                name="conversations_call_late",
            ),
        ),
        AddIndexBeside(
            model_name="turn",
            index=models.Index(fields=["status", "created_at"], name="conversations_turn_status"),
        ),
    ]
