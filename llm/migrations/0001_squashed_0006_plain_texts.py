"""All tables in their present form, for a new database.

It replaces the migrations that `replaces` lists: to run those takes three seconds. A
database that has some of them runs the others, and never this one.
"""

import django.core.validators
import django.db.models.deletion
import llm.db.encrypted_field
import llm.db.secret_rows
import llm.forms.validators
import llm.providers
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('llm', '0001_initial'),
        ('llm', '0002_degraded'),
        ('llm', '0003_secret_rows'),
        ('llm', '0004_key_states'),
        ('llm', '0005_key_reason_text'),
        ('llm', '0006_plain_texts'),
    ]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Provider',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Shown in front of the names of its models.', max_length=100, unique=True, validators=[django.core.validators.RegexValidator('\\A[^\\s/](?:[^/]*[^\\s/])?\\Z', "A provider's name cannot contain a slash.")])),
                ('kind', models.CharField(choices=llm.providers.choices, max_length=50)),
                ('base_url', models.CharField(blank=True, help_text="Leave empty for the provider's usual address.", max_length=500, validators=[llm.forms.validators.validate_address], verbose_name='base URL')),
                ('codec', models.CharField(blank=True, help_text="Wire format; leave empty for the provider's usual one.", max_length=50)),
                ('enabled', models.BooleanField(default=True)),
                ('allow_private_network', models.BooleanField(default=False, help_text='The address may be in a private network (Ollama, vLLM).')),
                ('options', models.JSONField(blank=True, default=dict, help_text='Further options of this kind, for example {"headers": {"X-Team": "a"}}. Enter no secrets: everybody who can open this page can read them.', validators=[llm.forms.validators.validate_object])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='LanguageModel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text="The provider's name of the model.", max_length=200)),
                ('alias', models.CharField(blank=True, help_text='Alternative name that programs may use.', max_length=100, null=True, unique=True, validators=[django.core.validators.RegexValidator('\\A[\\w.:@+-]+\\Z', 'An alias cannot contain spaces or slashes.')])),
                ('label', models.CharField(blank=True, help_text='Label that people see in the chat.', max_length=100)),
                ('enabled', models.BooleanField(default=True)),
                ('is_default', models.BooleanField(default=False, help_text='Model of new conversations for which none was chosen.')),
                ('capabilities', models.JSONField(blank=True, default=dict, help_text='Features that the model supports, for example {"tools": true, "vision": false, "reasoning": true}.', validators=[llm.forms.validators.validate_object])),
                ('context_window', models.PositiveIntegerField(blank=True, help_text='Maximum of input and output tokens together.', null=True)),
                ('max_output_tokens', models.PositiveIntegerField(blank=True, help_text='Maximum of output tokens.', null=True)),
                ('options', models.JSONField(blank=True, default=dict, help_text='Options for every request, for example {"temperature": 0.2}; "extra" is copied into the body of the provider\'s request.', validators=[llm.forms.validators.validate_object])),
                ('prices', models.JSONField(blank=True, default=dict, help_text='USD per million tokens, if the price list is wrong or has no price, for example {"input": 2, "cached_input": 0.5, "output": 8}.', validators=[llm.forms.validators.validate_object])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('fallbacks', models.ManyToManyField(blank=True, to='llm.languagemodel')),
                ('groups', models.ManyToManyField(blank=True, help_text='Groups that may use it; empty means everybody.', to='auth.group')),
                ('provider', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='models', to='llm.provider')),
            ],
            options={
                'ordering': ['provider__name', 'name'],
                'constraints': [models.UniqueConstraint(fields=('provider', 'name'), name='llm_model_once_per_provider'), models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='llm_one_default_model')],
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('label', models.CharField(default='default', max_length=100)),
                ('hint', models.CharField(blank=True, editable=False, max_length=20)),
                ('secret', llm.db.encrypted_field.EncryptedTextField(help_text='Stored encrypted and never shown; leave empty to keep the stored key.', hint_field='hint', validators=[django.core.validators.RegexValidator('\\A[\\x21-\\x7e]+\\Z', 'A key cannot contain spaces or non-ASCII characters.')], verbose_name='key')),
                ('state', models.CharField(choices=[('active', 'active'), ('resting', 'resting'), ('disabled', 'disabled')], default='active', max_length=10)),
                ('weight', models.PositiveSmallIntegerField(default=1, help_text="Share of the provider's calls that this key gets; 0 means none.")),
                ('rest_until', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('last_error', models.CharField(blank=True, editable=False, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('provider', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='keys', to='llm.provider')),
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
                ('model_rests', models.JSONField(blank=True, editable=False, null=True, verbose_name='resting for models')),
                ('state_changed_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('state_reason', models.CharField(blank=True, db_default='', default='', editable=False, help_text='Reason for the automatic pause or disabling; empty if staff changed the state.', max_length=200)),
            ],
            options={
                'verbose_name': 'API key',
                'ordering': ['provider', 'label'],
                'constraints': [models.UniqueConstraint(fields=('provider', 'label'), name='llm_key_label_once_per_provider')],
            },
        ),
        migrations.CreateModel(
            name='ModelCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('turn_id', models.CharField(blank=True, db_index=True, max_length=64)),
                ('step', models.PositiveSmallIntegerField(default=0)),
                ('attempt', models.PositiveSmallIntegerField(default=1)),
                ('provider_name', models.CharField(max_length=100)),
                ('model_name', models.CharField(help_text="Name of the model in the provider's response.", max_length=200)),
                ('status', models.CharField(choices=[('completed', 'completed'), ('incomplete', 'incomplete'), ('cancelled', 'cancelled'), ('failed', 'failed')], max_length=10)),
                ('http_status', models.PositiveSmallIntegerField(null=True)),
                ('error_code', models.CharField(blank=True, max_length=40)),
                ('error_detail', models.TextField(blank=True, help_text="The provider's error message, for staff.")),
                ('finish_reason', models.CharField(blank=True, max_length=40)),
                ('input_tokens', models.PositiveIntegerField(null=True)),
                ('cached_tokens', models.PositiveIntegerField(null=True)),
                ('cache_write_tokens', models.PositiveIntegerField(null=True)),
                ('output_tokens', models.PositiveIntegerField(null=True)),
                ('reasoning_tokens', models.PositiveIntegerField(null=True)),
                ('cost', models.DecimalField(decimal_places=12, help_text='USD; empty if unknown.', max_digits=18, null=True)),
                ('ttft', models.FloatField(help_text='Seconds to the first delta.', null=True)),
                ('latency', models.FloatField(help_text='Seconds to the end of the response.', null=True)),
                ('request_id', models.CharField(blank=True, db_index=True, help_text="The provider's id of the request; its support may ask for it.", max_length=200)),
                ('response_id', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('key', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='calls', to='llm.apikey')),
                ('model', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='calls', to='llm.languagemodel')),
                ('degraded', models.JSONField(blank=True, default=list, help_text='Options that were left out or approximated.')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['status', 'id'], name='llm_modelca_status_227a97_idx')],
            },
        ),
    ]
