"""The shipped groups of staff get rights on model pools, if they still have those on
models that they were shipped with."""

from django.db import migrations

from conversations.migrations._rights import add_rights


class Migration(migrations.Migration):

    dependencies = [
        ("conversations", "0054_announcements_and_terms"),
        ("llm", "0027_model_pools"),
    ]

    operations = [migrations.RunPython(add_rights, migrations.RunPython.noop)]
