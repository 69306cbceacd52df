from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0077_access_token_conversations"),
    ]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="corrections",
            field=models.PositiveIntegerField(
                db_default=0, default=0, editable=False
            ),
        ),
    ]
