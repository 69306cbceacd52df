from __future__ import annotations

from django.db import migrations, models

from llm.db.concurrent_index import AddIndexBeside


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('llm', '0013_model_call_caller'),
    ]

    operations = [
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(condition=models.Q(('user__isnull', False)), fields=['user', 'id'], name='llm_call_user'),
        ),
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(condition=models.Q(('token_id__isnull', False)), fields=['token_id', 'id'], name='llm_call_token'),
        ),
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(fields=['end_user'], name='llm_call_end_user'),
        ),
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(fields=['our_request_id'], name='llm_call_our_request'),
        ),
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(fields=['client_request_id'], name='llm_call_client_request'),
        ),
        AddIndexBeside(
            model_name='modelcall',
            index=models.Index(condition=models.Q(('is_counted', False)), fields=['id'], name='llm_call_uncounted'),
        ),
    ]
