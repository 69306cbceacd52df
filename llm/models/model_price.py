"""Row of a model's price from a day on, set by staff; rows together are its history."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.forms.validators import validate_object
from llm.models.language_model import LanguageModel
from llm.pricing.cost import PRICE_NAMES, SEARCH_PRICE_NAMES, TIERS, tier_problems

#: The columns of prices.
COLUMNS = (*PRICE_NAMES, *SEARCH_PRICE_NAMES)


def _usd(label: Any, help_text: Any = "") -> models.DecimalField[Any, Any]:
    return models.DecimalField(
        label,
        help_text=help_text,
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(100_000)],
    )


class ModelPrice(models.Model):
    """USD per million tokens and per 1,000 searches from `valid_from` on; without
    values the bundled list counts again.

    A price in effect is history: it can be followed by another one, but not changed.
    """

    model = models.ForeignKey(
        LanguageModel, models.CASCADE, related_name="dated_prices"
    )
    valid_from = models.DateTimeField(
        _("valid from"),
        default=timezone.now,
        help_text=_("Now or later. Calls that were made keep their cost."),
    )
    input = _usd(_("input"))
    cached_input = _usd(_("cached input"))
    cache_write = _usd(_("cache write"))
    output = _usd(_("output"))
    web_search = _usd(_("web searches"), _("USD per 1,000 searches of the host."))
    file_search = _usd(_("file searches"), _("USD per 1,000 searches of the host."))
    tiers = models.JSONField(
        _("service tiers"),
        default=dict,
        db_default=models.Value({}, models.JSONField()),
        blank=True,
        validators=[validate_object],
        help_text=_(
            "What tokens cost in other service tiers, as factors of these prices, for"
            ' example {"flex": 0.5, "priority": 2}.'
        ),
    )
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
    )
    is_listed = models.BooleanField(
        _("from the provider's list"), default=False, db_default=False, editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-valid_from"]
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = [
            models.UniqueConstraint(
                fields=["model", "valid_from"], name="llm_one_price_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.valid_from:%Y-%m-%d %H:%M}"

    @transaction.atomic
    def save(self, *args: Any, **kwargs: Any) -> None:
        super().save(*args, **kwargs)
        _store_schedule(self.model_id)

    @transaction.atomic
    def delete(self, *args: Any, **kwargs: Any) -> Any:
        deleted = super().delete(*args, **kwargs)
        _store_schedule(self.model_id)
        return deleted

    @property
    def is_in_effect(self) -> bool:
        """Whether it has been used, or may have been."""
        return self.pk is not None and self.valid_from <= timezone.now()

    @property
    def values(self) -> dict[str, Any]:
        """The prices by name; {} for the bundled list."""
        named = ((name, getattr(self, name)) for name in COLUMNS)
        found: dict[str, Any] = {
            n: float(price) for n, price in named if price is not None
        }
        return found | ({TIERS: self.tiers} if self.tiers else {})

    def clean(self) -> None:
        if self.tiers and (wrong := tier_problems(self.tiers)):
            raise ValidationError({TIERS: wrong})
        values = self.values
        if values and not {"input", "output"} <= values.keys():
            raise ValidationError(
                _(
                    "Enter the prices of input and output, or none at all for the"
                    " bundled price list."
                )
            )


def _store_schedule(model_id: int) -> None:
    """Copy all the model's prices to `price_schedule` in its own row. Each call reads
    that row anyway, and so needs no query for prices."""
    model = LanguageModel.objects.select_for_update(no_key=True).get(pk=model_id)
    rows = ModelPrice.objects.filter(model=model).order_by("valid_from")
    model.price_schedule = [
        {"from": _text(row.valid_from), "prices": row.values} for row in rows
    ]
    model.save(update_fields=["price_schedule"])


def _text(moment: datetime) -> str:
    return moment.isoformat()
