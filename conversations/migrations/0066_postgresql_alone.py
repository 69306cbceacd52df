from __future__ import annotations

from django.db import migrations

from conversations.migrations import _unlogged_tables


class Migration(migrations.Migration):
    dependencies = [("conversations", "0065_interrupted_replays")]
    operations = [
        migrations.RunPython(_unlogged_tables.create, _unlogged_tables.drop),
    ]
