"""Turns as a page shows them: what was asked, then what was said, thought and done.

A block is a value with the name of its template; static/js/turn-view.js builds the same
from events while a turn runs. Reading a window of turns takes three queries, however
long the conversation is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db.models import Q
from django.utils import timezone

from conversations.models import Conversation, Item, ToolCall, Turn
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

WINDOW = 50  # turns a page shows
PREVIEW_LENGTH = 80  # characters of a call's arguments on its closed card

_SHOWN_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")
_CUT = "The answer was cut short."
_INCOMPLETE = {
    "max_output_tokens": "The answer reached its length limit.",
    "content_filter": "The provider's content policy ended the answer.",
    "max_steps": "The model took as many steps as a turn may take.",
    "repeated_tool_calls": "The model kept repeating the same calls.",
    "deadline": "The turn reached its time limit.",
}


@dataclass(frozen=True, slots=True)
class Said:
    template: ClassVar[str] = "conversations/_said.html"
    key: str
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Thought:
    template: ClassVar[str] = "conversations/_thought.html"
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    template: ClassVar[str] = "conversations/_called.html"
    key: str
    name: str
    preview: str
    arguments: str  # indented JSON, or what the model wrote in its place
    state: str
    state_label: str
    output: str | None
    error: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that came with the question; shown only where nothing is fetched."""

    url: str

    @property
    def is_inline(self) -> bool:
        return _SHOWN_IMAGE.match(self.url) is not None


@dataclass(frozen=True, slots=True)
class Asked:
    role: str
    text: str
    images: Sequence[Image]
    files: Sequence[str]


Block = Said | Thought | Called


@dataclass(frozen=True, slots=True)
class TurnShown:
    turn: Turn
    questions: Sequence[Asked]
    blocks: Sequence[Block]

    @property
    def text(self) -> str:
        """The answer as it was written, to be copied."""
        said = (block.text for block in self.blocks if isinstance(block, Said))
        return "\n\n".join(said)

    @property
    def elapsed(self) -> float:
        """Seconds that a turn has been running, or waiting to."""
        since = self.turn.started_at or self.turn.created_at
        return (timezone.now() - since).total_seconds()

    @property
    def ending(self) -> str:
        """Why there is no whole answer; "" where there is one, or an error says it."""
        match self.turn.status:
            case Turn.Status.CANCELLED if self.blocks:
                return "Stopped; what was said so far is kept."
            case Turn.Status.CANCELLED:
                return "Stopped before anything was said."
            case Turn.Status.INCOMPLETE:
                return _INCOMPLETE.get(self.turn.incomplete_reason, _CUT)
            case Turn.Status.COMPLETED if not self.blocks:
                return "The model gave an empty answer."
        return ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A window of a conversation, oldest turn first."""

    turns: Sequence[TurnShown]
    has_earlier: bool
    is_latest: bool

    @property
    def running(self) -> Turn | None:
        """The turn that a Stop would stop."""
        return next((t.turn for t in self.turns if not t.turn.is_finished), None)


def transcript(conversation: Conversation, before: str = "") -> Transcript:
    """The last turns, or the last before the turn of this id."""
    turns = conversation.turns.order_by("-created_at", "-id")
    pivot = turns.filter(pk=before).first() if before else None
    if pivot:
        turns = turns.filter(
            Q(created_at__lt=pivot.created_at)
            | Q(created_at=pivot.created_at, pk__lt=pivot.pk)
        )
    found = list(with_parts(turns)[: WINDOW + 1])
    return Transcript(
        turns=[shown(turn) for turn in reversed(found[:WINDOW])],
        has_earlier=len(found) > WINDOW,
        is_latest=pivot is None,
    )


def with_parts(turns: Any) -> Any:
    """The queryset with all that `shown` reads."""
    return turns.select_related("language_model__provider").prefetch_related(
        "items", "tool_calls"
    )


def shown(turn: Turn) -> TurnShown:
    rows = turn.items.all()
    asked = [row.payload for row in rows if row.origin == Item.Origin.INPUT]
    said = [row.payload for row in rows if row.origin == Item.Origin.OUTPUT]
    calls = {call.call_id: call for call in turn.tool_calls.all()}
    return TurnShown(
        turn,
        questions=list(_questions(asked)),
        blocks=list(_blocks([*said, *(turn.partial or ())], calls)),
    )


def pretty(value: Any) -> str:
    """JSON as people read it; text that is no JSON object or list as it is."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return value
        if not isinstance(parsed, dict | list):
            return value
        value = parsed
    return json.dumps(value, indent=2, ensure_ascii=False)


# What was asked


def _questions(items: Iterable[ItemPayload]) -> Iterable[Asked]:
    for item in items:
        if item["type"] == "message":
            parts = [part for part in item["content"] if isinstance(part, dict)]
            yield Asked(
                role=item["role"],
                text=text_of(item),
                images=[Image(p["image_url"]) for p in parts if p.get("image_url")],
                files=[
                    p.get("filename") or "file"
                    for p in parts
                    if p["type"] == "input_file"
                ],
            )
        elif item["type"] == "function_call_output":
            yield Asked("tool", pretty(item["output"]), (), ())


# What was answered


def _blocks(
    items: Sequence[ItemPayload], calls: Mapping[str, ToolCall]
) -> Iterable[Block]:
    outputs = {
        item["call_id"]: item["output"]
        for item in items
        if item["type"] == "function_call_output"
    }
    for number, item in enumerate(items):
        key = str(number)  # the item's output_index
        match item["type"]:
            case "message":
                is_cut = bool(item.get("parley:interrupted"))
                yield Said(key, text_of(item), is_cut)
            case "reasoning" if thought := _thought(item):
                yield Thought(key, thought)
            case "function_call":
                call = calls.get(item["call_id"])
                yield _called(key, item, call, outputs.get(item["call_id"]))


def _thought(item: ItemPayload) -> str:
    """The summary, else the raw reasoning; "" where the provider keeps it secret."""
    for field in ("summary", "content"):
        parts = [part["text"] for part in item.get(field) or () if part.get("text")]
        if parts:
            return "\n\n".join(parts)
    return ""


def _called(key: str, item: ItemPayload, call: ToolCall | None, output: Any) -> Called:
    if output is None and call is not None:
        output = call.output
    state = ToolCall.State(call.state) if call else _state_without_row(item, output)
    return Called(
        key=key,
        name=item["name"],
        preview=preview(item["arguments"]),
        arguments=pretty(item["arguments"]),
        state=state,
        state_label=str(state.label),
        output=None if output is None else pretty(output),
        error=call.error if call else "",
        seconds=call.seconds if call else None,
    )


def _state_without_row(item: ItemPayload, output: Any) -> ToolCall.State:
    """Of a call that is the client's to answer, or was cut off as it was written."""
    if output is not None:
        return ToolCall.State.COMPLETED
    if item.get("status") == "incomplete":
        return ToolCall.State.CANCELLED
    return ToolCall.State.PENDING


def preview(arguments: str) -> str:
    """What a call is about in a few words: the values of its arguments."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return ""
    if not isinstance(values, dict):
        return ""
    words = ", ".join(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values.values()
    )
    words = " ".join(words.split())
    if len(words) <= PREVIEW_LENGTH:
        return words
    return words[: PREVIEW_LENGTH - 1] + "…"
