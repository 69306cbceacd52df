from __future__ import annotations

from typing import Any

from django.db import migrations, models


def keep_titles(apps: Any, schema_editor: Any) -> None:
    """Snapshots of before keep the title that they show now."""
    links = apps.get_model("conversations", "ShareLink").objects
    conversations = apps.get_model("conversations", "Conversation").objects
    rows = conversations.filter(pk=models.OuterRef("conversation_id"))
    links.filter(title=None).update(title=models.Subquery(rows.values("title")[:1]))


class Migration(migrations.Migration):

    dependencies = [
        ('conversations', '0031_user_settings_and_prompts'),
    ]

    operations = [
        migrations.AddField(
            model_name='sharelink',
            name='title',
            field=models.CharField(editable=False, help_text="The conversation's title when a snapshot was made.", max_length=200, null=True),
        ),
        migrations.AddField(
            model_name='folderfile',
            name='content_type',
            field=models.CharField(db_default='text/plain', default='text/plain', max_length=100),
        ),
        migrations.AddField(
            model_name='folderfile',
            name='file',
            field=models.FileField(blank=True, db_default='', default='', help_text='Pictures and documents; texts are in `text`.', upload_to='folders/%Y/%m/'),
        ),
        migrations.RunPython(keep_titles, migrations.RunPython.noop),
    ]
