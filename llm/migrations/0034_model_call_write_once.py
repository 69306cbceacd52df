from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddUniqueBeside


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('llm', '0033_model_call_write_id'),
    ]

    operations = [
        AddUniqueBeside(
            model_name='modelcall',
            constraint=models.UniqueConstraint(condition=models.Q(('write_id__isnull', False)), fields=('write_id',), name='llm_call_write_once'),
        ),
    ]
