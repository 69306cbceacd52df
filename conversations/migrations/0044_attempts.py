from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('conversations', '0043_saved_filters'),
    ]

    operations = [
        migrations.AddField(
            model_name='evaluationanswer',
            name='attempts',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='replayedturn',
            name='attempts',
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
    ]
