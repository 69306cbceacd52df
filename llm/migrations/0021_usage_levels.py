from __future__ import annotations

import hashlib
from typing import Any

from django.db import migrations, models
from django.db.models import F, Max, Sum

_BATCH = 2000
#: What tells the rows of a level apart, as `llm.pricing.usage_counting` has it.
_LEVELS = {
    "model": ("day", "provider_name", "model_name", "purpose", "status"),
    "user": ("day", "user_id"),
    "token": ("day", "token_id"),
    "tag": ("day", "tags"),
}
_COUNTS = (
    "calls",
    "failed",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost",
    "saved_cost",
    "unpriced",
    "unmeasured",
    "from_cache",
)


def add_levels(apps: Any, schema_editor: Any) -> None:
    """Sum up the sums that exist. How long their calls waited is not known."""
    rows = apps.get_model("llm", "UsageSum").objects
    rows.filter(status="failed").update(failed=F("calls"))
    for level, columns in _LEVELS.items():
        sums: dict[str, Any] = {f"sum_{name}": Sum(name) for name in _COUNTS}
        if level == "token":
            sums["label"] = Max("token_label")
        found = rows.filter(level="").order_by().values(*columns).annotate(**sums)
        rows.bulk_create(
            [_row(rows.model, level, columns, row) for row in found],
            batch_size=_BATCH,
        )


def _row(model: Any, level: str, columns: tuple[str, ...], row: Any) -> Any:
    key = "\0".join(map(str, (level, *(row[name] for name in columns))))
    return model(
        level=level,
        key=hashlib.sha256(key.encode()).hexdigest(),
        token_label=row.get("label") or "",
        **{name: row[name] for name in columns},
        **{name: row[f"sum_{name}"] for name in _COUNTS},
    )


def drop_levels(apps: Any, schema_editor: Any) -> None:
    apps.get_model("llm", "UsageSum").objects.exclude(level="").delete()


class Migration(migrations.Migration):

    dependencies = [
        ('llm', '0020_provider_connection_and_key_life'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelcall',
            name='is_estimated',
            field=models.BooleanField(db_default=False, default=False, help_text='The host reported none, or the answer was cut off.', verbose_name='tokens estimated'),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='estimated',
            field=models.PositiveBigIntegerField(default=0, help_text='Calls whose tokens are estimated.'),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='failed',
            field=models.PositiveBigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='level',
            field=models.CharField(blank=True, choices=[('', 'everything'), ('model', 'provider, model, purpose, status'), ('user', 'user'), ('token', 'access token'), ('tag', 'tags')], default='', max_length=5),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='wait_ms',
            field=models.PositiveBigIntegerField(default=0, help_text='Sum of these times, in milliseconds.'),
        ),
        migrations.AddField(
            model_name='usagesum',
            name='waited',
            field=models.PositiveBigIntegerField(default=0, help_text='Calls whose time to the first token is known.'),
        ),
        migrations.AlterField(
            model_name='usagesum',
            name='day',
            field=models.DateField(help_text="In the server's time zone."),
        ),
        migrations.RunPython(add_levels, drop_levels),
        migrations.AddIndex(
            model_name='usagesum',
            index=models.Index(fields=['level', 'day'], name='llm_usage_level_day'),
        ),
    ]
