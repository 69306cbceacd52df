"""Row of one request to a provider, with tokens, cost and timing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.encrypted_field import scrub
from llm.db.statements import CompiledInsert
from llm.http.recording import Recording
from llm.models.api_key import ApiKey
from llm.models.language_model import LanguageModel
from llm.models.model_exchange import ModelExchange
from llm.pricing.answering_model import cost_of_answer
from llm.pricing.caller import MAX_NAME, UNKNOWN_CALLER, Caller
from llm.pricing.usage_estimate import estimate_usage, include_apart
from llm.provider import Route
from llm.telemetry.call_metrics import count_call
from llm.telemetry.registry import OTHER
from llm.wire.deltas import FinishDelta, StartDelta, UsageDelta

if TYPE_CHECKING:
    from llm.http.client import ProviderCall

MAX_ERROR_DETAIL = 4000  # characters


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
        caller: Caller = UNKNOWN_CALLER,
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
            caller=caller,
        )
        row.turn_id, row.step = turn_id, step
        self.record_row(row)
        return row

    def record_row(self, row: ModelCall) -> None:
        _write(row)
        if row.recording is not None:
            ModelExchange.store([(row.pk, row.recording)])
        self._note_key(row)
        count_call(row)

    @transaction.atomic
    def record_all(
        self, rows: Sequence[ModelCall], *, is_repeated: bool = False
    ) -> None:
        """As `record`, for many calls with few statements. No SELECT, unless it
        `is_repeated`: then rows whose `write_id` is stored are left out."""
        if is_repeated:
            rows = self._unwritten(rows)
        ModelCall.objects.using(self.db).bulk_create(rows)
        if recorded := [(row.pk, row.recording) for row in rows if row.recording]:
            ModelExchange.store(recorded)
        # One write per key and error is enough.
        last_by_key = {(row.key_id, row.key_error): row for row in rows}
        for row in last_by_key.values():
            self._note_key(row)
        for row in rows:
            count_call(row)

    @transaction.atomic
    def erase_contents(self, turns: Sequence[str] | models.QuerySet[Any]) -> None:
        """Erase what calls of these turns, and of their replays, store of what was
        written: requests, responses and error details. The figures stay."""
        for column in ("turn_id", "replayed_turn_id"):  # each has its own index
            calls = self.using(self.db).filter(**{f"{column}__in": turns})
            ModelExchange.objects.filter(call__in=calls).delete()
            calls.exclude(error_detail="").update(error_detail="")

    def _unwritten(self, rows: Sequence[ModelCall]) -> list[ModelCall]:
        of_rows = self.using(self.db).filter(write_id__in=[r.write_id for r in rows])
        written = set(of_rows.values_list("write_id", flat=True))
        return [row for row in rows if row.write_id not in written]

    def _note_key(self, row: ModelCall) -> None:
        if row.key_id is not None:
            keys = ApiKey.every.using(self.db).filter(pk=row.key_id)
            keys.note_use(row.created_at, row.key_error)


class ModelCall(models.Model):
    """One request to a provider, successful or not."""

    class Status(models.TextChoices):
        COMPLETED = "completed", _("completed")
        INCOMPLETE = "incomplete", _("incomplete")
        CANCELLED = "cancelled", _("cancelled")
        FAILED = "failed", _("failed")

    class Purpose(models.TextChoices):
        ANSWER = "answer", _("answer")
        CORRECTION = "correction", _("correction of an answer")
        SUMMARY = "summary", _("summary of earlier messages")
        TITLE = "title", _("title of the conversation")
        PROBE = "probe", _("probe of a model")
        DICTATION = "dictation", _("dictation of a message")
        TEST = "test", _("test or replay of staff")
        TRIAL = "trial", _("trial of a preset")

    turn_id = models.CharField(max_length=64, blank=True, db_index=True)
    #: Id of the turn whose content staff sent again: the call is of no turn.
    replayed_turn_id = models.CharField(
        max_length=64,
        null=True,
        blank=True,
        editable=False,
    )
    purpose = models.CharField(
        max_length=10,
        choices=Purpose.choices,
        default=Purpose.ANSWER,
        db_default="answer",
    )
    step = models.PositiveSmallIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=1)
    # Without constraints: a model or key may be deleted while its call runs, and the
    # call must still be recorded, with all that is written in the same transaction.
    model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        related_name="calls",
        db_constraint=False,
    )
    key = models.ForeignKey(
        ApiKey, models.SET_NULL, null=True, related_name="calls", db_constraint=False
    )
    key_source = models.CharField(
        _("whose key"),
        max_length=6,
        blank=True,
        default="",
        db_default="",
        choices={
            "own": _("the person's own"),
            "group": _("the group's"),
            "shared": _("for everybody"),
            "call": _("given with the call"),
        },
    )
    # Users and tokens may be deleted; the row, and all sums, stay with their ids.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.DO_NOTHING,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    token_id = models.PositiveBigIntegerField(
        _("access token"), null=True, help_text=_("Id of the access token.")
    )
    token_label = models.CharField(
        _("label of the token"),
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text=_("As it was at the time of the call."),
    )
    end_user = models.CharField(
        _("end user"),
        max_length=MAX_NAME,
        blank=True,
        default="",
        db_default="",
        help_text=_("Whom the client named, as user or safety_identifier."),
    )
    tags = models.CharField(
        _("tags"), max_length=600, blank=True, default="", db_default=""
    )
    our_request_id = models.CharField(
        _("our request id"),
        max_length=MAX_NAME,
        blank=True,
        default="",
        db_default="",
        help_text=_("The x-request-id of our answer."),
    )
    client_request_id = models.CharField(
        _("client's request id"),
        max_length=MAX_NAME,
        blank=True,
        default="",
        db_default="",
        help_text=_("The x-request-id of the request."),
    )
    provider_name = models.CharField(max_length=100)
    model_name = models.CharField(
        max_length=200, help_text=_("Name of the model in the provider's response.")
    )
    status = models.CharField(max_length=10, choices=Status.choices)
    http_status = models.PositiveSmallIntegerField(null=True)
    error_code = models.CharField(max_length=40, blank=True)
    error_detail = models.TextField(
        blank=True, help_text=_("The provider's error message, for staff.")
    )
    finish_reason = models.CharField(max_length=40, blank=True)
    input_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    cache_write_tokens = models.PositiveIntegerField(null=True)
    cache_write_1h_tokens = models.PositiveIntegerField(
        _("cache write tokens, for an hour"),
        null=True,
        help_text=_("Those of them that stay in the cache for an hour."),
    )
    output_tokens = models.PositiveIntegerField(null=True)
    reasoning_tokens = models.PositiveIntegerField(null=True)
    service_tier = models.CharField(
        _("service tier"),
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text=_("Of the answer, if it has other prices than the usual ones."),
    )
    web_searches = models.PositiveIntegerField(
        _("web searches"), null=True, help_text=_("Billed by the host, one by one.")
    )
    file_searches = models.PositiveIntegerField(
        _("file searches"), null=True, help_text=_("Billed by the host, one by one.")
    )
    is_estimated = models.BooleanField(
        _("tokens estimated"),
        default=False,
        db_default=False,
        help_text=_("The host reported none, or the answer was cut off."),
    )
    cost = models.DecimalField(
        # A price per million tokens has at most six decimal places.
        max_digits=18,
        decimal_places=12,
        null=True,
        help_text=_("USD; empty if unknown."),
    )
    is_cached = models.BooleanField(
        _("answered from the cache"),
        default=False,
        db_default=False,
        help_text=_("A stored answer was used; nothing was sent to the provider."),
    )
    saved_cost = models.DecimalField(
        max_digits=18,
        decimal_places=12,
        null=True,
        help_text=_("USD that the stored answer had cost; empty if unknown."),
    )
    ttft = models.FloatField(null=True, help_text=_("Seconds to the first delta."))
    latency = models.FloatField(
        null=True, help_text=_("Seconds to the end of the response.")
    )
    # Rows are written together, at the end of the last attempt or of a round of tools.
    started_at = models.DateTimeField(
        _("sent at"), null=True, help_text=_("Empty in rows of older versions.")
    )
    request_id = models.CharField(
        max_length=200,
        blank=True,
        db_index=True,
        help_text=_("The provider's id of the request; its support may ask for it."),
    )
    response_id = models.CharField(max_length=200, blank=True)
    degraded = models.JSONField(
        default=list,
        blank=True,
        help_text=_("Options that were left out or approximated."),
    )
    is_counted = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=_("Whether the sums of usage contain it."),
    )
    #: Of rows whose write is repeated if the database does not answer.
    write_id = models.UUIDField(null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = ModelCallQuerySet.as_manager()

    #: Text for `ApiKey.last_error`. No column.
    key_error = ""
    #: What was sent and received, if the provider keeps it. No column.
    recording: Recording | None = None
    #: For metrics: public name of the model, if it is a row. No column.
    route_name = OTHER
    chunks = 0  # reads of the stream. No column.

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["status", "id"]),
            models.Index(
                fields=["user", "id"],
                condition=models.Q(user__isnull=False),
                name="llm_call_user",
            ),
            models.Index(
                fields=["token_id", "id"],
                condition=models.Q(token_id__isnull=False),
                name="llm_call_token",
            ),
            # Complete ones: of partial ones SQLite uses only those without NULL.
            models.Index(fields=["end_user"], name="llm_call_end_user"),
            models.Index(fields=["our_request_id"], name="llm_call_our_request"),
            models.Index(fields=["client_request_id"], name="llm_call_client_request"),
            models.Index(
                fields=["id"],
                condition=models.Q(is_counted=False),
                name="llm_call_uncounted",
            ),
            models.Index(fields=["response_id"], name="llm_call_response"),
            models.Index(
                fields=["replayed_turn_id"],
                condition=models.Q(replayed_turn_id__isnull=False),
                name="llm_call_of_replay",
            ),
            models.Index(
                fields=["created_at"],
                condition=models.Q(is_cached=True),
                name="llm_call_from_cache",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["write_id"],
                condition=models.Q(write_id__isnull=False),
                name="llm_call_write_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider_name}/{self.model_name} {self.status}"

    @property
    def began_at(self) -> datetime:
        """Of rows without `started_at`, as if each was written at its call's end."""
        return self.started_at or self.created_at - timedelta(seconds=self.latency or 0)

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
        caller: Caller = UNKNOWN_CALLER,
        choices: Sequence[Route] = (),
    ) -> ModelCall:
        """The unsaved row of a finished call. `choices`: models, `route` among them,
        from which the client let the host choose."""
        start = start or StartDelta()
        usage = usage or UsageDelta()
        usage, is_estimated = usage_with_estimates(call, usage, finish)
        cost, is_guessed = cost_of_answer(usage, start, route, choices)
        error, cache = call.error, call.cache
        is_cached = cache is not None and cache.is_hit
        row = cls(
            **_fields_of_caller(caller),
            **_counts(include_apart(usage) if usage.apart else usage),
            attempt=attempt,
            purpose=call.purpose,
            model_id=route.model_id,
            key_id=route.key_id,
            key_source=route.key_source,
            provider_name=route.provider_name or route.endpoint.provider.name,
            model_name=(start.model or route.model)[:200],
            status=_status(call, finish, cancelled),
            http_status=call.http_status,
            error_code=error.code if error else "",
            error_detail=_detail(call, route),
            finish_reason=((finish.raw or finish.reason) if finish else "")[:40],
            is_estimated=is_estimated or is_guessed,
            cost=Decimal(0) if is_cached else cost,
            is_cached=is_cached,
            saved_cost=cache.saved_cost if cache else None,
            ttft=call.ttft,
            latency=call.latency,
            started_at=_started_at(call),
            request_id=call.request_id[:200],
            response_id=start.response_id[:200],
            degraded=list(call.degraded),
        )
        row.recording, row.chunks = call.recording, call.chunks
        if route.model_id is not None:
            row.route_name = route.name
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


