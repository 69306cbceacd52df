"""All tables in their present form, for a new database.

It replaces the migrations that `replaces` lists: to run those takes three seconds. A
database that has some of them runs the others, and never this one.
"""

import conversations.models.access_token
import conversations.models.attachment
import conversations.models.conversation
import conversations.models.item
import conversations.models.ledger
import conversations.models.question
import conversations.models.turn
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import llm.db.encrypted_field
import llm.db.secret_rows
import tools.validators
import uuid
from decimal import Decimal
from django.conf import settings
from django.db import migrations, models

from conversations.migrations._search_index import create_index, drop_index


class Migration(migrations.Migration):

    replaces = [
        ('conversations', '0001_initial'),
        ('conversations', '0002_initial'),
        ('conversations', '0003_waiting_and_background'),
        ('conversations', '0004_presets'),
        ('conversations', '0005_access_token_limits'),
        ('conversations', '0006_preset_only_named_tools'),
        ('conversations', '0008_item_said_id'),
        ('conversations', '0009_conversation_rewritten'),
        ('conversations', '0010_turn_in_line'),
        ('conversations', '0011_call_undelivered'),
        ('conversations', '0012_message_bounds'),
        ('conversations', '0013_search_index'),
        ('conversations', '0014_search_pending'),
        ('conversations', '0015_secret_rows'),
        ('conversations', '0016_turn_ended_output'),
        ('conversations', '0017_signed_in_session'),
        ('conversations', '0018_claims_and_deadlines'),
        ('conversations', '0019_turn_inline_bytes'),
        ('conversations', '0020_turn_provider_response'),
        ('conversations', '0021_access_token_declares_any_tool'),
        ('conversations', '0022_plain_help_texts'),
        ('conversations', '0023_plain_texts'),
    ]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('llm', '0006_plain_texts'),
        ('tools', '0011_plain_texts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AccessToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('label', models.CharField(default='token', max_length=100)),
                ('prefix', models.CharField(editable=False, max_length=16)),
                ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='access_tokens', to=settings.AUTH_USER_MODEL)),
                ('allowed_models', models.ManyToManyField(blank=True, help_text='Models that the token may use; if none is chosen, all models of its user.', related_name='+', to='llm.languagemodel')),
                ('budget', models.DecimalField(blank=True, decimal_places=6, help_text='USD; empty means no limit.', max_digits=12, null=True, validators=[django.core.validators.MinValueValidator(Decimal('0'))])),
                ('budget_period', models.CharField(choices=[('total', 'in all'), ('day', 'a day'), ('month', 'a month')], default='total', max_length=5)),
                ('networks', models.JSONField(blank=True, default=list, help_text='Client addresses that may use the token; empty means any address.', validators=[conversations.models.access_token.validate_networks])),
                ('requests_per_minute', models.PositiveIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('scopes', models.JSONField(default=conversations.models.access_token.usual_scopes, help_text='The APIs that the token may use.', validators=[conversations.models.access_token.validate_scopes])),
                ('tokens_per_minute', models.PositiveIntegerField(blank=True, help_text='Input and output tokens together.', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('declares_any_tool', models.BooleanField(db_default=False, default=False, help_text="Requests with this token may declare tools of every kind, even kinds that the user's groups may not declare. Tokens created before this setting existed have it switched on.", verbose_name='declares any tool')),
            ],
            options={
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='ContextSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('secret_names', models.JSONField(default=list, editable=False)),
                ('secret_headers', llm.db.encrypted_field.EncryptedTextField(blank=True, default='', editable=False)),
                ('name', models.SlugField(help_text='Name that models and configuration files use.', max_length=64, unique=True)),
                ('title', models.CharField(help_text='Heading above the text in the prompt.', max_length=100)),
                ('kind', models.CharField(choices=[('text', 'text'), ('python', 'Python function'), ('http', 'HTTP'), ('mcp', 'MCP resource')], default='text', max_length=10)),
                ('enabled', models.BooleanField(default=True)),
                ('on_demand', models.BooleanField(default=False, help_text='The text is not in the prompt; the model reads it with the tool “get_context”.')),
                ('text', models.TextField(blank=True)),
                ('function', models.CharField(blank=True, help_text='Import path of the function, such as shop.context.customer.', max_length=200)),
                ('url', models.CharField(blank=True, help_text='The path may contain {user_id}, {username} and {conversation_id}. Put secrets into a secret header, not here.', max_length=2000, verbose_name='URL')),
                ('headers', models.JSONField(blank=True, default=dict, help_text='Sent with each request. Put secrets into the secret headers, not here.', validators=[tools.validators.validate_headers])),
                ('uri', models.CharField(blank=True, help_text='URI of the resource, as the MCP server lists it.', max_length=2000, verbose_name='URI')),
                ('pointer', models.CharField(blank=True, help_text='JSON Pointer to the part of the response that is used, such as /data/items; empty for all of it.', max_length=500, validators=[django.core.validators.RegexValidator('\\A/', 'Write a pointer such as /data/items.')])),
                ('networks', models.TextField(blank=True, help_text='Private networks that requests may reach, one per line, such as 10.1.0.0/16; the public internet is always allowed.', validators=[tools.validators.validate_networks], verbose_name='allowed networks')),
                ('max_size', models.PositiveIntegerField(default=20000, help_text='Maximum size of the text in bytes; a larger text is left out.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1048576)], verbose_name='size limit')),
                ('timeout', models.FloatField(default=5.0, help_text='Maximum time in seconds; the model call waits until the text is there.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(60.0)])),
                ('cache_seconds', models.PositiveIntegerField(default=0, help_text='Seconds for which a text is cached; 0 reads the source for each turn.', validators=[django.core.validators.MaxValueValidator(86400)])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('mcp_server', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='tools.mcpserver', verbose_name='MCP server')),
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
            ],
            options={
                'ordering': ['name'],
                'permissions': [('try_contextsource', 'Can try a context source as any user')],
            },
        ),
        migrations.CreateModel(
            name='Preset',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(help_text='Name that programs use.', max_length=64, unique=True)),
                ('label', models.CharField(blank=True, help_text='Label that people see; empty for the name.', max_length=100)),
                ('description', models.CharField(blank=True, help_text='Shown where people choose a preset.', max_length=500)),
                ('enabled', models.BooleanField(default=True, help_text='If switched off, conversations with this preset accept no more messages.')),
                ('is_default', models.BooleanField(default=False, help_text='Preset of new conversations for which none was chosen.')),
                ('instructions', models.TextField(blank=True, help_text="System prompt for conversations without their own; empty for the site's prompt.")),
                ('options', models.JSONField(blank=True, default=dict, help_text='Options for every turn; options of the conversation or turn take precedence.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('groups', models.ManyToManyField(blank=True, help_text='Groups that may use it; empty means everybody.', to='auth.group')),
                ('language_model', models.ForeignKey(blank=True, help_text='Model of new conversations for which none was chosen; empty means the default model.', null=True, on_delete=django.db.models.deletion.SET_NULL, to='llm.languagemodel')),
                ('tools', models.ManyToManyField(blank=True, help_text='Tools that conversations with this preset may use.', to='tools.tool')),
                ('only_named_tools', models.BooleanField(default=False, help_text='Allow only the chosen tools, and none if none is chosen. Choosing a tool switches this on.')),
            ],
            options={
                'ordering': ['name'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='conversations_one_default_preset')],
            },
        ),
        migrations.CreateModel(
            name='Conversation',
            fields=[
                ('id', models.CharField(default=conversations.models.conversation.conversation_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('title', models.CharField(blank=True, max_length=200)),
                ('instructions', models.TextField(blank=True, help_text="System prompt; empty means the preset's prompt, or the site's.")),
                ('options', models.JSONField(blank=True, default=dict, help_text='Options for every turn.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('deleted_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('language_model', models.ForeignKey(blank=True, help_text="Empty means the preset's model, or the default model.", null=True, on_delete=django.db.models.deletion.SET_NULL, to='llm.languagemodel')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='conversations', to=settings.AUTH_USER_MODEL)),
                ('preset', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='conversations', to='conversations.preset')),
                ('rewritten', models.PositiveIntegerField(db_default=0, default=0, editable=False, help_text='Number of times that messages were corrected or removed.')),
                ('indexed_title', models.CharField(editable=False, help_text='The title that is in the search index.', max_length=200, null=True)),
            ],
            options={
                'ordering': ['-updated_at'],
                'indexes': [models.Index(fields=['owner', '-updated_at'], name='conversatio_owner_i_0bb8cd_idx'), models.Index(condition=models.Q(('indexed_title', None), models.Q(('title', models.F('indexed_title')), _negated=True), _connector='OR'), fields=['owner'], name='conversations_title_unindexed')],
            },
        ),
        migrations.CreateModel(
            name='Attachment',
            fields=[
                ('id', models.CharField(default=conversations.models.attachment.attachment_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=255)),
                ('content_type', models.CharField(max_length=100)),
                ('size', models.PositiveBigIntegerField()),
                ('file', models.FileField(upload_to='attachments/%Y/%m/')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='attachments', to='conversations.conversation')),
            ],
        ),
        migrations.CreateModel(
            name='Turn',
            fields=[
                ('id', models.CharField(default=conversations.models.turn.turn_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('options', models.JSONField(blank=True, default=dict)),
                ('status', models.CharField(choices=[('queued', 'queued'), ('in_progress', 'running'), ('waiting', 'waiting for a person'), ('completed', 'completed'), ('incomplete', 'incomplete'), ('failed', 'failed'), ('cancelled', 'stopped')], default='queued', max_length=12)),
                ('epoch', models.PositiveIntegerField(default=0, help_text='Number of claims, as a fencing token: writes of an older epoch are refused.')),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('cancel_requested', models.BooleanField(default=False)),
                ('partial', models.JSONField(blank=True, help_text='Output that is not committed yet.', null=True)),
                ('last_sequence', models.PositiveIntegerField(blank=True, help_text='Number of the last event.', null=True)),
                ('usage', models.JSONField(blank=True, null=True)),
                ('error', models.JSONField(blank=True, null=True)),
                ('incomplete_reason', models.CharField(blank=True, max_length=40)),
                ('created_at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='conversations.conversation')),
                ('language_model', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to='llm.languagemodel')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='children', to='conversations.turn')),
                ('claims', models.PositiveSmallIntegerField(default=0, help_text='Number of claims since the turn last waited for a person.')),
                ('notes', models.JSONField(blank=True, default=list, help_text='Notes about the turn: kind, text and source.')),
                ('access_token', models.ForeignKey(blank=True, help_text='Access token whose limits and budget apply.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='conversations.accesstoken')),
                ('caused_by', models.ForeignKey(blank=True, db_index=False, help_text="The turn of the message that caused this turn; empty for a message's own turn.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='caused', to='conversations.turn')),
                ('halted_by', models.CharField(blank=True, choices=[('person', 'stopped by a person'), ('max_turns', 'the message reached its limit of turns'), ('max_cost', 'the message reached its cost limit')], db_default='', default='', help_text='Why results of background tools open no further turns.', max_length=10)),
                ('continued_at', models.DateTimeField(blank=True, help_text='Turns and costs count from this time, when a person continued.', null=True)),
                ('is_indexed', models.BooleanField(db_default=False, default=False, editable=False, help_text='Whether the search index holds its current messages.')),
                ('ended_output', models.PositiveIntegerField(blank=True, help_text='Number of output items when the last model call ended.', null=True)),
                ('claims_until_progress', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Number of claims when the turn last made progress; later claims count against it.')),
                ('deadline_at', models.DateTimeField(blank=True, help_text='The turn must end by this time, in any run.', null=True)),
                ('seconds_left', models.FloatField(blank=True, help_text='Seconds left; the time does not run while a person is asked.', null=True)),
                ('inline_bytes', models.PositiveBigIntegerField(db_default=0, default=0, editable=False, help_text='Bytes of files inside the items that opened the turn.')),
                ('provider_response', models.JSONField(blank=True, help_text='The response that the provider runs in the background.', null=True)),
            ],
            options={
                'ordering': ['created_at', 'id'],
                'permissions': [('inspect_turn', "Can read other people's turns"), ('edit_items', 'Can correct or redact items')],
                'indexes': [models.Index(fields=['conversation', 'created_at'], name='conversatio_convers_033854_idx'), models.Index(condition=models.Q(('status__in', ['queued', 'in_progress', 'waiting'])), fields=['lease_until'], name='conversations_turn_unfinished'), models.Index(condition=models.Q(('status__in', ['queued', 'in_progress', 'waiting'])), fields=['conversation'], name='conversations_turn_in_line'), models.Index(condition=models.Q(('halted_by__in', ['max_turns', 'max_cost'])), fields=['conversation'], name='conversations_turn_halted'), models.Index(condition=models.Q(('caused_by__isnull', False)), fields=['caused_by'], name='conversations_turn_caused'), models.Index(condition=models.Q(('is_indexed', False)), fields=['created_at'], name='conversations_turn_unindexed'), models.Index(condition=models.Q(('inline_bytes__gt', 0)), fields=['conversation'], name='conversations_turn_inline')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=255)),
                ('fingerprint', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
                ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='conversations.turn')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'key'), name='conversations_idempotency_key_once')],
            },
        ),
        migrations.CreateModel(
            name='Item',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveIntegerField()),
                ('origin', models.CharField(choices=[('input', 'input'), ('output', 'output')], max_length=6)),
                ('type', models.CharField(max_length=50)),
                ('payload', models.JSONField()),
                ('provider_data', models.JSONField(blank=True, help_text='Signature or encrypted reasoning of the provider; sent back only to its issuer.', null=True)),
                ('epoch', models.PositiveIntegerField(default=0)),
                ('sequence', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='conversations.turn')),
            ],
            options={
                'ordering': ['turn', 'position'],
                'indexes': [models.Index(conversations.models.item.SaidId('payload'), name='conversations_item_said_id')],
                'constraints': [models.UniqueConstraint(fields=('turn', 'position'), name='conversations_item_position_once')],
            },
        ),
        migrations.CreateModel(
            name='ToolCall',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('call_id', models.CharField(max_length=64)),
                ('name', models.CharField(max_length=128)),
                ('state', models.CharField(choices=[('pending', 'pending'), ('awaiting_approval', 'awaiting approval'), ('executing', 'executing'), ('completed', 'completed'), ('failed', 'failed'), ('timed_out', 'timed out'), ('cancelled', 'cancelled'), ('unknown', 'outcome unknown'), ('abandoned', 'abandoned, may still run')], default='pending', max_length=20)),
                ('blocking', models.BooleanField(default=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('output', models.JSONField(blank=True, null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tool_calls', to='conversations.turn')),
                ('accepted_at', models.DateTimeField(blank=True, help_text='Time since which another server does the work of this call.', null=True)),
                ('cancel_requested', models.BooleanField(default=False)),
                ('deadline_at', models.DateTimeField(blank=True, null=True)),
                ('delivered_in', models.ForeignKey(blank=True, help_text='The turn in which the model received the result.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='deliveries', to='conversations.turn')),
                ('epoch', models.PositiveIntegerField(default=0)),
                ('late_at', models.DateTimeField(blank=True, help_text='Time at which a late result arrived, which was not used.', null=True)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('poll_after', models.FloatField(blank=True, null=True)),
                ('poll_at', models.DateTimeField(blank=True, null=True)),
                ('progress', models.CharField(blank=True, max_length=500)),
                ('token', models.CharField(blank=True, editable=False, max_length=500)),
                ('claims', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='Claims since the call was last released in order.')),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(condition=models.Q(('blocking', False), ('delivered_in', None)), fields=['delivered_in', 'turn'], name='conversations_call_untold')],
                'constraints': [models.UniqueConstraint(fields=('turn', 'call_id'), name='conversations_call_once_per_turn')],
            },
        ),
        migrations.CreateModel(
            name='Question',
            fields=[
                ('id', models.CharField(default=conversations.models.question.question_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('approval', 'approval'), ('form', 'form')], max_length=10)),
                ('message', models.TextField(blank=True)),
                ('schema', models.JSONField(blank=True, null=True)),
                ('arguments', models.JSONField(blank=True, help_text='Arguments as the model wrote them.', null=True)),
                ('answer', models.JSONField(blank=True, help_text='The approved arguments, or the content of the form.', null=True)),
                ('state', models.CharField(choices=[('open', 'open'), ('accepted', 'accepted'), ('declined', 'declined'), ('expired', 'expired'), ('cancelled', 'cancelled')], default='open', max_length=10)),
                ('asked_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('note', models.CharField(blank=True, max_length=500)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('group', models.ForeignKey(blank=True, help_text='Group that may decide; empty means the user of the conversation.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='auth.group')),
                ('tool_call', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='questions', to='conversations.toolcall')),
            ],
            options={
                'ordering': ['asked_at', 'id'],
                'indexes': [models.Index(condition=models.Q(('state', 'open')), fields=['expires_at'], name='conversations_question_open')],
            },
        ),
        migrations.CreateModel(
            name='GatheredContext',
            fields=[
                ('turn', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='gathered_context', serialize=False, to='conversations.turn')),
                ('blocks', models.JSONField(help_text='Source, title and text of each context source.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='PresetSource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('position', models.PositiveSmallIntegerField(default=0)),
                ('preset', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='links', to='conversations.preset')),
                ('source', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='links', to='conversations.contextsource')),
            ],
            options={
                'ordering': ['position', 'pk'],
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('preset', 'source'), name='conversations_source_once_per_preset')],
            },
        ),
        migrations.AddField(
            model_name='preset',
            name='sources',
            field=models.ManyToManyField(blank=True, related_name='presets', through='conversations.PresetSource', to='conversations.contextsource'),
        ),
        migrations.CreateModel(
            name='Memory',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('text', models.TextField(max_length=1000)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('deleted_at', models.DateTimeField(blank=True, editable=False, null=True)),
                ('conversation', models.ForeignKey(blank=True, help_text='The conversation in which the memory was saved.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='conversations.conversation')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memories', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'memories',
                'ordering': ['-updated_at', '-pk'],
                'indexes': [models.Index(condition=models.Q(('deleted_at', None)), fields=['user', '-updated_at'], name='conversations_memory_live')],
            },
        ),
        migrations.CreateModel(
            name='Balance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('period', models.CharField(max_length=10)),
                ('spent', models.BigIntegerField(default=0, help_text='Billionths of a USD.')),
                ('reserved', models.BigIntegerField(default=0, help_text='Billionths of a USD.')),
                ('token', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='balances', to='conversations.accesstoken')),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('token', 'period'), name='conversations_balance_once'), models.CheckConstraint(condition=models.Q(('reserved__gte', 0), ('spent__gte', 0)), name='conversations_balance_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.CharField(default=conversations.models.ledger.entry_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('reserved', 'reserved'), ('settled', 'settled'), ('released', 'released')], default='reserved', max_length=8)),
                ('amount', models.BigIntegerField(help_text='Reserved, in billionths of a USD.')),
                ('cost', models.BigIntegerField(help_text='Actual cost, in billionths of a USD.', null=True)),
                ('deadline', models.DateTimeField(help_text='After this time the reservation can be released.')),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('balance', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='conversations.balance')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('state', 'reserved')), fields=['deadline'], name='conversations_ledger_open')],
            },
        ),
        migrations.CreateModel(
            name='SearchDocument',
            fields=[
                ('item', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='conversations.item')),
                ('turn', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='conversations.turn')),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='conversations.conversation')),
                ('owner', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'indexes': [models.Index(fields=['owner', 'item'], name='conversations_search_owner')],
            },
        ),
        migrations.CreateModel(
            name='SignedInSession',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('session_key', models.CharField(max_length=40, unique=True)),
                ('user_agent', models.CharField(blank=True, default='', max_length=255)),
                ('address', models.CharField(blank=True, default='', max_length=45)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('last_used_at', models.DateTimeField(db_index=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='signed_in_sessions', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-last_used_at', '-pk'],
                'default_permissions': (),
            },
        ),
        migrations.RunPython(create_index, drop_index, elidable=False),
    ]
