"""Limits of use that staff set for everybody, groups, users and access tokens."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.access_token import NANOS_PER_DOLLAR, AccessToken
from llm.models import LanguageModel

DEFAULT_WARNING = 80  # percent


class LimitPeriod(models.TextChoices):
    DAY = "day", _("a day")
    MONTH = "month", _("a month")
    TOTAL = "total", _("in all")


def period_name(period: str, today: date | None = None) -> str:
    """The current period: "2026-11-21", "2026-11" or "total". Days are those of
    TIME_ZONE."""
    today = today or timezone.localdate()
    match period:
        case LimitPeriod.DAY:
            return today.isoformat()
        case LimitPeriod.MONTH:
            return f"{today:%Y-%m}"
    return "total"


def period_end(period: str) -> datetime | None:
    """When the current period ends; None for one that does not."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case LimitPeriod.DAY:
            return today + timedelta(days=1)
        case LimitPeriod.MONTH:
            return (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    return None


def _amount(verbose_name: Any, help_text: Any = "") -> Any:
    return models.PositiveBigIntegerField(
        verbose_name, null=True, blank=True, help_text=help_text
    )


class LimitedAmounts(models.Model):
    """The four measures of use; an empty one is not limited."""

    requests = _amount(
        _("requests"), _("Messages, and requests of programs; 0 allows none.")
    )
    tokens = _amount(_("tokens"), _("Input and output of all models together."))
    cost = models.DecimalField(
        _("cost in USD"),
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0))],
    )
    size = _amount(_("bytes"), _("Bytes of the messages that are sent."))

    class Meta:
        abstract = True

    @property
    def cost_nanos(self) -> int | None:
        """Billionths of a USD."""
        return None if self.cost is None else int(self.cost * NANOS_PER_DOLLAR)

    @property
    def has_amount(self) -> bool:
        amounts = (self.requests, self.tokens, self.cost, self.size)
        return any(amount is not None for amount in amounts)


def check_model_amounts(row: LimitedAmounts, model_id: int | None) -> None:
    """Raises ValidationError where the row is of one model and has amounts that are
    counted for all models together."""
    if model_id is not None and (row.requests, row.size) != (None, None):
        raise ValidationError(_("Of one model only tokens and cost can be limited."))


class UsageLimit(LimitedAmounts):
    """What a user, each member of a group, a group together, a token, or everybody
    without a limit of their own may use in a period: of all models, or of one."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="usage_limits",
    )
    group = models.ForeignKey(
        Group, models.CASCADE, null=True, blank=True, related_name="usage_limits"
    )
    token = models.ForeignKey(
        AccessToken,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="usage_limits",
        help_text=_("User, group and token empty: everybody's default."),
    )
    is_shared = models.BooleanField(
        _("members share it"),
        default=False,
        help_text=_("The group's members have the amounts together, not each."),
    )
    model = models.ForeignKey(
        LanguageModel,
        models.CASCADE,
        null=True,
        blank=True,
        verbose_name=_("only of the model"),
        related_name="usage_limits",
        help_text=_(
            "Empty: of all models together. The limit of a model is of tokens or cost"
            " and applies besides those."
        ),
    )
    period = models.CharField(
        max_length=5, choices=LimitPeriod.choices, default=LimitPeriod.MONTH
    )
    warn_at = models.PositiveSmallIntegerField(
        _("warn at"),
        default=DEFAULT_WARNING,
        db_default=DEFAULT_WARNING,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text=_(
            "Percent of an amount at which the user and staff are warned; nothing is"
            " refused before 100."
        ),
    )

    class Meta:
        verbose_name = _("usage limit")
        verbose_name_plural = _("usage limits")
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=[*subject, *of_model, "period"],
                condition=condition & models.Q(model__isnull=not of_model),
                name=f"conversations_limit_{name}{'_model' * bool(of_model)}",
                violation_error_message=_("There is a limit for this period already."),
            )
            for of_model in ([], ["model"])
            for name, subject, condition in (
                ("user", ["user"], models.Q(user__isnull=False)),
                ("group", ["group", "is_shared"], models.Q(group__isnull=False)),
                ("token", ["token"], models.Q(token__isnull=False)),
                ("default", [], models.Q(user=None, group=None, token=None)),
            )
        ]

    def __str__(self) -> str:
        of_model = f", {self.model}" if self.model else ""
        return f"{self.subject}, {self.get_period_display()}{of_model}"

    @property
    def subject(self) -> str:
        return str(self.user or self.group or self.token or _("everybody"))

    def clean(self) -> None:
        subjects = (self.user_id, self.group_id, self.token_id)
        if sum(subject is not None for subject in subjects) > 1:
            raise ValidationError(_("Choose a user, a group or a token, not several."))
        if self.is_shared and self.group_id is None:
            raise ValidationError({"is_shared": _("Only a group's members share.")})
        if not self.has_amount:
            raise ValidationError(_("Enter at least one amount."))
        check_model_amounts(self, self.model_id)


class LimitRaise(LimitedAmounts):
    """Amounts added to the limits of a user or of a group's pool for a time."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="limit_raises",
    )
    group = models.ForeignKey(
        Group,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="limit_raises",
        help_text=_("For the amounts that the group's members share."),
    )
    model = models.ForeignKey(
        LanguageModel,
        models.CASCADE,
        null=True,
        blank=True,
        verbose_name=_("only of the model"),
        related_name="limit_raises",
        help_text=_(
            "Empty: added to the limit of all models together, otherwise to that of the"
            " model."
        ),
    )
    period = models.CharField(
        _("added to the limit for"),
        max_length=5,
        choices=LimitPeriod.choices,
        default=LimitPeriod.MONTH,
    )
    reason = models.CharField(max_length=500)
    ends_at = models.DateTimeField(_("ends"))
    granted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = _("temporary raise")
        verbose_name_plural = _("temporary raises")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["ends_at"], name="conversations_raise_end"),
        ]

    def __str__(self) -> str:
        of_model = f", {self.model}" if self.model else ""
        return f"{self.user or self.group}, {self.get_period_display()}{of_model}"

    def clean(self) -> None:
        if (self.user_id is None) == (self.group_id is None):
            raise ValidationError(_("Choose a user or a group."))
        if not self.has_amount:
            raise ValidationError(_("Enter at least one amount."))
        check_model_amounts(self, self.model_id)
        if self.ends_at is not None and self.ends_at <= timezone.now():
            raise ValidationError({"ends_at": _("The end must lie in the future.")})
