"""Tokens that could approve before keep doing so: approving has a scope of its own."""

from django.db import migrations


def add_scope(apps, schema_editor):
    tokens = apps.get_model("conversations", "AccessToken").objects
    for token in tokens.filter(revoked_at=None).only("scopes").iterator():
        if {"chat", "tools"} & set(token.scopes) and "approve" not in token.scopes:
            token.scopes = [*token.scopes, "approve"]
            token.save(update_fields=["scopes"])


class Migration(migrations.Migration):

    dependencies = [("conversations", "0050_groups_of_sources")]

    operations = [migrations.RunPython(add_scope, migrations.RunPython.noop)]
