"""Timeline of a turn for staff: its items, tool calls, model calls and notes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from conversations.models import Item, Question, ToolCall, Turn
from conversations.models.preset import NOTE_CONTEXT, GatheredContext
from conversations.staff.item_text_corrections import item_texts
from llm.models import ModelCall

MAX_TEXT = 20_000  # characters of a text; the item's own page has all of it

Text = tuple[str, str]  # label and text


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    kind: str  # "turn", "queue", "note", "item", "tool", "person" or "model"
    at: datetime
    title: str
    state: str = ""
    bad: bool = False
    seconds: float | None = None
    facts: Sequence[Text] = ()
    texts: Sequence[Text] = ()  # shown on demand
    url: str = ""
    anchor: str = ""  # id of its element on the page
    position: str = ""  # of the event that published it: epoch and sequence number
    exchange_url: str = ""  # where request and response are kept
    first: float | None = None  # seconds to the first token, of a model call
    order: tuple[int, int] = field(default=(0, 0))  # among entries of the same time
    # Position in the turn
    offset: int = 0  # ms since the turn was created
    left: float = 0  # percent of the turn's time
    width: float = 0  # percent


def timeline(turn: Turn) -> list[TimelineEntry]:
    """The entries of a turn in order of time.

    Four queries, whatever the turn's length; one more if it has context notes.
    """
    calls = ModelCall.objects.filter(turn_id=turn.pk).select_related("key", "exchange")
    calls = calls.defer("exchange__content")
    questions = Question.objects.filter(tool_call__turn=turn)
    entries = [
        *_milestones(turn),
        *_notes(turn),
        *map(_model_call, calls),
        *map(_tool_call, turn.tool_calls.all()),
        *map(_question, questions.select_related("tool_call", "decided_by")),
        *map(_item, turn.items.order_by("position")),
    ]
    entries.sort(key=lambda entry: (entry.at, entry.order))
    return _with_positions(entries, turn.created_at)


def _with_positions(
    entries: list[TimelineEntry], start: datetime
) -> list[TimelineEntry]:
    ends = [entry.at + timedelta(seconds=entry.seconds or 0) for entry in entries]
    whole = max((_since(start, end) for end in ends), default=0) or 1.0
    return [
        replace(
            entry,
            offset=round(_since(start, entry.at) * 1000),
            left=round(100 * _since(start, entry.at) / whole, 2),
            width=round(100 * (entry.seconds or 0) / whole, 2),
        )
        for entry in entries
    ]


def _since(start: datetime, at: datetime) -> float:
    return max(0.0, (at - start).total_seconds())


def _milestones(turn: Turn) -> Iterable[TimelineEntry]:
    if turn.started_at:
        queued = _since(turn.created_at, turn.started_at)
        yield TimelineEntry(
            kind="queue",
            at=turn.created_at,
            title=_("In the queue"),
            seconds=queued,
            order=(-1, 0),
        )
        waited = (_("waited"), _seconds(queued))
        epoch = (_("epoch"), str(turn.epoch))
        yield TimelineEntry(
            kind="turn",
            at=turn.started_at,
            title=_("Claimed"),
            facts=_present_facts([waited, epoch]),
            order=(1, 0),
        )
    if turn.finished_at:
        error = turn.error or {}
        facts = [
            (_("reason"), turn.incomplete_reason),
            (_("error"), error.get("code")),
            (_("message"), error.get("message")),
        ]
        yield TimelineEntry(
            kind="turn",
            at=turn.finished_at,
            title=_("Ended"),
            state=turn.get_status_display(),
            bad=turn.status == Turn.Status.FAILED,
            facts=_present_facts(facts),
            order=(5, 0),
        )


def _notes(turn: Turn) -> Iterable[TimelineEntry]:
    for number, note in enumerate(turn.notes):
        is_gathered = note["kind"] == NOTE_CONTEXT
        yield TimelineEntry(
            kind="note",
            at=datetime.fromisoformat(note["at"]),
            title=_("Context") if is_gathered else _("Context left out"),
            bad=not is_gathered,
            facts=_present_facts(
                [(_("source"), note.get("source")), (_("reason"), note["text"])]
            ),
            texts=_texts(_context_texts(turn)) if is_gathered else (),
            order=(1, 1 + number),
        )


def _context_texts(turn: Turn) -> list[Text]:
    gathered = GatheredContext.objects.filter(turn=turn).first()
    return (
        [(block["title"], block["text"]) for block in gathered.blocks]
        if gathered
        else []
    )


def _purpose(call: ModelCall) -> str | None:
    """None for the usual one."""
    is_usual = call.purpose == ModelCall.Purpose.ANSWER
    return None if is_usual else call.get_purpose_display()


def _model_call(call: ModelCall) -> TimelineEntry:
    key = str(call.key) if call.key else ""
    tokens = [
        (_("tokens estimated"), _("yes") if call.is_estimated else None),
        (_("input tokens"), call.input_tokens),
        (_("of which cached"), call.cached_tokens),
        (_("output tokens"), call.output_tokens),
        (_("of which reasoning"), call.reasoning_tokens),
        (_("service tier"), call.service_tier),
        (_("web searches"), call.web_searches or None),
        (_("file searches"), call.file_searches or None),
    ]
    facts = [
        (_("step"), call.step + 1),
        (_("purpose"), _purpose(call)),
        (_("attempt"), call.attempt if call.attempt > 1 else None),
        *tokens,
        (_("cost"), _dollars(call.cost)),
        (_("first token"), _seconds(call.ttft)),
        (_("finish"), call.finish_reason),
        (_("HTTP"), call.http_status),
        (_("error"), call.error_code),
        (_("request id"), call.request_id),
        (_("response id"), call.response_id),
        (_("key"), key),
    ]
    return TimelineEntry(
        kind="model",
        at=call.began_at,
        title=f"{call.provider_name}/{call.model_name}",
        state=call.get_status_display(),
        bad=call.status == ModelCall.Status.FAILED,
        seconds=call.latency,
        facts=_present_facts(facts),
        texts=_texts([(_("the provider's error message"), call.error_detail)]),
        url=reverse("admin:llm_modelcall_change", args=[call.pk]),
        anchor=f"call-{call.pk}",
        exchange_url=_exchange_url(call),
        first=call.ttft,
        order=(2, call.pk),
    )


def _exchange_url(call: ModelCall) -> str:
    if not hasattr(call, "exchange"):
        return ""
    return reverse("admin:llm_modelcall_exchange", args=[call.pk])


def _question(question: Question) -> TimelineEntry:
    end = question.decided_at or timezone.now()
    decided_by = question.decided_by
    facts = [
        (_("tool"), question.tool_call.name),
        (_("decided by"), decided_by.get_username() if decided_by else None),
    ]
    return TimelineEntry(
        kind="person",
        at=question.asked_at,
        title=question.get_kind_display(),
        state=question.get_state_display(),
        bad=question.state == Question.State.EXPIRED,
        seconds=_since(question.asked_at, end),
        facts=_present_facts(facts),
        url=reverse("admin:conversations_question_change", args=[question.pk]),
        anchor=question.pk,
        order=(3, 0),
    )


def _tool_call(call: ToolCall) -> TimelineEntry:
    attempts = call.attempts if call.attempts > 1 else None
    facts = [(_("call id"), call.call_id), (_("attempts"), attempts)]
    bad = (ToolCall.State.FAILED, ToolCall.State.TIMED_OUT, ToolCall.State.UNKNOWN)
    return TimelineEntry(
        kind="tool",
        at=call.started_at or call.created_at,
        title=call.name,
        state=call.get_state_display(),
        bad=call.state in bad,
        seconds=call.seconds,
        facts=_present_facts([*facts, (_("error"), call.error)]),
        texts=_texts([(_("output"), _as_text(call.output))]),
        url=reverse("admin:conversations_toolcall_change", args=[call.pk]),
        anchor=f"tool-{call.pk}",
        order=(3, call.pk),
    )


def _item(item: Item) -> TimelineEntry:
    payload = item.payload
    actor = payload.get("role") or payload.get("name") or ""
    proof = _("stored") if item.provider_data else None
    facts = [
        (_("id"), payload.get("id")),
        (_("call id"), payload.get("call_id")),
        (_("proof"), proof),
    ]
    texts = [(part.label, part.text) for part in item_texts(payload)]
    return TimelineEntry(
        kind="item",
        at=item.created_at,
        title=f"{item.type} {actor}".strip(),
        state=payload.get("status") or "",
        bad=payload.get("status") == "incomplete",
        facts=_present_facts(facts),
        texts=_texts(texts or [("JSON", _as_text(payload))]),
        url=reverse("admin:conversations_item_change", args=[item.pk]),
        anchor=payload.get("id") or "",
        position=f"{item.epoch}-{item.sequence}" if item.epoch else "",
        order=(0 if item.origin == Item.Origin.INPUT else 4, item.position),
    )


def _present_facts(facts: Iterable[tuple[str, Any]]) -> list[Text]:
    return [(label, str(fact)) for label, fact in facts if fact not in (None, "")]


def _texts(texts: Iterable[Text]) -> list[Text]:
    return [
        (label, text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…")
        for label, text in texts
        if text
    ]


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _dollars(cost: Decimal | None) -> str | None:
    return None if cost is None else f"${cost.normalize():f}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1000:.0f} ms"
