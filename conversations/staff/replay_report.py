"""What a replay changed: figures side by side, differences of texts and calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, Sum

from conversations.models import Item, Replay, ReplayedTurn
from llm.models import ModelCall
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of
from tools.text_diff import DiffLine, diff_lines

MAX_ROWS = 500  # turns of a replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFigures:
    seconds: float | None
    cost: Decimal | None
    model_calls: int
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    before: ReplayFigures
    after: ReplayFigures
    text_before: str
    text_after: str
    text: Sequence[DiffLine]  # empty if equal
    calls: Sequence[DiffLine]
    calls_before: Sequence[str]
    calls_after: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    total: int
    over: int
    failed: int
    cost: Decimal | None  # of the turns where it is known

    @property
    def percent(self) -> float:
        return round(100 * self.over / self.total, 1) if self.total else 100.0


def progress_of(change: Replay) -> Progress:
    """One query."""
    State = ReplayedTurn.State
    found = change.turns.aggregate(
        total=Count("pk"),
        over=Count("pk", filter=~Q(state=State.PENDING)),
        failed=Count("pk", filter=Q(state=State.FAILED)),
        cost=Sum("cost"),
    )
    return Progress(**found)


def compare(row: ReplayedTurn) -> Comparison:
    """Two queries."""
    outputs = Item.objects.filter(turn=row.turn_id, origin=Item.Origin.OUTPUT)
    before = [item.payload for item in outputs.order_by("position")]
    text_before, text_after = _text(before), _text(row.items)
    calls_before, calls_after = _calls(before), _calls(row.items)
    return Comparison(
        before=_figures(row),
        after=ReplayFigures(
            seconds=row.seconds,
            cost=row.cost,
            model_calls=row.model_calls,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
        ),
        text_before=text_before,
        text_after=text_after,
        text=diff_lines(text_before, text_after),
        calls=diff_lines("\n".join(calls_before), "\n".join(calls_after)),
        calls_before=calls_before,
        calls_after=calls_after,
    )


def _figures(row: ReplayedTurn) -> ReplayFigures:
    # A replay makes no titles and no summaries.
    Purpose = ModelCall.Purpose
    calls = ModelCall.objects.filter(
        turn_id=row.turn_id, purpose__in=(Purpose.ANSWER, Purpose.CORRECTION)
    )
    found = calls.aggregate(
        cost=Sum("cost"),
        model_calls=Count("pk"),
        input_tokens=Sum("input_tokens"),
        output_tokens=Sum("output_tokens"),
    )
    return ReplayFigures(seconds=row.turn.seconds, **found)


def _text(items: Sequence[ItemPayload]) -> str:
    said = [i for i in items if i["type"] == "message" and i.get("role") == "assistant"]
    return "\n\n".join(text_of(item) for item in said)


def _calls(items: Sequence[ItemPayload]) -> list[str]:
    """A line for each call, with its result."""
    outputs: dict[str, Any] = {
        item["call_id"]: item["output"]
        for item in items
        if item["type"] == "function_call_output"
    }
    lines = []
    for item in items:
        if item["type"] == "function_call":
            output = outputs.get(item["call_id"], "")
            text = output if isinstance(output, str) else json.dumps(output)
            line = f"{item['name']}({item['arguments']}) → {text}"
            lines.append(" ".join(line.split())[:1_000])
    return lines
