"""Row of a language model, with the options that staff set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm import providers
from llm.capabilities import LIMITS
from llm.forms.validators import validate_model_options, validate_object
from llm.models.provider import Provider, is_disabled
from llm.pricing import cost as prices
from llm.wire.request import Request

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
        """Models that are enabled in their rows and in the environment, and not
        retired."""
        kinds = [k for k in providers.all_providers() if not is_disabled(k)]
        return self.filter(
            Q(retires_at=None) | Q(retires_at__gt=timezone.now()),
            enabled=True,
            provider__enabled=True,
            provider__kind__in=kinds,
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

    def fallback_keys(self) -> dict[int, list[int]]:
        """By model, the keys of its fallbacks in the order in which calls try them."""
        links = LanguageModel.fallbacks.through.objects.order_by("pk")
        keys: dict[int, list[int]] = {}
        pairs = links.filter(from_languagemodel__in=self.order_by().values("pk"))
        for model, fallback in pairs.values_list(
            "from_languagemodel", "to_languagemodel"
        ):
            keys.setdefault(model, []).append(fallback)
        return keys


class LanguageModel(models.Model):
    provider = models.ForeignKey(Provider, models.CASCADE, related_name="models")
    name = models.CharField(
        max_length=200, help_text=_("The provider's name of the model.")
    )
    alias = models.CharField(
        max_length=100,
        unique=True,
        null=True,
        blank=True,
        validators=[
            RegexValidator(
                r"\A[\w.:@+-]+\Z", _("An alias cannot contain spaces or slashes.")
            )
        ],
        help_text=_("Alternative name that programs may use."),
    )
    label = models.CharField(
        max_length=100, blank=True, help_text=_("Label that people see in the chat.")
    )
    description = models.CharField(
        max_length=300,
        blank=True,
        default="",
        db_default="",
        help_text=_("What it is good for, shown where people choose a model."),
    )
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(
        default=False,
        help_text=_("Model of new conversations for which none was chosen."),
    )
    capabilities = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            "Features that the model supports, for example"
            ' {"tools": true, "vision": false, "reasoning": true}.'
        ),
    )
    #: What the last probe found, by name; `capabilities` override it.
    probed_capabilities = models.JSONField(null=True, blank=True, editable=False)
    probed_at = models.DateTimeField(null=True, blank=True, editable=False)
    #: The `probe_target` of that probe; null if it was not stored then.
    probed_target = models.TextField(null=True, blank=True, editable=False)
    #: What a sync has stored from the provider's list, by name.
    listed_values = models.JSONField(null=True, blank=True, editable=False)
    #: When staff overrode a capability, by its name.
    overridden_at = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField()), editable=False
    )
    context_window = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Maximum of input and output tokens together."),
    )
    max_output_tokens = models.PositiveIntegerField(
        null=True, blank=True, help_text=_("Maximum of output tokens.")
    )
    options = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            'Options for every request, for example {"temperature": 0.2}; "extra" is'
            " copied into the body of the provider's request."
        ),
    )
    prices = models.JSONField(
        _("prices without a date"),
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            "USD per million tokens, if the price list is wrong or has no price, for"
            ' example {"input": 2, "cached_input": 0.5, "output": 8}. Used until the'
            ' first price with a date is valid. Optional: "web_search", "file_search"'
            ' (USD per 1,000), and factors of service tiers: "tiers": {"flex": 0.5}.'
        ),
    )
    #: The rows of `ModelPrice`, oldest first, so that calls need no query for them.
    price_schedule = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField()), editable=False
    )
    #: Calls try them in the order of their links, which `set_fallbacks` makes.
    fallbacks = models.ManyToManyField("self", symmetrical=False, blank=True)
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Groups that may use it; empty means everybody.")
    )
    retires_at = models.DateTimeField(
        _("retired from"),
        null=True,
        blank=True,
        help_text=_(
            "From then on nobody can choose it, and requests for it go to its"
            " replacement. Without a replacement they are refused."
        ),
    )
    replacement = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="replaces",
        help_text=_("The model that answers once this one is retired."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = LanguageModelQuerySet.as_manager()

    OVERRIDE_COLUMNS = ("capabilities", "overridden_at", "listed_values", *LIMITS)

    #: The retired model in whose place this one answers. No column.
    stands_in_for: LanguageModel | None = None
    #: The model pool by whose name this model was found. No column.
    pool_name: str = ""

    class Meta:
        ordering = ["provider__name", "name"]
        permissions = [("test_languagemodel", "Can send test prompts to models")]
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
        pools = apps.get_model("llm", "ModelPool").objects
        if self.alias and pools.filter(name=self.alias).exists():
            problems["alias"] = _("A model pool has this name.")
        if wrong := self._replacement_problem():
            problems["replacement"] = wrong
        if problems:
            raise ValidationError(problems)

    def _replacement_problem(self) -> Any:
        """Why the replacement cannot answer for this model; "" if it can."""
        row = self.replacement
        if row is not None and self.retires_at is None:
            return _("Enter the date from which it answers.")
        seen = set()
        while row is not None and row.pk not in seen:
            if row.pk == self.pk:
                return _("This model is in turn the replacement of that one.")
            seen.add(row.pk)
            row = row.replacement
        return ""

    @property
    def probe_target(self) -> str:
        """Where a probe sends its requests, and how; headers make no difference."""
        provider = self.provider
        known = provider.options if isinstance(provider.options, dict) else {}
        options = {name: value for name, value in known.items() if name != "headers"}
        parts = [provider.kind, provider.base_url, provider.codec, options, self.name]
        # Not orjson: it refuses integers over 64 bits, and writes some floats otherwise
        # than the migration that named the targets of earlier probes.
        return json.dumps(
            parts, sort_keys=True, ensure_ascii=False, separators=(",", ":")
        )

    @property
    def is_probe_outdated(self) -> bool:
        """Whether the provider or the name has changed since the last probe."""
        return self.probed_target is not None and (
            self.probed_target != self.probe_target
        )

    @property
    def findings(self) -> Mapping[str, bool]:
        """What the last probe found, if it still counts, by name."""
        found = self.probed_capabilities
        return found if found and not self.is_probe_outdated else {}

    def forget_findings(self) -> None:
        """Let what counts without a probe count again, until the next one."""
        self.probed_capabilities = self.probed_at = self.probed_target = None
        self.save(update_fields=["probed_capabilities", "probed_at", "probed_target"])

    @property
    def overrides(self) -> dict[str, Any]:
        """The capabilities and limits that staff or a sync have set, by name."""
        stated = {name: getattr(self, name) for name in LIMITS}
        known = {name: limit for name, limit in stated.items() if limit is not None}
        return {**self.capabilities, **known}

    def override(self, names: Iterable[str], values: Mapping[str, Any]) -> None:
        """Set those of `names` that are in `values`, and return the others to their
        defaults. Saves nothing."""
        before, kept = self.overrides, dict(self.capabilities)
        for name in names:
            kept.pop(name, None)
            if name in LIMITS:
                setattr(self, name, values.get(name))
            elif name in values:
                kept[name] = values[name]
        self.capabilities = kept
        self.note_overrides(before)

    def store_listed(self, values: Mapping[str, Any]) -> None:
        """Override by `values` of the provider's list. Saves nothing."""
        self.override(values, values)
        self.listed_values = {**(self.listed_values or {}), **values}

    def is_listed(self, name: str) -> bool:
        """Whether the value is one that a sync stored and nobody has changed since."""
        listed = self.listed_values or {}
        return name in listed and self.overrides.get(name) == listed[name]

    def note_overrides(self, before: Mapping[str, Any]) -> None:
        """Date the overrides that differ from those of `before`. Saves nothing."""
        now, after = timezone.now().isoformat(), self.overrides
        self.overridden_at = {
            name: now
            if name not in before or before[name] != value
            else self.overridden_at.get(name)
            for name, value in after.items()
        }
        if self.listed_values:
            self.listed_values = {
                name: value
                for name, value in self.listed_values.items()
                if name not in before.keys() | after.keys()
                or before.get(name) == after.get(name)
            }

    def make_default(self) -> None:
        self.is_default = True
        self.save(update_fields=["is_default"])

    @property
    def fallback_keys(self) -> list[int]:
        """In the order in which calls try them."""
        models = LanguageModel.objects.filter(pk=self.pk)
        return models.fallback_keys().get(self.pk, [])

    @transaction.atomic
    def set_fallbacks(self, wanted: Sequence[LanguageModel]) -> bool:
        """Let calls try these, in this order. Return False if nothing changes."""
        before, after = self.fallback_keys, [model.pk for model in wanted]
        if before == after:
            return False
        pairs = enumerate(zip_longest(before, after))
        first = next(at for at, (old, new) in pairs if old != new)
        self.fallbacks.remove(*before[first:])
        for key in after[first:]:  # one by one: `add` of several has no order
            self.fallbacks.add(key)
        return True

    @property
    def full_name(self) -> str:
        return f"{self.provider.name}/{self.name}"

    @property
    def public_name(self) -> str:
        """The model's name in the APIs: the alias, else `provider/model`."""
        return self.alias or self.full_name

    @property
    def is_retired(self) -> bool:
        return self.retires_at is not None and self.retires_at <= timezone.now()

    def current_for(self, user: Any) -> LanguageModel:
        """The model that answers requests of `user` for this one: its replacement once
        it is retired. Itself if no replacement is left that `user` may see."""
        found, seen = self, {self.pk}
        while found.is_retired:
            rows = LanguageModel.objects.available_to(user).select_related("provider")
            row = rows.filter(pk=found.replacement_id or 0).first()
            if row is None or row.pk in seen:
                return self
            seen.add(row.pk)
            found = row
        if found is not self:
            found.stands_in_for = self
        return found

    @property
    def why_unusable(self) -> str:
        """The reason as part of a sentence; "" if the model can be used."""
        if not self.enabled:
            return "the model is switched off"
        if self.retires_at is not None and self.is_retired:
            return f"it was retired on {self.retires_at:%Y-%m-%d}"
        return self.provider.why_unusable
