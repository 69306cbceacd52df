from __future__ import annotations

from typing import Any

from django.db import migrations, models


def keep_what_was_named(apps: Any, schema_editor: Any) -> None:
    presets = apps.get_model("conversations", "Preset").objects.using(
        schema_editor.connection.alias
    )
    presets.filter(tools__isnull=False).update(only_named_tools=True)


class Migration(migrations.Migration):
    dependencies = [("conversations", "0005_access_token_limits")]

    operations = [
        migrations.AddField(
            model_name="preset",
            name="only_named_tools",
            field=models.BooleanField(
                default=False,
                help_text=(
                    "No tools but those named, and none where none is named (any more)."
                    " Naming one switches this on."
                ),
            ),
        ),
        migrations.AlterField(
            model_name="preset",
            name="tools",
            field=models.ManyToManyField(
                blank=True,
                help_text="The only ones that may be used.",
                to="tools.tool",
            ),
        ),
        migrations.RunPython(keep_what_was_named, migrations.RunPython.noop),
    ]
