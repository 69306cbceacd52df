from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0008_item_said_id")]

    operations = [
        migrations.AddField(
            "conversation",
            "rewritten",
            models.PositiveIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="How often what was said was corrected or taken away.",
            ),
        ),
    ]
