"""Row of how often a tool was called in an hour, a day or a month, and how long it
took."""

from __future__ import annotations

from django.db import models


class ToolUse(models.Model):
    """Finished calls of one tool with one outcome. Statistics read these rows instead
    of the calls; `conversations.engine.maintenance.tool_call_counts` writes them."""

    class Span(models.TextChoices):
        HOUR = "h"
        DAY = "d"
        MONTH = "m"  # of days, for months that are over

    span = models.CharField(max_length=1, choices=Span.choices)
    start = models.DateTimeField(help_text="Begin of the hour, day or month, in UTC.")
    name = models.CharField(max_length=128)
    state = models.CharField(max_length=20)
    blocking = models.BooleanField()
    calls = models.PositiveIntegerField(default=0)
    durations = models.JSONField(
        default=dict, help_text="Calls by the number of their class of durations."
    )
    last_at = models.DateTimeField()
    output_tokens = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Of the results, estimated from their size."
    )
    sized = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Calls whose result's size is known."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["span", "start", "name", "state", "blocking"],
                name="tools_use_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.state} {self.start:%Y-%m-%d %H:%M}"
