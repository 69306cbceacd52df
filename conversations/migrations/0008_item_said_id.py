from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside
from conversations.models.item import SaidId

NAME = "conversations_item_said_id"


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0006_preset_only_named_tools")]

    operations = [
        AddIndexBeside("item", models.Index(SaidId("payload"), name=NAME)),
    ]
