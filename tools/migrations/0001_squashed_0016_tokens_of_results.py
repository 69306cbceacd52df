"""All tables in their present form, for a new database.

It replaces the migrations that `replaces` lists: to run those takes seconds. A database
that has some of them runs the others, and never this one.
"""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import llm.db.encrypted_field
import llm.db.secret_rows
import re
import tools.models.declared_tool
import tools.models.http_tool
import tools.models.mcp_server
import tools.validators
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('tools', '0001_initial'),
        ('tools', '0002_http_tools'),
        ('tools', '0003_approval_and_hosted'),
        ('tools', '0004_mcp_server'),
        ('tools', '0005_http_async_and_versions'),
        ('tools', '0006_mcp_sign_in'),
        ('tools', '0007_secret_rows'),
        ('tools', '0008_runs_unasked'),
        ('tools', '0009_declared_tool'),
        ('tools', '0010_plain_help_texts'),
        ('tools', '0011_plain_texts'),
        ('tools', '0012_only_in_presets'),
        ('tools', '0013_tool_use'),
        ('tools', '0014_mcp_events_and_rejections'),
        ('tools', '0015_months_of_tool_use'),
        ('tools', '0016_tokens_of_results'),
    ]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DeclaredTool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=tools.models.declared_tool.kind_choices, editable=False, max_length=32, unique=True)),
                ('allowed_for', models.CharField(choices=[('nobody', 'nobody'), ('groups', 'the groups below'), ('everybody', 'everybody')], default='nobody', max_length=10, verbose_name='allowed for')),
                ('groups', models.ManyToManyField(blank=True, help_text='Groups whose members may declare it, if “the groups below” is chosen.', related_name='+', to='auth.group')),
            ],
            options={
                'verbose_name': 'declared tool',
                'ordering': ['kind'],
            },
        ),
        migrations.CreateModel(
            name='Tool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.SlugField(help_text='Name that models use.', max_length=64, unique=True, validators=[django.core.validators.RegexValidator(re.compile('\\A[A-Za-z_][A-Za-z0-9_-]{0,63}\\Z'))])),
                ('kind', models.CharField(choices=[('python', 'Python'), ('http', 'HTTP'), ('mcp', 'MCP'), ('hosted', 'run by the provider')], default='python', max_length=10)),
                ('label', models.CharField(blank=True, help_text='Label that people see; empty for the label in the code, or the name.', max_length=100)),
                ('description', models.TextField(blank=True, help_text='Description that the model receives; empty for the one in the code.')),
                ('enabled', models.BooleanField(default=True)),
                ('is_missing', models.BooleanField(default=False, editable=False, help_text='The code of the tool was not found at the last start or migration.', verbose_name='code is missing')),
                ('timeout', models.FloatField(blank=True, help_text='Seconds; empty for the limit in the code, or the default.', null=True, validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400)])),
                ('replay', models.CharField(blank=True, choices=[('safe', 'safe to run again'), ('idempotent', 'safe to run again with the same key'), ('once', 'never run twice')], help_text='Whether the call may run again after a crash; empty for what the code or the HTTP method says.', max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('approval', models.CharField(blank=True, choices=[('never', 'never'), ('always', 'always'), ('first', 'the first time in a conversation'), ('rule', 'if the arguments match a rule')], help_text='When a person must approve a call. Empty: as the code says; for HTTP and MCP tools always, except read-only ones.', max_length=10, verbose_name='approval')),
                ('approval_rule', models.JSONField(blank=True, help_text='JSON Schema; a call whose arguments match it needs approval.', null=True)),
                ('blocking', models.BooleanField(blank=True, choices=[(True, 'waits for the result'), (False, 'continues without it')], help_text='Whether the model waits for the result; empty for what the code says.', null=True)),
                ('definition', models.JSONField(blank=True, help_text='Tool definition that providers receive, such as {"type": "web_search"}.', null=True)),
                ('runs_unasked', models.BooleanField(db_default=False, default=False, editable=False, help_text='Created before tools with side effects needed approval by default.')),
                ('only_in_presets', models.BooleanField(db_default=False, default=False, help_text='Only conversations whose preset names it may use it.')),
                ('approvers', models.ForeignKey(blank=True, help_text='Group that may approve calls; empty means the user of the conversation.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='auth.group')),
                ('groups', models.ManyToManyField(blank=True, help_text='Groups that may use it; empty means everybody.', to='auth.group')),
            ],
            options={
                'ordering': ['name'],
                'permissions': [('dry_run_tool', 'Can try a tool as any user')],
                'constraints': [models.CheckConstraint(condition=models.Q(('timeout', None), ('timeout__gt', 0), _connector='OR'), name='tools_tool_timeout_above_0')],
            },
        ),
        migrations.CreateModel(
            name='ToolUse',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.CharField(choices=[('h', 'Hour'), ('d', 'Day'), ('m', 'Month')], max_length=1)),
                ('start', models.DateTimeField(help_text='Begin of the hour, day or month, in UTC.')),
                ('name', models.CharField(max_length=128)),
                ('state', models.CharField(max_length=20)),
                ('blocking', models.BooleanField()),
                ('calls', models.PositiveIntegerField(default=0)),
                ('durations', models.JSONField(default=dict, help_text='Calls by the number of their class of durations.')),
                ('last_at', models.DateTimeField()),
                ('output_tokens', models.PositiveBigIntegerField(db_default=0, default=0, help_text='Of the results, estimated from their size.')),
                ('sized', models.PositiveIntegerField(db_default=0, default=0, help_text="Calls whose result's size is known.")),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('span', 'start', 'name', 'state', 'blocking'), name='tools_use_once')],
            },
        ),
        migrations.CreateModel(
            name='McpServer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('secret_names', models.JSONField(default=list, editable=False)),
                ('secret_headers', llm.db.encrypted_field.EncryptedTextField(blank=True, default='', editable=False)),
                ('name', models.CharField(help_text="Prefix of the tools' names that models see: name__tool.", max_length=30, unique=True, validators=[django.core.validators.RegexValidator(re.compile('\\A[A-Za-z][A-Za-z0-9-]*(_[A-Za-z0-9-]+)*\\Z'), "Use letters, digits, '-' and single '_', and begin with a letter.")])),
                ('label', models.CharField(blank=True, help_text='Label that people see; empty for the name.', max_length=100)),
                ('is_program', models.BooleanField(default=False, editable=False)),
                ('is_missing', models.BooleanField(default=False, editable=False, help_text='The program is no longer in the settings.', verbose_name='program is missing')),
                ('url', models.CharField(blank=True, help_text='URL of the streamable HTTP endpoint, such as https://host/mcp. Put secrets into a secret header, not here.', max_length=2000, verbose_name='URL')),
                ('headers', models.JSONField(blank=True, default=dict, help_text='Sent with each request. Put secrets into the secret headers, not here.', validators=[tools.validators.validate_headers])),
                ('oauth_client_id', models.CharField(blank=True, help_text='Client id at the authorization server. If a member of staff signs in, leave empty to register a client automatically.', max_length=500, verbose_name='client id')),
                ('oauth_issuer', models.CharField(blank=True, help_text='URL of the authorization server at which the client is registered, such as https://login.host; the secret is sent only there.', max_length=2000, verbose_name='issuer')),
                ('oauth_scope', models.CharField(blank=True, help_text='Separated by spaces; empty for the scopes that the server asks for.', max_length=1000, verbose_name='scopes')),
                ('oauth_hint', models.CharField(blank=True, editable=False, max_length=20)),
                ('oauth_secret', llm.db.encrypted_field.EncryptedTextField(blank=True, default='', hint_field='oauth_hint', verbose_name='client secret')),
                ('allowed_tools', models.JSONField(blank=True, help_text="List of the tools to use, by the server's names; empty for all.", null=True, validators=[tools.models.mcp_server.validate_allowed])),
                ('networks', models.TextField(blank=True, help_text='Private networks that the server may be in, one per line, such as 10.1.0.0/16; the public internet is always allowed.', validators=[tools.validators.validate_networks], verbose_name='allowed networks')),
                ('timeout', models.FloatField(default=30.0, help_text='Seconds for connecting and for listing the tools.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(300)])),
                ('enabled', models.BooleanField(default=True)),
                ('hosted', models.BooleanField(default=False, help_text="The model's provider calls the approved tools instead of Parley: the URL, headers and secrets are sent to providers. Only providers with remote MCP support this.", verbose_name='called by the provider')),
                ('listing', models.JSONField(default=list, editable=False)),
                ('listed_at', models.DateTimeField(editable=False, null=True)),
                ('about', models.JSONField(default=dict, editable=False)),
                ('error', models.TextField(blank=True, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('oauth_flow', models.CharField(blank=True, choices=[('machine', 'client credentials'), ('person', 'a member of staff signs in')], help_text='Empty if the server needs no sign-in, or secret headers are enough.', max_length=10, verbose_name='sign-in')),
                ('renewing_until', models.DateTimeField(editable=False, null=True)),
                ('sign_in', llm.db.encrypted_field.EncryptedTextField(blank=True, default='', editable=False)),
                ('sign_in_renews', models.BooleanField(default=False, editable=False)),
                ('signed_in_at', models.DateTimeField(editable=False, null=True)),
                ('signed_in_until', models.DateTimeField(editable=False, null=True)),
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
                ('signed_in_by', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('hosted_tool', models.OneToOneField(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='mcp_server', to='tools.tool')),
            ],
            options={
                'verbose_name': 'MCP server',
                'verbose_name_plural': 'MCP servers',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='HttpTool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('method', models.CharField(choices=[('GET', 'GET'), ('HEAD', 'HEAD'), ('POST', 'POST'), ('PUT', 'PUT'), ('PATCH', 'PATCH'), ('DELETE', 'DELETE')], default='GET', max_length=10)),
                ('url', models.CharField(help_text='URL with placeholders in its path, such as https://host/orders/{id}. Put secrets into a secret header, not here.', max_length=2000, verbose_name='URL')),
                ('parameters', models.JSONField(default=tools.models.http_tool.no_parameters, help_text='JSON Schema of the arguments, an object.', validators=[tools.validators.validate_parameters])),
                ('places', models.JSONField(blank=True, default=dict, help_text='Where each argument is sent, as in {"lang": "header:Accept-Language"}: path, query, query_commas, query_deep, header, body or whole_body, then a colon and its name there. An argument that is not listed goes into the path if the URL has a placeholder for it, into the query for GET, HEAD and DELETE, and into the body otherwise.', validators=[tools.validators.validate_places])),
                ('body', models.CharField(choices=[('json', 'JSON'), ('form', 'form fields')], default='json', max_length=10)),
                ('headers', models.JSONField(blank=True, default=dict, help_text='Sent with each call. Put secrets into the secret headers, not here.', validators=[tools.validators.validate_headers])),
                ('secret_names', models.JSONField(default=list, editable=False)),
                ('secret_headers', llm.db.encrypted_field.EncryptedTextField(blank=True, default='', editable=False)),
                ('read_as', models.CharField(choices=[('auto', 'according to its content type'), ('json', 'JSON'), ('text', 'text')], default='auto', max_length=10, verbose_name='read the response as')),
                ('pointer', models.CharField(blank=True, help_text='JSON Pointer to the part of the response that the model receives, such as /data/items; empty for all of it.', max_length=500, validators=[django.core.validators.RegexValidator('\\A/', 'Write a pointer such as /data/items.')])),
                ('max_size', models.PositiveIntegerField(default=1048576, help_text='Maximum size of a response in bytes; a larger response is an error.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(20971520)], verbose_name='size limit')),
                ('networks', models.TextField(blank=True, help_text="Private networks that this tool may reach, one per line, such as 10.1.0.0/16; the public internet is always allowed. A cloud's metadata address must be listed explicitly.", validators=[tools.validators.validate_networks], verbose_name='allowed networks')),
                ('async_answers', models.BooleanField(default=False, help_text='The response “202 Accepted” is not the result: the server continues its work, and Parley polls for the result or receives it at a callback URL.', verbose_name='202 means pending')),
                ('callback_place', models.CharField(blank=True, help_text='Where the request carries the URL to which the server may post the result, such as header:X-Callback-URL, body:callback_url or query:callback; needs PUBLIC_URL. Empty to send no callback URL.', max_length=200, verbose_name='callback URL')),
                ('job_pointer', models.CharField(blank=True, help_text='JSON Pointer, in the 202 response, to the URL of the result or to the id of the job; empty for the header Location.', max_length=500, validators=[django.core.validators.RegexValidator('\\A/', 'Write a pointer such as /data/items.')], verbose_name='pointer to the job')),
                ('job_url', models.CharField(blank=True, help_text='URL of a job with its id, such as https://host/jobs/{id}; empty if the response has the complete URL.', max_length=2000, verbose_name='URL of a job')),
                ('pending_states', models.CharField(blank=True, help_text='Values of the state that mean not done, separated by commas, such as queued, running.', max_length=500, verbose_name='pending states')),
                ('poll_after', models.FloatField(blank=True, help_text='Seconds between polls if the server sends no Retry-After; empty for 10.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3600)], verbose_name='polling interval')),
                ('state_pointer', models.CharField(blank=True, help_text="JSON Pointer, in the response of the job's URL, to the state of the job; empty if the status 202 means that it is not done.", max_length=500, validators=[django.core.validators.RegexValidator('\\A/', 'Write a pointer such as /data/items.')], verbose_name='pointer to the state')),
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
                ('tool', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='http', to='tools.tool')),
            ],
            options={
                'verbose_name': 'HTTP request',
                'verbose_name_plural': 'HTTP request',
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ToolVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('made_at', models.DateTimeField(auto_now_add=True)),
                ('note', models.CharField(blank=True, max_length=200)),
                ('snapshot', models.JSONField()),
                ('made_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='tools.tool')),
            ],
            options={
                'ordering': ['-number'],
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('tool', 'number'), name='tools_toolversion_once')],
            },
        ),
        migrations.CreateModel(
            name='McpTool',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('remote_name', models.CharField(max_length=500)),
                ('definition', models.JSONField()),
                ('approved_at', models.DateTimeField()),
                ('difference', models.CharField(blank=True, choices=[('changed', 'changed, held back'), ('gone', 'no longer listed')], help_text='Differences between the approved definition and the last listed one.', max_length=10)),
                ('approved_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tools', to='tools.mcpserver')),
                ('tool', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='mcp', to='tools.tool')),
            ],
            options={
                'verbose_name': 'MCP tool',
                'ordering': ['remote_name'],
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('server', 'remote_name'), name='tools_mcptool_once')],
            },
        ),
        migrations.CreateModel(
            name='McpRejection',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('remote_name', models.CharField(max_length=500)),
                ('digest', models.CharField(max_length=64)),
                ('rejected_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('rejected_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rejections', to='tools.mcpserver')),
            ],
            options={
                'verbose_name': 'rejected definition',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('server', 'remote_name'), name='tools_mcprejection_once')],
            },
        ),
        migrations.CreateModel(
            name='McpEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('kind', models.CharField(choices=[('listed', 'listed its tools'), ('changed', 'lists other tools'), ('not_connected', 'no connection'), ('call_failed', 'a call failed')], max_length=20)),
                ('is_failure', models.BooleanField()),
                ('tool', models.CharField(blank=True, max_length=500)),
                ('text', models.CharField(blank=True, max_length=500)),
                ('seconds', models.FloatField(null=True)),
                ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='tools.mcpserver')),
            ],
            options={
                'verbose_name': 'event of an MCP server',
                'ordering': ['-pk'],
                'default_permissions': (),
                'indexes': [models.Index(fields=['server', 'is_failure', '-id'], name='tools_mcpevent_newest')],
            },
        ),
        migrations.CreateModel(
            name='McpSignIn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('state', models.CharField(max_length=64, unique=True)),
                ('secrets', llm.db.encrypted_field.EncryptedTextField()),
                ('expires_at', models.DateTimeField()),
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
                ('server', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools.mcpserver')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'sign-in at an MCP server',
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('server', 'user'), name='tools_mcpsignin_once')],
            },
        ),
    ]
