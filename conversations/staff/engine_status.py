"""Status of the engine, read from the database: for staff and for monitoring.

Contains only ids, names, numbers and times; no message content. Makes a fixed number
of queries and lists at most `MAX_ROWS` rows of each kind, stuck ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.utils import timezone

from conversations.models import ProcessStatus, Question, ToolCall, Turn

STUCK_AFTER = timedelta(seconds=30)  # the sweep runs every two seconds
WORKER_LOST_AFTER = 30.0  # seconds; a report comes every five
WORKER_FORGOTTEN_AFTER = timedelta(minutes=10)
MAX_ROWS = 200

_RUNNING, _QUEUED, _WAITING = Turn.UNFINISHED[1], Turn.UNFINISHED[0], Turn.UNFINISHED[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    id: str
    status: str
    age: float  # seconds since it was created
    waited: float | None  # seconds a queued turn has been claimable
    epoch: int
    claims: int
    lease_left: float | None  # seconds; below 0 where it has ended
    model: str  # "" for the default
    owner: str
    is_stopping: bool
    stuck: str  # the reason; "" where it is not stuck

    @property
    def is_running(self) -> bool:
        return self.status == _RUNNING

    @property
    def status_name(self) -> str:
        return str(Turn.Status(self.status).label)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """A background call: the model does not wait for its result."""

    pk: int
    call_id: str
    tool: str
    turn: str
    age: float
    epoch: int
    lease_left: float | None
    is_elsewhere: bool  # accepted by a remote service; no process here runs it
    owner: str
    is_stopping: bool
    stuck: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLine:
    id: str
    kind: str
    tool: str
    turn: str
    age: float
    expires_in: float
    asked: str  # a user, or a group


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    id: str
    heard: float  # seconds since the last heartbeat

    @property
    def is_lost(self) -> bool:
        return self.heard > WORKER_LOST_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    at: datetime
    delivery: str  # "embedded" or "scaled"
    counts: Mapping[str, int]  # running, queued, waiting, calls, questions
    oldest_wait: float | None  # seconds, among claimable queued turns
    turns: Sequence[TurnLine]
    calls: Sequence[CallLine]
    questions: Sequence[QuestionLine]
    workers: Sequence[Worker]  # empty in the embedded delivery

    @property
    def stuck(self) -> int:
        lines: list[TurnLine | CallLine] = [*self.turns, *self.calls]
        return sum(bool(line.stuck) for line in lines)

    @property
    def is_cut(self) -> bool:
        """True if there are more rows than are listed."""
        turns = sum(self.counts[name] for name in ("running", "queued", "waiting"))
        listed = [len(self.turns), len(self.calls), len(self.questions)]
        return listed != [turns, self.counts["calls"], self.counts["questions"]]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "at": self.at.isoformat(), "stuck": self.stuck}


def status() -> Status:
    now = timezone.now()
    turns = _turns(now)
    waits = [line.waited for line in turns if line.waited is not None]
    return Status(
        at=now,
        delivery="scaled" if settings.IS_SCALED else "embedded",
        counts=count_rows(),
        oldest_wait=max(waits, default=None),
        turns=turns,
        calls=_calls(now),
        questions=_questions(now),
        workers=_workers(),
    )


def format_duration(seconds: float, space: str = "") -> str:
    """A duration such as `3.4s`; from two minutes on `5m`, then `7h`, `3d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f}{space}{unit}"
    return f"{seconds:.1f}{space}s"


def count_rows() -> dict[str, int]:
    unfinished = Turn.objects.not_finished().order_by().values("status")
    by_status = dict(unfinished.annotate(n=Count("pk")).values_list("status", "n"))
    return {
        "running": by_status.get(_RUNNING, 0),
        "queued": by_status.get(_QUEUED, 0),
        "waiting": by_status.get(_WAITING, 0),
        "calls": ToolCall.objects.in_background().count(),
        "questions": Question.objects.open().count(),
    }


def find_oldest_wait() -> float | None:
    """Seconds that a queued turn has waited although it could be claimed, at most."""
    now = timezone.now()
    queued = _query_turns().filter(status=_QUEUED).order_by("created_at", "pk")
    lines = [_turn_line(row, now, nothing_runs=False) for row in queued[:MAX_ROWS]]
    return max((line.waited for line in lines if line.waited is not None), default=None)


# Turns


def _turns(now: datetime) -> list[TurnLine]:
    rows = [
        *_query_turns()
        .filter(_stuck_filter(now))
        .order_by("created_at", "pk")[:MAX_ROWS],
        *_query_turns().filter(status=_RUNNING).order_by("created_at", "pk")[:MAX_ROWS],
        *_query_turns().filter(status=_QUEUED).order_by("created_at", "pk")[:MAX_ROWS],
        *_query_turns().filter(status=_WAITING).order_by("created_at", "pk")[:MAX_ROWS],
    ]
    runs = Turn.objects.filter(status=_RUNNING, lease_until__gte=now)
    nothing_runs = not runs.exists()
    lines = [
        _turn_line(row, now, nothing_runs) for row in {r.pk: r for r in rows}.values()
    ]
    return sorted(lines, key=lambda line: not line.stuck)


def _stuck_filter(now: datetime) -> Q:
    """Filter for turns whose rows show that they are stuck; `_stuck_reason` has the
    texts, and one reason that needs more than the row."""
    exhausted = Q(claims__gte=settings.TURN_MAX_CLAIMS) & ~Q(status=_WAITING)
    is_lost = Q(status=_RUNNING, lease_until__lt=now - STUCK_AFTER)
    unasked = Q(status=_WAITING, is_asked=False)
    return Q(status__in=Turn.UNFINISHED) & (is_lost | exhausted | unasked)


def _query_turns() -> QuerySet[Turn, Any]:
    same = Turn.objects.filter(conversation=OuterRef("conversation")).order_by()
    before = Turn.objects.filter(pk=OuterRef("parent")).order_by()
    questions = Question.objects.filter(tool_call__turn=OuterRef("pk")).order_by()
    ended = same.values("conversation").annotate(at=Max("finished_at")).values("at")
    decided = questions.values("tool_call__turn").annotate(at=Max("decided_at"))
    rows = Turn.objects.annotate(
        is_behind=Exists(before.filter(status__in=Turn.UNFINISHED)),
        is_asked=Exists(questions.filter(state=Question.State.OPEN)),
        before_ended_at=Subquery(ended),
        decided_at=Subquery(decided.values("at")),
    )
    return rows.select_related("conversation__owner", "language_model__provider").only(
        "status",
        "created_at",
        "epoch",
        "claims",
        "claims_until_progress",
        "lease_until",
        "cancel_requested",
        "conversation__owner__username",
        "language_model__name",
        "language_model__alias",
        "language_model__provider__name",
    )


def _turn_line(row: Any, now: datetime, nothing_runs: bool) -> TurnLine:
    waited = None
    if row.status == _QUEUED and not row.is_behind:
        moments = [row.created_at, row.before_ended_at, row.decided_at]
        waited = _seconds(now - max(moment for moment in moments if moment))
    model = row.language_model
    return TurnLine(
        id=row.pk,
        status=row.status,
        age=_seconds(now - row.created_at),
        waited=waited,
        epoch=row.epoch,
        claims=row.claims,
        lease_left=_seconds_left(row.lease_until, now)
        if row.status == _RUNNING
        else None,
        model=model.public_name if model else "",
        owner=row.conversation.owner.get_username(),
        is_stopping=row.cancel_requested,
        stuck=_stuck_reason(row, now, waited if nothing_runs else None),
    )


def _stuck_reason(row: Any, now: datetime, wait_without_runs: float | None) -> str:
    if row.status == _RUNNING and row.lease_until < now - STUCK_AFTER:
        return "its lease has expired and no run has claimed it"
    fruitless = row.claims - row.claims_until_progress
    if row.status != _WAITING and fruitless >= settings.TURN_MAX_CLAIMS:
        return (
            f"was claimed {fruitless} times without progress; the next claim fails it"
        )
    if row.status == _WAITING and not row.is_asked:
        return "waits for a person, but has no open question"
    if (wait_without_runs or 0) > STUCK_AFTER.total_seconds():
        return "no worker claims it; check that a worker runs"
    return ""


# Background calls, questions, workers


def _calls(now: datetime) -> list[CallLine]:
    before = now - STUCK_AFTER
    unattended = Q(lease_until__lt=before) | Q(lease_until=None, started_at__lt=before)
    overdue = Q(accepted_at=None) | Q(poll_at__lt=before) | Q(deadline_at__lt=before)
    calls = ToolCall.objects.in_background().select_related("turn__conversation__owner")
    # Message content (output, progress, errors) is not read.
    calls = calls.defer("output", "progress", "error", "turn__partial", "turn__error")
    stuck = {row.pk: row for row in calls.filter(unattended & overdue)[:MAX_ROWS]}
    rows = {**stuck, **{row.pk: row for row in calls.order_by("pk")[:MAX_ROWS]}}
    return [_call_line(row, now, is_stuck=row.pk in stuck) for row in rows.values()]


def _call_line(row: ToolCall, now: datetime, *, is_stuck: bool) -> CallLine:
    return CallLine(
        pk=row.pk,
        call_id=row.call_id,
        tool=row.name,
        turn=row.turn_id,
        age=_seconds(now - (row.started_at or row.created_at)),
        epoch=row.epoch,
        lease_left=_seconds_left(row.lease_until, now),
        is_elsewhere=row.accepted_at is not None,
        owner=row.turn.conversation.owner.get_username(),
        is_stopping=row.cancel_requested,
        stuck="no process runs it" if is_stuck else "",
    )


def _questions(now: datetime) -> list[QuestionLine]:
    rows: Iterable[Any] = (
        Question.objects.open()
        .select_related("tool_call__turn__conversation__owner", "group")
        .defer("message", "schema", "arguments", "answer", "note")
        .order_by("asked_at", "pk")[:MAX_ROWS]
    )
    return [
        QuestionLine(
            id=row.pk,
            kind=row.kind,
            tool=row.tool_call.name,
            turn=row.tool_call.turn_id,
            age=_seconds(now - row.asked_at),
            expires_in=_seconds(row.expires_at - now),
            asked=str(row.group or row.tool_call.turn.conversation.owner),
        )
        for row in rows
    ]


def _workers() -> list[Worker]:
    """The processes that run turns, each of which reports every few seconds."""
    if not settings.IS_SCALED:
        return []
    workers = ProcessStatus.objects.filter(
        runs_turns=True, heard_at__gte=Now() - WORKER_FORGOTTEN_AFTER
    )
    heard = workers.order_by("started_at", "pk").values_list(
        "pk", Now() - F("heard_at")
    )
    return [Worker(id=id, heard=_seconds(since)) for id, since in heard]


def _seconds_left(until: datetime | None, now: datetime) -> float | None:
    return None if until is None else _seconds(until - now)


def _seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 1)
