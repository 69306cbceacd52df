from __future__ import annotations

from typing import Any

from django.db import migrations, models


def keep_what_tokens_used(apps: Any, schema_editor: Any) -> None:
    """Requests could declare whatever they liked; tokens of that time go on so."""
    tokens = apps.get_model("conversations", "AccessToken").objects
    tokens.using(schema_editor.connection.alias).update(declares_any_tool=True)


class Migration(migrations.Migration):
    dependencies = [("conversations", "0020_turn_provider_response")]

    operations = [
        migrations.AddField(
            "accesstoken",
            "declares_any_tool",
            models.BooleanField(
                "declares any tool",
                db_default=False,
                default=False,
                help_text=(
                    "Its requests may declare tools of every kind, whatever the groups"
                    " of its user may. Tokens that are older than these rules begin"
                    " with it."
                ),
            ),
        ),
        migrations.RunPython(keep_what_tokens_used, migrations.RunPython.noop),
    ]
