from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from llm.db.compiled_queries import CompiledInsert
from llm.db.encrypted_field import scrub
from llm.models.api_key import ApiKey
from llm.models.language_model import LanguageModel
from llm.pricing import cost as prices
from llm.provider import Route
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta

if TYPE_CHECKING:
    from llm.http.client import ProviderCall

MAX_ERROR_DETAIL = 4000  # characters
MAX_COST = Decimal(1_000_000)  # USD, of one call


class ModelCallQuerySet(models.QuerySet["ModelCall"]):
    @transaction.atomic(savepoint=False)
    def record(
        self,
        call: ProviderCall,
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
        """Write the row of a finished call and its key's last use. No SELECT."""
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
        _write(row)
        self._note_key(row)
        return row

    @transaction.atomic
    def record_all(self, rows: Sequence[ModelCall]) -> None:
        """As `record`, for many calls with few statements. No SELECT."""
        ModelCall.objects.using(self.db).bulk_create(rows)
        # One write per key and error is enough.
        last_by_key = {(row.key_id, row.key_error): row for row in rows}
        for row in last_by_key.values():
            self._note_key(row)

    def _note_key(self, row: ModelCall) -> None:
        if row.key_id is not None:
            keys = ApiKey.objects.using(self.db).filter(pk=row.key_id)
            keys.note_use(row.created_at, row.key_error)


class ModelCall(models.Model):
    """One request to a provider, successful or not."""

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
        # A price per million tokens has at most six decimal places.
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

    #: Text for `ApiKey.last_error`. No column.
    key_error = ""

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["status", "id"])]

    def __str__(self) -> str:
        return f"{self.provider_name}/{self.model_name} {self.status}"

    @classmethod
    def of(
        cls,
        call: ProviderCall,
        route: Route,
        *,
        attempt: int = 1,
        start: StartDelta | None = None,
        usage: UsageDelta | None = None,
        finish: FinishDelta | None = None,
        cancelled: bool = False,
    ) -> ModelCall:
        """The unsaved row of a finished call."""
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


_write = CompiledInsert(ModelCall)


def _status(call: ProviderCall, finish: FinishDelta | None, cancelled: bool) -> str:
    if cancelled:
        return ModelCall.Status.CANCELLED
    if call.error or finish is None:
        return ModelCall.Status.FAILED
    if finish.reason in ("length", "content_filter", "size"):
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
    # A cost of a million is an error of the provider, and too large for the column.
    return cost if cost is not None and cost < MAX_COST else None


def _detail(call: ProviderCall, route: Route) -> str:
    """The provider's error text without the API key, which some providers quote."""
    if not call.error:
        return ""
    text = call.error.detail or str(call.error)
    return scrub(text, [route.endpoint.api_key])[:MAX_ERROR_DETAIL]


def _count(tokens: int | None) -> int | None:
    """A token count within the range of the column; None if negative or unknown."""
    if tokens is None or tokens < 0:
        return None
    return min(tokens, 2**31 - 1)
