"""Rows of model pools: one name for the same model at several hosts."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from llm.models.language_model import LanguageModel


class ModelPool(models.Model):
    class Strategy(models.TextChoices):
        WEIGHTS = "weights", _("By weight")
        LEAST_BUSY = "least_busy", _("Least busy")

    name = models.CharField(
        max_length=100,
        unique=True,
        validators=[
            RegexValidator(
                r"\A[\w.:@+-]+\Z", _("A name cannot contain spaces or slashes.")
            )
        ],
        help_text=_("Programs use this name as their model."),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    strategy = models.CharField(
        _("strategy"),
        max_length=10,
        choices=Strategy.choices,
        default=Strategy.WEIGHTS,
        help_text=_(
            "By weight: hosts answer in proportion to their weights, and a conversation"
            " that goes on stays with its host, whose prompt cache knows it. Least"
            " busy: the host with the fewest running answers for its weight."
        ),
    )
    cooldown = models.PositiveSmallIntegerField(
        _("cooldown"),
        default=30,
        validators=[MaxValueValidator(3_600)],
        help_text=_(
            "Seconds for which a host comes last after three failures in a row."
        ),
    )

    class Meta:
        ordering = ["name"]
        verbose_name = _("model pool")
        verbose_name_plural = _("model pools")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if LanguageModel.objects.filter(alias=self.name).exists():
            raise ValidationError({"name": _("A model has this name as its alias.")})


class PoolMember(models.Model):
    pool = models.ForeignKey(ModelPool, models.CASCADE, related_name="members")
    model = models.ForeignKey(LanguageModel, models.CASCADE, related_name="memberships")
    weight = models.PositiveSmallIntegerField(
        _("weight"),
        default=1,
        validators=[MaxValueValidator(1_000)],
        help_text=_("0: it answers only if the others cannot."),
    )

    class Meta:
        ordering = ["pk"]
        verbose_name = _("host")
        verbose_name_plural = _("hosts")
        constraints = [
            models.UniqueConstraint(
                fields=["pool", "model"], name="llm_model_once_per_pool"
            )
        ]

    def __str__(self) -> Any:
        return str(self.model)
