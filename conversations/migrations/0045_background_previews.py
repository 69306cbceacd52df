from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('conversations', '0044_attempts'),
    ]

    operations = [
        migrations.AddField(
            model_name='previewchat',
            name='question',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='previewchat',
            name='job',
            field=models.CharField(blank=True, db_default='', default='', max_length=32),
        ),
        migrations.AddField(
            model_name='previewchat',
            name='partial',
            field=models.TextField(blank=True, db_default='', default=''),
        ),
        migrations.AddField(
            model_name='previewchat',
            name='error',
            field=models.CharField(blank=True, db_default='', default='', max_length=500),
        ),
        migrations.AddField(
            model_name='previewchat',
            name='seen_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='previewchat',
            name='figures',
            field=models.JSONField(null=True),
        ),
    ]
