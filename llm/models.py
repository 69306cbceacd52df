from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import Exists, JSONField, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm import prices, providers
from llm.credentials import one_word
from llm.encrypted import EncryptedTextField, Secret, SecretUnavailable, scrub
from llm.errors import BadRequest
from llm.provider import Endpoint, Route
from llm.provider import Provider as Host
from llm.validators import (
    validate_address,
    validate_headers,
    validate_model_options,
    validate_object,
)
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta
from llm.wire.request import Request

if TYPE_CHECKING:
    from llm.client import Call

#: What staff may set for every request of a model; the turn says the rest.
REQUEST_OPTIONS = frozenset(field.name for field in fields(Request)) - {
    "model",
    "items",
    "instructions",
    "tools",
    "stream",
    "issuer",
}
MAX_ERROR_DETAIL = 4000  # characters
MAX_COST = Decimal(1_000_000)  # USD, of one call


class Provider(models.Model):
    name = models.CharField(
        max_length=100,
        unique=True,
        validators=[
            RegexValidator(
                r"\A[^\s/](?:[^/]*[^\s/])?\Z", _("A provider's name has no slash.")
            )
        ],
        help_text=_("Shown before its models' names."),
    )
    kind = models.CharField(max_length=50, choices=providers.choices)
    base_url = models.CharField(
        _("base URL"),
        blank=True,
        max_length=500,
        validators=[validate_address],
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
    options = JSONField(  # `models` is a name in here, for the type checker
        default=dict,
        blank=True,
        validators=[validate_object],
        help_text=_(
            'What this kind needs besides, for example {"headers": {"X-Team": "a"}}.'
            " No secrets: everybody who sees this page can read it."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Any = None) -> None:
        """Before its fields are looked at, the address becomes one that is stored."""
        self.options = self.options or {}
        if self.host and self.base_url and isinstance(self.options, dict):
            self.base_url, self.options = self.host.tidy(self.base_url, self.options)
        super().clean_fields(exclude)

    def clean(self) -> None:
        problems: dict[str, str] = {}
        host = self.host
        if host and self.codec and self.codec not in host.codecs:
            problems["codec"] = _("%(label)s speaks %(codecs)s.") % {
                "label": host.label,
                "codecs": ", ".join(host.codecs),
            }
        if host and host.needs_base_url and not self.base_url:
            problems["base_url"] = _("%(label)s has no address of its own.") % {
                "label": host.label
            }
        try:
            validate_headers(self.headers)
        except ValidationError as exc:
            problems["options"] = exc.messages[0]
        if host and not problems and isinstance(self.options, dict):
            problems = self._misfits(host)
        if problems:
            raise ValidationError(problems)

    def _misfits(self, host: Host) -> dict[str, str]:
        """What is wrong with the options, by themselves or together."""
        if problem := host.problem(self.options):
            return {"options": problem}
        codec = host.codec(self.codec, self.options)
        endpoint = Endpoint(
            provider=host, codec=codec, base_url=self.base_url, options=self.options
        )
        try:
            host.connect(endpoint)
        except BadRequest as exc:
            return {"options": str(exc)}
        return {}

    @property
    def host(self) -> Host | None:
        """What our code knows of this kind; None where it knows it no longer."""
        return providers.all_providers().get(self.kind)

    @property
    def headers(self) -> Any:
        known = self.options if isinstance(self.options, dict) else {}
        return known.get("headers", {})

    @property
    def address(self) -> str:
        """Where it is asked; "" where nobody knows."""
        if self.base_url or not self.host:
            return self.base_url
        address = self.host.base_url
        if self.is_ourselves:
            return str(settings.SELF_URL) + address.removeprefix("self:")
        return address

    @property
    def is_ourselves(self) -> bool:
        """Whether this very server answers: the demo."""
        return self.host is not None and self.host.base_url.startswith("self:")

    @property
    def why_unusable(self) -> str:
        """Half a sentence, or "" where nothing stands against using it."""
        if not self.enabled:
            return f"its provider {self.name!r} is switched off"
        if self.host is None:
            return f"its provider's kind {self.kind!r} is unknown"
        return self.why_disabled

    @property
    def why_disabled(self) -> str:
        """Half a sentence where the environment switches this kind off, else ""."""
        if not is_disabled(self.kind):
            return ""
        return f"ENABLE_{_flag(self.kind).upper()}=false switches its provider off"


def is_disabled(kind: str) -> bool:
    """Whether the environment switches this kind off: `ENABLE_<KIND>=false`."""
    return _flag(kind) in settings.DISABLED_PROVIDERS


def _flag(kind: str) -> str:
    return kind.lower().replace("-", "_")


KEY_USE_NOTED = timedelta(minutes=1)


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> ApiKeyQuerySet:
        """Those that calls may be made with now."""
        State = ApiKey.State
        rested = Q(state=State.RESTING, rest_until__lte=timezone.now())
        return self.filter(Q(state=State.ACTIVE) | rested, weight__gt=0)

    def note_use(self, now: datetime, error: str) -> None:
        """One write a minute, and one where the error is another: all calls would wait
        for one another to write into the one row of their key."""
        before = Q(last_used_at=None) | Q(last_used_at__lt=now - KEY_USE_NOTED)
        news = self.filter(before | ~Q(last_error=error))
        news.update(last_used_at=now, last_error=error)


class ApiKey(models.Model):
    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        RESTING = "resting", _("resting")
        DISABLED = "disabled", _("disabled")

    provider = models.ForeignKey(Provider, models.CASCADE, related_name="keys")
    label = models.CharField(max_length=100, default="default")
    hint = models.CharField(max_length=20, blank=True, editable=False)
    secret = EncryptedTextField(
        _("key"),
        hint_field="hint",
        validators=[
            RegexValidator(
                r"\A[\x21-\x7e]+\Z", _("A key has no spaces and no special letters.")
            )
        ],
        help_text=_("Stored encrypted and never shown; empty keeps what is stored."),
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    weight = models.PositiveSmallIntegerField(
        default=1,
        help_text=_("Its share of the calls among a provider's keys; 0 takes none."),
    )
    rest_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=200, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ApiKeyQuerySet.as_manager()

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

    def save(self, *args: Any, update_fields: Any = None, **kwargs: Any) -> None:
        if update_fields is not None and "secret" in update_fields:
            update_fields = {*update_fields, "hint"}
        super().save(*args, update_fields=update_fields, **kwargs)

    def clean_fields(self, exclude: Any = None) -> None:
        if isinstance(self.secret, Secret) and self.secret.hint:  # just entered
            self.secret = one_word(self.secret.reveal())
        super().clean_fields(exclude)

    def holds(self, text: str) -> bool:
        """Whether this is the stored key; one that cannot be decrypted is no key."""
        try:
            return bool(self.secret) and self.secret.reveal() == text
        except SecretUnavailable:
            return False


class LanguageModelQuerySet(models.QuerySet["LanguageModel"]):
    def usable(self) -> LanguageModelQuerySet:
        """Those that nobody switched off, in a row or in the environment."""
        kinds = [k for k in providers.all_providers() if not is_disabled(k)]
        return self.filter(
            enabled=True, provider__enabled=True, provider__kind__in=kinds
        )

    def permitted(self, user: Any) -> LanguageModelQuerySet:
        """Those that `user` may know of. None is the program itself."""
        if user is None or user.is_superuser:
            return self
        named = LanguageModel.groups.through.objects.filter(
            languagemodel=OuterRef("pk")
        )
        if user.pk is None:  # nobody signed in
            return self.filter(~Exists(named))
        return self.filter(~Exists(named) | Exists(named.filter(group__user=user.pk)))


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
        """Being the default passes from one model to the next."""
        if self.is_default:
            others = LanguageModel.objects.filter(is_default=True).exclude(pk=self.pk)
            others.update(is_default=False)
        super().save(*args, **kwargs)

    def validate_constraints(self, exclude: Any = None) -> None:
        # Another default is no mistake, `save` takes its place.
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
        """What programs write: the alias, else `provider/model`."""
        return self.alias or self.full_name

    @property
    def why_unusable(self) -> str:
        """Half a sentence, or "" where nothing stands against using it."""
        return self.provider.why_unusable if self.enabled else "it is switched off"


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    @transaction.atomic
    def record(
        self,
        call: Call,
        route: Route,
        *,
        turn_id: str = "",
        step: int = 0,
        attempt: int = 1,
        start: StartDelta | None = None,
        usage: UsageDelta | None = None,
        finish: FinishDelta | None = None,
        cancelled: bool = False,
    ) -> ModelCall:
        """The row of a call that is over, and its key's last use. Reads nothing."""
        row = ModelCall.of(
            call,
            route,
            attempt=attempt,
            start=start,
            usage=usage,
            finish=finish,
            cancelled=cancelled,
        )
        row.turn_id, row.step = turn_id, step
        row.save(using=self.db, force_insert=True)
        self._note_key(row)
        return row

    @transaction.atomic
    def record_all(self, rows: Sequence[ModelCall]) -> None:
        """As `record`, for many calls at the price of a few. Reads nothing."""
        ModelCall.objects.using(self.db).bulk_create(rows)
        # Of calls that came to the same with the same key, one tells of it.
        told = {(row.key_id, row.key_error): row for row in rows}
        for row in told.values():
            self._note_key(row)

    def _note_key(self, row: ModelCall) -> None:
        if row.key_id is not None:
            keys = ApiKey.objects.using(self.db).filter(pk=row.key_id)
            keys.note_use(row.created_at, row.key_error)


def _status(call: Call, finish: FinishDelta | None, cancelled: bool) -> str:
    if cancelled:
        return ModelCall.Status.CANCELLED
    if call.error or finish is None:
        return ModelCall.Status.FAILED
    if finish.reason in ("length", "content_filter"):
        return ModelCall.Status.INCOMPLETE
    return ModelCall.Status.COMPLETED


def _cost(route: Route, start: StartDelta, usage: UsageDelta) -> Decimal | None:
    host = route.endpoint.provider
    cost = prices.cost(
        usage,
        kind=host.name,
        base_url=route.endpoint.base_url or host.base_url,
        models=(start.model, route.model),
        prices=route.prices,
    )
    # No call costs a million; what says so is nonsense that the column does not take.
    return cost if cost is not None and cost < MAX_COST else None


def _detail(call: Call, route: Route) -> str:
    """What the provider said, without the key that some of them quote."""
    if not call.error:
        return ""
    text = call.error.detail or str(call.error)
    return scrub(text, [route.endpoint.api_key])[:MAX_ERROR_DETAIL]


def _count(tokens: int | None) -> int | None:
    """A number that the column takes, whatever the provider counted."""
    if tokens is None or tokens < 0:
        return None
    return min(tokens, 2**31 - 1)


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
        # A price per million tokens has at most six digits behind the point.
        max_digits=18,
        decimal_places=12,
        null=True,
        help_text=_("USD; empty where nobody knows."),
    )
    ttft = models.FloatField(null=True, help_text=_("Seconds to the first delta."))
    latency = models.FloatField(null=True, help_text=_("Seconds to the end."))
    request_id = models.CharField(
        max_length=200,
        blank=True,
        db_index=True,
        help_text=_("The provider's, for its support."),
    )
    response_id = models.CharField(max_length=200, blank=True)
    degraded = models.JSONField(
        default=list,
        blank=True,
        help_text=_("Options that were left out or only come near to."),
    )
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = ModelCallQuerySet.as_manager()

    #: What its key shows as its last error; no column here.
    key_error = ""

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["status", "id"])]

    def __str__(self) -> str:
        return f"{self.provider_name}/{self.model_name} {self.status}"

    @classmethod
    def of(
        cls,
        call: Call,
        route: Route,
        *,
        attempt: int = 1,
        start: StartDelta | None = None,
        usage: UsageDelta | None = None,
        finish: FinishDelta | None = None,
        cancelled: bool = False,
    ) -> ModelCall:
        """The row of a call that is over, not saved yet."""
        start, usage = start or StartDelta(), usage or UsageDelta()
        error = call.error
        row = cls(
            attempt=attempt,
            model_id=route.model_id,
            key_id=route.key_id,
            provider_name=route.provider_name or route.endpoint.provider.name,
            model_name=(start.model or route.model)[:200],
            status=_status(call, finish, cancelled),
            http_status=call.http_status,
            error_code=error.code if error else "",
            error_detail=_detail(call, route),
            finish_reason=((finish.raw or finish.reason) if finish else "")[:40],
            input_tokens=_count(usage.input_tokens),
            cached_tokens=_count(usage.cached_tokens),
            cache_write_tokens=_count(usage.cache_write_tokens),
            output_tokens=_count(usage.output_tokens),
            reasoning_tokens=_count(usage.reasoning_tokens),
            cost=_cost(route, start, usage),
            ttft=call.ttft,
            latency=call.latency,
            request_id=call.request_id[:200],
            response_id=start.response_id[:200],
            degraded=list(call.degraded),
        )
        row.key_error = f"{error.code}: {error}"[:200] if error else ""
        return row
