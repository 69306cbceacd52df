from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0017_usage_sums'),
    ]

    operations = [
        migrations.AlterField(
            model_name='modelcall',
            name='purpose',
            field=models.CharField(choices=[('answer', 'answer'), ('correction', 'correction of an answer'), ('summary', 'summary of earlier messages'), ('title', 'title of the conversation'), ('probe', 'probe of a model'), ('dictation', 'dictation of a message')], db_default='answer', default='answer', max_length=10),
        ),
    ]
