from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0015_secret_rows")]

    operations = [
        migrations.AddField(
            "turn",
            "ended_output",
            models.PositiveIntegerField(
                blank=True,
                help_text="Output items that stood when a host last ended a model"
                " call.",
                null=True,
            ),
        ),
    ]
