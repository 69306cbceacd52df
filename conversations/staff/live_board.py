"""Figures of the live board: processes, providers of the last minutes, resting keys.

Only names, numbers and times. A fixed number of queries, each of which reads a bounded
number of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from conversations.models import Maintenance, ProcessStatus
from llm.error_texts.for_staff import describe_reason
from llm.models import ApiKey, ModelCall
from llm.pools.load import KEY_ERROR_CODES, PERSONAL_SOURCES
from llm.telemetry.percentiles import nearest_rank

PERIOD = timedelta(minutes=5)
MAX_CALLS = 5_000  # the newest ones
#: Calls by which staff try models, also in ways that hosts refuse.
_TRIALS = (
    ModelCall.Purpose.PROBE,
    ModelCall.Purpose.TEST,
    ModelCall.Purpose.TRIAL,
)
MAX_ROWS = 50  # processes, and keys
LOST_AFTER = timedelta(seconds=20)  # a process reports every five
FORGOTTEN_AFTER = timedelta(minutes=10)  # for so long a lost one is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    id: str
    runs_turns: bool
    seconds_since_report: float
    uptime: float  # seconds
    drains: bool
    figures: Mapping[str, Any]

    @property
    def is_lost(self) -> bool:
        return self.seconds_since_report > LOST_AFTER.total_seconds()

    @property
    def has_begun_drain(self) -> bool:
        """Whether it has read the order to drain; earlier versions do not report that
        and count as if they had."""
        return self.drains and bool(self.figures.get("drains", True))

    @property
    def is_idle(self) -> bool:
        return not self.figures.get("running") and not self.figures.get("starting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLine:
    name: str
    calls: int
    failed: int
    p50: float | None  # seconds, of calls that succeeded
    p95: float | None
    first_p50: float | None  # seconds to the first token
    last_error: str

    @property
    def error_percent(self) -> float:
        return 100 * self.failed / self.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableKey:
    pk: int
    name: str
    provider: str
    state: str
    rests_for: float | None  # seconds
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBoard:
    minutes: int
    processes: Sequence[ProcessLine]
    providers: Sequence[ProviderLine]
    is_cut: bool  # more calls were made than were read
    keys: Sequence[UnavailableKey]
    maintenance: Maintenance


def live_board() -> LiveBoard:
    """Four queries."""
    now = timezone.now()
    calls = _calls(now)
    return LiveBoard(
        minutes=int(PERIOD.total_seconds() // 60),
        processes=_processes(now),
        providers=_providers(calls),
        is_cut=len(calls) == MAX_CALLS,
        keys=_keys(now),
        maintenance=Maintenance.objects.order_by("pk").first() or Maintenance(),
    )


def _processes(now: datetime) -> list[ProcessLine]:
    recent = ProcessStatus.objects.filter(heard_at__gte=now - FORGOTTEN_AFTER)
    rows = recent.order_by("-runs_turns", "started_at", "pk")
    return [
        ProcessLine(
            id=row.pk,
            runs_turns=row.runs_turns,
            seconds_since_report=max(0.0, (now - row.heard_at).total_seconds()),
            uptime=max(0.0, (now - row.started_at).total_seconds()),
            drains=row.drains,
            figures=row.figures,
        )
        for row in rows[:MAX_ROWS]
    ]


def _calls(now: datetime) -> list[dict[str, Any]]:
    recent = ModelCall.objects.filter(
        created_at__gte=now - PERIOD, is_cached=False
    ).exclude(purpose__in=_TRIALS)
    # A person's bad key says nothing about the provider.
    recent = recent.exclude(
        key_source__in=PERSONAL_SOURCES, error_code__in=KEY_ERROR_CODES
    )
    columns = ("provider_name", "status", "error_code", "latency", "ttft")
    return list(recent.order_by("-created_at").values(*columns)[:MAX_CALLS])


def _providers(calls: Sequence[Mapping[str, Any]]) -> list[ProviderLine]:
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for call in calls:
        by_name[call["provider_name"]].append(call)
    return [_provider_line(name, by_name[name]) for name in sorted(by_name)]


def _provider_line(name: str, calls: Sequence[Mapping[str, Any]]) -> ProviderLine:
    failed = [c for c in calls if c["status"] == ModelCall.Status.FAILED]
    good = [c for c in calls if c["status"] == ModelCall.Status.COMPLETED]
    latencies = [c["latency"] for c in good if c["latency"] is not None]
    first = [c["ttft"] for c in good if c["ttft"] is not None]
    return ProviderLine(
        name=name,
        calls=len(calls),
        failed=len(failed),
        p50=nearest_rank(latencies, 50),
        p95=nearest_rank(latencies, 95),
        first_p50=nearest_rank(first, 50),
        last_error=failed[0]["error_code"] if failed else "",
    )


def _keys(now: datetime) -> list[UnavailableKey]:
    State = ApiKey.State
    resting = Q(state=State.RESTING, rest_until__gt=now)
    failed = Q(state=State.DISABLED) & ~Q(state_reason="")
    rows = ApiKey.objects.filter(resting | failed).select_related("provider")
    return [
        UnavailableKey(
            pk=row.pk,
            name=row.label,
            provider=row.provider.name,
            state=row.get_state_display(),
            rests_for=(row.rest_until - now).total_seconds()
            if row.rest_until
            else None,
            reason=describe_reason(row.state_reason),
        )
        for row in rows.order_by("pk")[:MAX_ROWS]
    ]
