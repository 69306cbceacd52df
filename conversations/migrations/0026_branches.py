from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [
        ("conversations", "0025_search_entries"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            "turn",
            "comparison",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="Shared by turns that were opened to compare their answers.",
                max_length=40,
            ),
        ),
        migrations.AddField(
            "turn",
            "deleted_at",
            models.DateTimeField(
                blank=True,
                editable=False,
                help_text="When a person deleted the branch that the turn belongs to.",
                null=True,
            ),
        ),
        AddIndexBeside(
            "turn",
            models.Index(
                fields=["deleted_at"],
                condition=models.Q(deleted_at__isnull=False),
                name="conversations_turn_deleted",
            ),
        ),
        AddIndexBeside(
            "attachment",
            models.Index(fields=["file"], name="conversations_attachment_file"),
        ),
        migrations.CreateModel(
            "BranchChoice",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                (
                    "conversation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="branch_choices",
                        to="conversations.conversation",
                    ),
                ),
                (
                    "leaf",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="conversations.turn",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("conversation", "user"),
                        name="conversations_branch_choice_once",
                    )
                ]
            },
        ),
    ]