def _fields_of_caller(caller: Caller) -> dict[str, Any]:
    return {
        "user_id": caller.user_id,
        "token_id": caller.token_id,
        "token_label": caller.token_label,
        "end_user": caller.end_user,
        "tags": caller.tags,
        "our_request_id": caller.request_id,
        "client_request_id": caller.client_request_id,
    }


def _counts(usage: UsageDelta) -> dict[str, Any]:
    return {
        "input_tokens": _count(usage.input_tokens),
        "cached_tokens": _count(usage.cached_tokens),
        "cache_write_tokens": _count(usage.cache_write_tokens),
        "cache_write_1h_tokens": _count(usage.cache_write_1h_tokens),
        "output_tokens": _count(usage.output_tokens),
        "reasoning_tokens": _count(usage.reasoning_tokens),
        "service_tier": usage.tier or "",
        "web_searches": _count(usage.web_searches),
        "file_searches": _count(usage.file_searches),
    }


def usage_with_estimates(
    call: ProviderCall, usage: UsageDelta, finish: FinishDelta | None
) -> tuple[UsageDelta, bool]:
    """The usage, and whether some of it is estimated: nothing of a call that the host
    refused, or whose answer is read again later, with its usage."""
    if not call.prompt_tokens or call.background is not None:
        return usage, False
    usage, is_estimated = estimate_usage(
        usage,
        prompt_tokens=call.prompt_tokens,
        answer_bytes=call.answer_bytes,
        has_ended=finish is not None,
    )
    return usage, is_estimated or call.is_usage_estimated


def _detail(call: ProviderCall, route: Route) -> str:
    """The provider's error text without the API key, which some providers quote."""
    if not call.error:
        return ""
    text = call.error.detail or str(call.error)
    return scrub(text, route.endpoint.secrets)[:MAX_ERROR_DETAIL]


def _started_at(call: ProviderCall) -> datetime | None:
    """None if no request was sent."""
    if not call.started_at:
        return None
    return timezone.now() - timedelta(seconds=time.monotonic() - call.started_at)


def _count(tokens: int | None) -> int | None:
    """A count within the range of the column; None if negative or unknown."""
    if tokens is None or tokens < 0:
        return None
    return min(tokens, 2**31 - 1)
