from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import models
from django.utils.translation import gettext_lazy as _

from llm import providers
from llm.encrypted import EncryptedTextField


class Provider(models.Model):
    name = models.CharField(
        max_length=100, unique=True, help_text=_("Shown before its models' names.")
    )
    kind = models.CharField(max_length=50, choices=providers.choices)
    base_url = models.URLField(
        blank=True,
        max_length=500,
        help_text=_("Leave empty for the provider's own address."),
    )
    codec = models.CharField(
        max_length=50,
        blank=True,
        help_text=_("Wire format; leave empty for the provider's usual one."),
    )
    enabled = models.BooleanField(default=True)
    allow_private_network = models.BooleanField(
        default=False,
        help_text=_("The address may lie in our own network (Ollama, vLLM)."),
    )
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text=_("What this kind needs besides, for example extra headers."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        RESTING = "resting", _("resting")
        DISABLED = "disabled", _("disabled")

    provider = models.ForeignKey(Provider, models.CASCADE, related_name="keys")
    label = models.CharField(max_length=100, default="default")
    secret = EncryptedTextField(blank=True)
    hint = models.CharField(max_length=20, blank=True, editable=False)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    weight = models.PositiveSmallIntegerField(
        default=1, help_text=_("Its share of the calls among a provider's keys.")
    )
    rest_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=200, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["provider", "label"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "label"], name="llm_key_label_once_per_provider"
            )
        ]
        verbose_name = _("API key")

    def __str__(self) -> str:
        return f"{self.label} {self.hint}".strip()


class LanguageModel(models.Model):
    provider = models.ForeignKey(Provider, models.CASCADE, related_name="models")
    name = models.CharField(max_length=200, help_text=_("As the provider spells it."))
    alias = models.CharField(
        max_length=100,
        unique=True,
        null=True,
        blank=True,
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
        help_text=_("What it can do: tools, vision, reasoning, …"),
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
        help_text=_("Options of every request, for example a temperature."),
    )
    prices = models.JSONField(
        default=dict,
        blank=True,
        help_text=_("USD per million tokens, where the price list is wrong or silent."),
    )
    fallbacks = models.ManyToManyField("self", symmetrical=False, blank=True)
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Who may use it; nobody named means everybody.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

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

    @property
    def public_name(self) -> str:
        """What programs write: the alias, else `provider/model`."""
        return self.alias or f"{self.provider.name}/{self.name}"


class ModelCall(models.Model):
    """One request to a provider, whatever came of it."""

    class Status(models.TextChoices):
        COMPLETED = "completed", _("completed")
        INCOMPLETE = "incomplete", _("incomplete")
        CANCELLED = "cancelled", _("cancelled")
        FAILED = "failed", _("failed")

    turn_id = models.CharField(max_length=64, blank=True, db_index=True)
    step = models.PositiveSmallIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=1)
    model = models.ForeignKey(
        LanguageModel, models.SET_NULL, null=True, related_name="calls"
    )
    key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, related_name="calls")
    provider_name = models.CharField(max_length=100)
    model_name = models.CharField(max_length=200, help_text=_("As answered."))
    status = models.CharField(max_length=10, choices=Status.choices)
    http_status = models.PositiveSmallIntegerField(null=True)
    error_code = models.CharField(max_length=40, blank=True)
    error_detail = models.TextField(
        blank=True, help_text=_("The provider's own words, for staff.")
    )
    finish_reason = models.CharField(max_length=40, blank=True)
    input_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    cache_write_tokens = models.PositiveIntegerField(null=True)
    output_tokens = models.PositiveIntegerField(null=True)
    reasoning_tokens = models.PositiveIntegerField(null=True)
    cost = models.DecimalField(
        max_digits=14, decimal_places=8, null=True, help_text=_("USD")
    )
    ttft = models.FloatField(null=True, help_text=_("Seconds to the first delta."))
    latency = models.FloatField(null=True, help_text=_("Seconds to the end."))
    request_id = models.CharField(
        max_length=200, blank=True, help_text=_("The provider's, for its support.")
    )
    response_id = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.provider_name}/{self.model_name} {self.status}"
