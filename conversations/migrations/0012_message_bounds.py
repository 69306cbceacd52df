from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0011_call_undelivered")]

    operations = [
        migrations.AddField(
            "turn",
            "caused_by",
            models.ForeignKey(
                blank=True,
                db_index=False,
                help_text=(
                    "The turn of the message that this one goes back to; empty where"
                    " it is that turn itself."
                ),
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="caused",
                to="conversations.turn",
            ),
        ),
        migrations.AddField(
            "turn",
            "halted_by",
            models.CharField(
                blank=True,
                choices=[
                    ("person", "stopped by a person"),
                    ("max_turns", "as many turns as a message may cause"),
                    ("max_cost", "as much money as a message may cost"),
                ],
                db_default="",
                default="",
                help_text="Why results in the background begin no more turns for it.",
                max_length=10,
            ),
        ),
        migrations.AddField(
            "turn",
            "continued_at",
            models.DateTimeField(
                blank=True,
                help_text=(
                    "From when on its turns and cost count, since a person went on."
                ),
                null=True,
            ),
        ),
        migrations.AlterField(
            "toolcall",
            "state",
            models.CharField(
                choices=[
                    ("pending", "pending"),
                    ("awaiting_approval", "awaiting approval"),
                    ("executing", "executing"),
                    ("completed", "completed"),
                    ("failed", "failed"),
                    ("timed_out", "timed out"),
                    ("cancelled", "cancelled"),
                    ("unknown", "outcome unknown"),
                    ("abandoned", "abandoned, may still run"),
                ],
                default="pending",
                max_length=20,
            ),
        ),
        AddIndexBeside(
            "turn",
            models.Index(
                fields=["conversation"],
                condition=models.Q(halted_by__in=["max_turns", "max_cost"]),
                name="conversations_turn_halted",
            ),
        ),
        AddIndexBeside(
            "turn",
            models.Index(
                fields=["caused_by"],
                condition=models.Q(caused_by__isnull=False),
                name="conversations_turn_caused",
            ),
        ),
    ]
