from __future__ import annotations

import conversations.models.share_link
import django.db.models.deletion
import llm.db.encrypted_field
import llm.db.secret_rows
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('conversations', '0029_finding_and_keeping'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='attachment',
            name='uploaded_by',
            field=models.ForeignKey(blank=True, help_text="Participant who sent it; empty for the conversation's owner.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='turn',
            name='author',
            field=models.ForeignKey(blank=True, db_index=False, help_text="Participant who wrote it; empty for the conversation's owner.", null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='turn',
            name='author_name',
            field=models.CharField(blank=True, db_default='', default='', help_text="The participant's name, which remains if the account is deleted.", max_length=150),
        ),
        migrations.CreateModel(
            name='ShareLink',
            fields=[
                ('secret_id', models.UUIDField(db_default=llm.db.secret_rows.RandomUUID(), default=uuid.uuid4, editable=False, unique=True)),
                ('id', models.CharField(default=conversations.models.share_link.share_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('token_digest', models.CharField(editable=False, max_length=64, unique=True)),
                ('token', llm.db.encrypted_field.EncryptedTextField(editable=False)),
                ('audience', models.CharField(choices=[('group', 'one of my groups'), ('signed_in', 'everybody who can sign in here'), ('public', 'everybody who has the link')], max_length=10)),
                ('kind', models.CharField(choices=[('snapshot', 'what is there now'), ('live', 'also what follows')], max_length=10)),
                ('last_item', models.BigIntegerField(blank=True, editable=False, help_text='The last item that a snapshot shows.', null=True)),
                ('shows_owner', models.BooleanField(default=False, verbose_name='my name')),
                ('shows_reasoning', models.BooleanField(default=False, verbose_name="the model's thoughts")),
                ('shows_arguments', models.BooleanField(default=False, verbose_name='what tools were called with')),
                ('shows_results', models.BooleanField(default=False, verbose_name='results of tools')),
                ('views', models.PositiveIntegerField(default=0, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='share_links', to='conversations.conversation')),
                ('group', models.ForeignKey(blank=True, help_text='Group whose members may open the link.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='auth.group')),
                ('leaf', models.ForeignKey(blank=True, help_text='The last turn of what is shared.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='conversations.turn')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='share_links', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='ShareRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('widest', models.CharField(choices=[('off', 'nothing'), ('group', 'with their groups'), ('signed_in', 'with everybody who can sign in'), ('public', 'with everybody')], max_length=10, verbose_name='may share')),
                ('group', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='share_rule', to='auth.group')),
            ],
        ),
        migrations.CreateModel(
            name='Participant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='The name that was invited.', max_length=150)),
                ('role', models.CharField(choices=[('viewer', 'read'), ('writer', 'read and write'), ('approver', 'read, write and decide about tool calls')], default='viewer', max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('accepted_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('conversation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='participants', to='conversations.conversation')),
                ('invited_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='participations', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['created_at', 'pk'],
                'indexes': [models.Index(condition=models.Q(('revoked_at', None)), fields=['user', 'conversation'], name='conversations_participant_now')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('revoked_at', None)), fields=('conversation', 'name'), name='conversations_participant_once')],
            },
        ),
    ]
