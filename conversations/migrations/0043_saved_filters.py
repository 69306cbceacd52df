from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('conversations', '0042_favourite_models'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedFilter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('list_of', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=60, verbose_name='name')),
                ('query', models.CharField(max_length=1000)),
                ('is_shared', models.BooleanField(default=False, verbose_name='for all staff')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'saved filter',
                'ordering': ['name', 'pk'],
                'default_permissions': (),
                'indexes': [models.Index(fields=['list_of'], name='conversations_filters_of_list')],
                'constraints': [models.UniqueConstraint(fields=('owner', 'list_of', 'name'), name='conversations_saved_filter_once')],
            },
        ),
    ]
