from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0019_turn_inline_bytes")]

    operations = [
        migrations.AddField(
            "turn",
            "provider_response",
            models.JSONField(
                blank=True,
                help_text="What the provider continues in the background, if it does.",
                null=True,
            ),
        ),
    ]
