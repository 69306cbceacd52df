"""Timeline of a turn for staff: its items, tool calls, model calls and notes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _

from conversations.corrections import places
from conversations.models import Item, ToolCall, Turn
from conversations.presets import GATHERED, GatheredContext
from llm.models import ModelCall

SHOWN = 20_000  # characters of a text; the item's own page has all of it

Text = tuple[str, str]  # label and text


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    kind: str  # "turn", "note", "item", "tool" or "model"
    at: datetime
    title: str
    state: str = ""
    bad: bool = False
    seconds: float | None = None
    facts: Sequence[Text] = ()
    texts: Sequence[Text] = ()  # shown on demand
    url: str = ""
    order: tuple[int, int] = field(default=(0, 0))  # among entries of the same time
    # Position in the turn
    offset: int = 0  # ms since the turn was created
    left: float = 0  # percent of the turn's time
    width: float = 0  # percent


def timeline(turn: Turn) -> list[Entry]:
    """The entries of a turn in order of time.

    Three queries, whatever the turn's length; one more if it has context notes.
    """
    calls = ModelCall.objects.filter(turn_id=turn.pk).select_related("key")
    entries = [
        *_milestones(turn),
        *_notes(turn),
        *map(_model_call, calls),
        *map(_tool_call, turn.tool_calls.all()),
        *map(_item, turn.items.order_by("position")),
    ]
    entries.sort(key=lambda entry: (entry.at, entry.order))
    return _placed(entries, turn.created_at)


def _placed(entries: list[Entry], start: datetime) -> list[Entry]:
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


def _milestones(turn: Turn) -> Iterable[Entry]:
    if turn.started_at:
        waited = (_("waited"), _seconds(_since(turn.created_at, turn.started_at)))
        epoch = (_("epoch"), str(turn.epoch))
        yield Entry(
            kind="turn",
            at=turn.started_at,
            title=_("Taken up"),
            facts=_told([waited, epoch]),
            order=(1, 0),
        )
    if turn.finished_at:
        error = turn.error or {}
        facts = [
            (_("reason"), turn.incomplete_reason),
            (_("error"), error.get("code")),
            (_("message"), error.get("message")),
        ]
        yield Entry(
            kind="turn",
            at=turn.finished_at,
            title=_("Ended"),
            state=turn.get_status_display(),
            bad=turn.status == Turn.Status.FAILED,
            facts=_told(facts),
            order=(5, 0),
        )


def _notes(turn: Turn) -> Iterable[Entry]:
    for number, note in enumerate(turn.notes):
        is_gathered = note["kind"] == GATHERED
        yield Entry(
            kind="note",
            at=datetime.fromisoformat(note["at"]),
            title=_("Context") if is_gathered else _("Context left out"),
            bad=not is_gathered,
            facts=_told([(_("source"), note.get("source")), (_("told"), note["text"])]),
            texts=_texts(_gathered(turn)) if is_gathered else (),
            order=(1, 1 + number),
        )


def _gathered(turn: Turn) -> list[Text]:
    kept = GatheredContext.objects.filter(turn=turn).first()
    return [(block["title"], block["text"]) for block in kept.blocks] if kept else []


def _model_call(call: ModelCall) -> Entry:
    key = str(call.key) if call.key else ""
    tokens = [
        (_("input tokens"), call.input_tokens),
        (_("of them cached"), call.cached_tokens),
        (_("output tokens"), call.output_tokens),
        (_("of them reasoning"), call.reasoning_tokens),
    ]
    facts = [
        (_("step"), call.step + 1),
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
    return Entry(
        kind="model",
        # The row is created when the call ends, so the call began earlier.
        at=call.created_at - timedelta(seconds=call.latency or 0),
        title=f"{call.provider_name}/{call.model_name}",
        state=call.get_status_display(),
        bad=call.status == ModelCall.Status.FAILED,
        seconds=call.latency,
        facts=_told(facts),
        texts=_texts([(_("what the provider said"), call.error_detail)]),
        url=reverse("admin:llm_modelcall_change", args=[call.pk]),
        order=(2, call.pk),
    )


def _tool_call(call: ToolCall) -> Entry:
    attempts = call.attempts if call.attempts > 1 else None
    facts = [(_("call id"), call.call_id), (_("attempts"), attempts)]
    bad = (ToolCall.State.FAILED, ToolCall.State.TIMED_OUT, ToolCall.State.UNKNOWN)
    return Entry(
        kind="tool",
        at=call.started_at or call.created_at,
        title=call.name,
        state=call.get_state_display(),
        bad=call.state in bad,
        seconds=call.seconds,
        facts=_told([*facts, (_("error"), call.error)]),
        texts=_texts([(_("output"), _shown(call.output))]),
        url=reverse("admin:conversations_toolcall_change", args=[call.pk]),
        order=(3, call.pk),
    )


def _item(item: Item) -> Entry:
    payload = item.payload
    who = payload.get("role") or payload.get("name") or ""
    proof = _("held") if item.provider_data else None
    facts = [
        (_("id"), payload.get("id")),
        (_("call id"), payload.get("call_id")),
        (_("proof"), proof),
    ]
    texts = [(place.label, place.text) for place in places(payload)]
    return Entry(
        kind="item",
        at=item.created_at,
        title=f"{item.type} {who}".strip(),
        state=payload.get("status") or "",
        bad=payload.get("status") == "incomplete",
        facts=_told(facts),
        texts=_texts(texts or [("JSON", _shown(payload))]),
        url=reverse("admin:conversations_item_change", args=[item.pk]),
        order=(0 if item.origin == Item.Origin.INPUT else 4, item.position),
    )


def _told(facts: Iterable[tuple[str, Any]]) -> list[Text]:
    return [(label, str(fact)) for label, fact in facts if fact not in (None, "")]


def _texts(texts: Iterable[Text]) -> list[Text]:
    return [
        (label, text if len(text) <= SHOWN else text[:SHOWN] + "…")
        for label, text in texts
        if text
    ]


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _dollars(cost: Decimal | None) -> str | None:
    return None if cost is None else f"${cost.normalize():f}"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds * 1000:.0f} ms"
