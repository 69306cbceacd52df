"""Sums of model calls: one row for each day and everything that usage is grouped by.

`llm.pricing.usage_counting` adds calls to them.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class UsageSum(models.Model):
    """The calls of one day that agree in all of the level's columns above the counts.

    Each call is in one row of each level of days, so a report reads the level with the
    fewest rows. Levels of months are made from those of days, for months that are over
    (`llm.pricing.usage_months`); their day is the month's first. Ids are no foreign
    keys: a sum outlives what it names. 0 stands for none.
    """

    class Level(models.TextChoices):
        """The columns that identify a row of a day; the others are empty."""

        DETAIL = "", _("everything")
        MODEL = "model", _("provider, model, purpose, status")
        USER = "user", _("user")
        TOKEN = "token", _("access token")
        TAG = "tag", _("tags")
        KEY = "key", _("API key")
        USER_MONTH = "userm", _("user, in a month")
        TOKEN_MONTH = "tokm", _("access token, in a month")

    key = models.CharField(
        max_length=64, unique=True, help_text=_("Digest of the columns below.")
    )
    level = models.CharField(
        max_length=5, choices=Level.choices, blank=True, default=""
    )
    day = models.DateField(help_text=_("In the server's time zone."))
    provider_name = models.CharField(max_length=100)
    model_name = models.CharField(max_length=200)
    model_id = models.PositiveBigIntegerField(default=0)
    user_id = models.PositiveBigIntegerField(default=0)
    token_id = models.PositiveBigIntegerField(default=0)
    # With a default of the database, as below.
    key_id = models.PositiveBigIntegerField(default=0, db_default=0)
    token_label = models.CharField(max_length=100, blank=True, default="")
    tags = models.CharField(max_length=600, blank=True, default="")
    purpose = models.CharField(max_length=10)
    status = models.CharField(max_length=10)
    # Counts
    calls = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    input_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    cache_write_tokens = models.PositiveBigIntegerField(default=0)
    # With a default of the database: processes of older releases do not write it.
    cache_write_1h_tokens = models.PositiveBigIntegerField(default=0, db_default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    reasoning_tokens = models.PositiveBigIntegerField(default=0)
    cost = models.DecimalField(max_digits=24, decimal_places=12, default=0)
    saved_cost = models.DecimalField(max_digits=24, decimal_places=12, default=0)
    unpriced = models.PositiveBigIntegerField(
        default=0, help_text=_("Calls whose cost is unknown.")
    )
    unmeasured = models.PositiveBigIntegerField(
        default=0, help_text=_("Calls whose host reported no usage.")
    )
    estimated = models.PositiveBigIntegerField(
        default=0, help_text=_("Calls whose tokens are estimated.")
    )
    waited = models.PositiveBigIntegerField(
        default=0, help_text=_("Calls whose time to the first token is known.")
    )
    wait_ms = models.PositiveBigIntegerField(
        default=0, help_text=_("Sum of these times, in milliseconds.")
    )
    from_cache = models.PositiveBigIntegerField(
        default=0, help_text=_("Calls that a stored answer made unnecessary.")
    )
    web_searches = models.PositiveBigIntegerField(default=0, db_default=0)
    file_searches = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        default_permissions = ()
        permissions = [("view_usage", "Can see everybody's usage and its cost")]
        indexes = [
            models.Index(fields=["user_id", "day"], name="llm_usage_user_day"),
            models.Index(fields=["level", "day"], name="llm_usage_level_day"),
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.provider_name}/{self.model_name}: {self.calls}"


class FirstTokenCount(models.Model):
    """How many calls of a model waited how long for the first token, on one day."""

    day = models.DateField()
    provider_name = models.CharField(max_length=100)
    model_name = models.CharField(max_length=200)
    step = models.PositiveSmallIntegerField(
        help_text=_("Eighths of the binary logarithm of the milliseconds.")
    )
    calls = models.PositiveBigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["day", "provider_name", "model_name", "step"],
                name="llm_first_token_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.provider_name}/{self.model_name}: {self.calls}"
