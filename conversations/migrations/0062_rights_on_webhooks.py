"""The shipped groups of staff get rights on webhooks, if they still have those on
models that they were shipped with."""

from django.db import migrations

from conversations.migrations._rights import add_webhook_rights


class Migration(migrations.Migration):

    dependencies = [
        ("conversations", "0061_calls_that_wait_for_a_sign_in"),
    ]

    operations = [migrations.RunPython(add_webhook_rights, migrations.RunPython.noop)]
