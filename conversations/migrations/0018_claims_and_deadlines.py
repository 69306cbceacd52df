from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0017_signed_in_session")]

    operations = [
        migrations.AddField(
            "toolcall",
            "claims",
            models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                help_text="How often it was taken up and not released in order since.",
            ),
        ),
        migrations.AddField(
            "turn",
            "claims_until_progress",
            models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                help_text=(
                    "How many of them it had when it last came further; later ones"
                    " count against it."
                ),
            ),
        ),
        migrations.AddField(
            "turn",
            "deadline_at",
            models.DateTimeField(
                blank=True,
                help_text="When it must be over, however often run.",
                null=True,
            ),
        ),
        migrations.AddField(
            "turn",
            "seconds_left",
            models.FloatField(
                blank=True,
                help_text="Of its time, which stands still while a person is asked.",
                null=True,
            ),
        ),
    ]
