from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import Exists, OuterRef
from django.utils.translation import gettext_lazy as _

from llm import providers
from llm.forms.validators import validate_model_options, validate_object
from llm.models.provider import Provider, is_disabled
from llm.pricing import cost as prices
from llm.wire.request import Request

if TYPE_CHECKING:
    from llm.provider import Route

#: Request fields that staff may set for a model; the others come from the turn.
REQUEST_OPTIONS = frozenset(field.name for field in fields(Request)) - {
    "model",
    "items",
    "instructions",
    "tools",
    "stream",
    "issuer",
}


class LanguageModelQuerySet(models.QuerySet["LanguageModel"]):
    def usable(self) -> LanguageModelQuerySet:
        """Models that are enabled in their rows and in the environment."""
        kinds = [k for k in providers.all_providers() if not is_disabled(k)]
        return self.filter(
            enabled=True, provider__enabled=True, provider__kind__in=kinds
        )

    def available_to(self, user: Any) -> LanguageModelQuerySet:
        """Models that `user` may see. `user=None` is for internal use: all models."""
        if user is None or user.is_superuser:
            return self
        restricted = LanguageModel.groups.through.objects.filter(
            languagemodel=OuterRef("pk")
        )
        if user.pk is None:  # an anonymous user
            return self.filter(~Exists(restricted))
        return self.filter(
            ~Exists(restricted) | Exists(restricted.filter(group__user=user.pk))
        )


class LanguageModel(models.Model):
    provider = models.ForeignKey(Provider, models.CASCADE, related_name="models")
    name = models.CharField(max_length=200, help_text=_("As the provider spells it."))
    alias = models.CharField(
        max_length=100,
        unique=True,
        null=True,
        blank=True,
        validators=[
            RegexValidator(
                r"\A[\w.:@+-]+\Z", _("An alias has no spaces and no slashes.")
            )
        ],
        help_text=_("A name of your own that programs may use."),
    )
    label = models.CharField(
        max_length=100, blank=True, help_text=_("What people see in the chat.")
    )
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(
        default=False, help_text=_("Chosen where nobody chose.")
    )
    capabilities = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            "What it can do, for example"
            ' {"tools": true, "vision": false, "reasoning": true}.'
        ),
    )
    context_window = models.PositiveIntegerField(
        null=True, blank=True, help_text=_("Tokens of prompt and answer together.")
    )
    max_output_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text=_("Tokens of one answer at most.")
    )
    options = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            'Options of every request, for example {"temperature": 0.2}; "extra" goes'
            " into the provider's body as it is."
        ),
    )
    prices = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            "USD per million tokens, where the price list is wrong or silent, for"
            ' example {"input": 2, "cached_input": 0.5, "output": 8}.'
        ),
    )
    fallbacks = models.ManyToManyField("self", symmetrical=False, blank=True)
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Who may use it; nobody named means everybody.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    #: Its route, if it was resolved for this instance. No column.
    resolved_route: Route | None = None

    objects = LanguageModelQuerySet.as_manager()

    class Meta:
        ordering = ["provider__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "name"], name="llm_model_once_per_provider"
            ),
            models.UniqueConstraint(
                fields=["is_default"],
                condition=models.Q(is_default=True),
                name="llm_one_default_model",
            ),
        ]

    def __str__(self) -> str:
        return self.label or self.name

    @transaction.atomic
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saving a default model removes the flag from the previous default."""
        if self.is_default:
            others = LanguageModel.objects.filter(is_default=True).exclude(pk=self.pk)
            others.update(is_default=False)
        super().save(*args, **kwargs)

    def validate_constraints(self, exclude: Any = None) -> None:
        # A second default is not an error: `save` removes the flag from the first.
        super().validate_constraints({*(exclude or ()), "is_default"})

    def clean(self) -> None:
        self.alias = self.alias or None
        for name in ("capabilities", "options", "prices"):
            setattr(self, name, getattr(self, name) or {})
        problems: dict[str, Any] = {}
        try:
            validate_model_options(self.options, REQUEST_OPTIONS)
        except ValidationError as exc:
            problems["options"] = exc.messages
        if isinstance(self.prices, dict) and (wrong := prices.problems(self.prices)):
            problems["prices"] = wrong
        if problems:
            raise ValidationError(problems)

    def make_default(self) -> None:
        self.is_default = True
        self.save(update_fields=["is_default"])

    @property
    def full_name(self) -> str:
        return f"{self.provider.name}/{self.name}"

    @property
    def public_name(self) -> str:
        """The model's name in the APIs: the alias, else `provider/model`."""
        return self.alias or self.full_name

    @property
    def why_unusable(self) -> str:
        """The reason as part of a sentence; "" if the model can be used."""
        return self.provider.why_unusable if self.enabled else "it is switched off"
