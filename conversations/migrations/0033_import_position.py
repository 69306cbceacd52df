from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0032_share_titles_and_folder_files"),
    ]

    operations = [
        migrations.AddField(
            model_name="conversationimport",
            name="language",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of the report.",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="conversationimport",
            name="position",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="Steps that are done; an interrupted import goes on behind them.",
            ),
        ),
    ]
