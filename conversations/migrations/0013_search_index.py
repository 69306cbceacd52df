from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

_FTS5 = """
CREATE VIRTUAL TABLE conversations_search USING fts5(
  tokens, tokenize = "ascii tokenchars '_'", detail = none, prefix = '1 2 3 4'
)
"""
_TRIGGER = """
CREATE TRIGGER conversations_search_delete AFTER DELETE ON conversations_searchdocument
BEGIN DELETE FROM conversations_search WHERE rowid = OLD.item_id; END
"""


def create_index(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(
            "ALTER TABLE conversations_searchdocument ADD COLUMN tokens tsvector"
        )
        editor.execute(
            "CREATE INDEX conversations_search_tokens"
            " ON conversations_searchdocument USING gin (tokens)"
        )
    else:
        editor.execute(_FTS5)
        editor.execute(_TRIGGER)


def drop_index(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("ALTER TABLE conversations_searchdocument DROP COLUMN tokens")
    else:
        editor.execute("DROP TRIGGER conversations_search_delete")
        editor.execute("DROP TABLE conversations_search")


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
