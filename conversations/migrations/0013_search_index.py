from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from conversations.migrations._search_index import create_index, drop_index


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0012_message_bounds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="indexed_title",
            field=models.CharField(
                editable=False,
                help_text="The title that stands in the index of words.",
                max_length=200,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="turn",
            name="is_indexed",
            field=models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="Whether the index of words has its messages as they are.",
            ),
        ),
        migrations.CreateModel(
            name="SearchDocument",
            fields=[
                (
                    "item",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="conversations.item",
                    ),
                ),
                (
                    "turn",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="conversations.turn",
                    ),
                ),
                (
                    "conversation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="conversations.conversation",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="searchdocument",
            index=models.Index(
                fields=["owner", "item"], name="conversations_search_owner"
            ),
        ),
        migrations.RunPython(create_index, drop_index, elidable=False),
    ]
