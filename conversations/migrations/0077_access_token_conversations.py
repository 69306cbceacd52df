from __future__ import annotations

from django.db import migrations, models

import conversations.models.access_token


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0076_access_token_tools"),
    ]

    operations = [
        migrations.AddField(
            model_name="accesstoken",
            name="allowed_conversations",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text=(
                    "Conversations of its user that the token may read and continue; if"
                    " neither a conversation nor a folder is chosen, all."
                ),
                validators=[
                    conversations.models.access_token.validate_conversation_ids
                ],
                verbose_name="conversations",
            ),
        ),
        migrations.AddField(
            model_name="accesstoken",
            name="allowed_folders",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text=(
                    "Folders of its user: the token may read and continue their"
                    " conversations, and add new ones."
                ),
                validators=[conversations.models.access_token.validate_folder_ids],
                verbose_name="folders",
            ),
        ),
    ]
