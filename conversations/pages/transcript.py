"""Turns prepared for the chat page: input messages, then blocks of the answer.

Reading a window of turns takes a fixed number of queries, however long the conversation
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from conversations.models import (
    Attachment,
    Conversation,
    Item,
    Question,
    ToolCall,
    Turn,
)
from conversations.models.preset import NOTE_CONTEXT_FAILED
from conversations.pages.blocks import Block, CallRows, MessageBlock, build_blocks
from conversations.turns.tool_display import FileLink, Picture, file_piece, pretty
from llm.models import ModelCall
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

WINDOW = 50  # turns per page

_CUT = "The answer was cut short."
_INCOMPLETE = {
    "max_output_tokens": "The answer reached its length limit.",
    "content_filter": "The provider's content policy ended the answer.",
    "max_steps": "The model took as many steps as a turn may take.",
    "repeated_tool_calls": "The model kept repeating the same calls.",
    "max_answer_size": "The answer reached this server's size limit.",
    "deadline": "The turn reached its time limit.",
    "max_cost": "The message reached its cost limit.",
}
_ENDED_WITHOUT_ERROR = (Turn.Status.COMPLETED, Turn.Status.CANCELLED)
_CUT_MARK = "\n[Cut: "  # which tools.execution.output appends to an output that it cuts


@dataclass(frozen=True, slots=True)
class InputMessage:
    role: str
    text: str
    files: Sequence[Picture | FileLink] = ()


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    turn: Turn
    inputs: Sequence[InputMessage]
    blocks: Sequence[Block]
    degraded: Sequence[str] = ()  # options that were changed or left out
    open_questions: Sequence[Question] = ()  # open questions to a user

    @property
    def is_empty(self) -> bool:
        """Whether the turn has nothing to show.

        For example a turn that was opened for the result of a background call, where an
        earlier turn delivered that result already.
        """
        is_silent = not (self.inputs or self.blocks or self.open_questions)
        return is_silent and self.turn.status in _ENDED_WITHOUT_ERROR

    @property
    def can_retry(self) -> bool:
        """Whether the turn has a user message that can be sent again."""
        return any(message.role == "user" for message in self.inputs)

    @property
    def missing_context(self) -> list[str]:
        """Sentences about context sources that could not be read."""
        return [
            f"Answered without the context “{note.get('source', '')}”: {note['text']}"
            for note in self.turn.notes
            if note["kind"] == NOTE_CONTEXT_FAILED
        ]

    @property
    def text(self) -> str:
        """The answer's Markdown source, for the copy button."""
        texts = (block.text for block in self.blocks if isinstance(block, MessageBlock))
        return "\n\n".join(texts)

    @property
    def elapsed(self) -> float:
        """Seconds since the turn started, or since it was queued."""
        since = self.turn.started_at or self.turn.created_at
        return (timezone.now() - since).total_seconds()

    @property
    def ending(self) -> str:
        """Why the answer is not complete; "" if it is, or if there is an error."""
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

    turns: Sequence[RenderedTurn]
    has_earlier: bool
    is_latest: bool

    @property
    def has_last(self) -> bool:
        """Whether the window contains the conversation's last turn."""
        return self.is_latest and bool(self.turns)

    @property
    def running(self) -> Turn | None:
        """The unfinished turn that the Stop button stops."""
        return next((t.turn for t in self.turns if not t.turn.is_finished), None)


def transcript(
    conversation: Conversation, before: str = "", at: str = ""
) -> Transcript:
    """The last turns, the last turns before the one with the id `before`, or the turns
    around the one with the id `at`."""
    turns = conversation.turns.order_by("-created_at", "-id")
    pivot = turns.filter(pk=before).first() if before else None
    if at and (target := turns.filter(pk=at).first()):
        later = turns.filter(_later(target)).order_by("created_at", "id")
        pivot = later[WINDOW // 2 :].first()
    if pivot:
        turns = turns.exclude(Q(pk=pivot.pk) | _later(pivot))
    found = list(with_parts(turns)[: WINDOW + 1])
    return Transcript(
        turns=render_turns(list(reversed(found[:WINDOW]))),
        has_earlier=len(found) > WINDOW,
        is_latest=pivot is None,
    )


def _later(turn: Turn) -> Q:
    same = Q(created_at=turn.created_at, pk__gt=turn.pk)
    return Q(created_at__gt=turn.created_at) | same


def with_parts(turns: Any) -> Any:
    """The queryset with the related rows that `render_turns` reads."""
    return turns.select_related("language_model__provider").prefetch_related(
        "items", "tool_calls__questions__decided_by", "deliveries"
    )


def render_turns(turns: Sequence[Turn]) -> list[RenderedTurn]:
    """Turns prepared for display. Two queries, whatever the number of turns."""
    degraded = _options_degraded(turns)
    full_outputs = _full_output_urls(
        [call for turn in turns for call in turn.tool_calls.all()]
    )
    rows = CallRows(
        full_output_urls=full_outputs, client_outputs=_client_outputs(turns)
    )
    return [_render_turn(turn, degraded.get(turn.pk, ()), rows) for turn in turns]


def _client_outputs(turns: Iterable[Turn]) -> dict[str, Any]:
    """Outputs that clients sent for calls that they run, by call id."""
    rows = (row for turn in turns for row in turn.items.all())
    return {
        row.payload["call_id"]: row.payload["output"]
        for row in rows
        if row.origin == Item.Origin.INPUT and row.type == "function_call_output"
    }


def _render_turn(turn: Turn, degraded: Sequence[str], known: CallRows) -> RenderedTurn:
    rows = turn.items.all()
    inputs = [row.payload for row in rows if row.origin == Item.Origin.INPUT]
    outputs = [row.payload for row in rows if row.origin == Item.Origin.OUTPUT]
    calls = {call.call_id: call for call in turn.tool_calls.all()}
    delivered = {call.call_id: call for call in turn.deliveries.all()}
    known = replace(known, calls=calls, delivered=delivered)
    questions = (q for call in calls.values() for q in call.questions.all())
    return RenderedTurn(
        turn,
        inputs=list(_input_messages(inputs)),
        blocks=build_blocks([*outputs, *(turn.partial or ())], known),
        degraded=degraded,
        open_questions=[q for q in questions if q.state == Question.State.OPEN],
    )


def _options_degraded(turns: Iterable[Turn]) -> dict[str, list[str]]:
    """Distinct degraded options by turn."""
    calls = ModelCall.objects.filter(turn_id__in=[turn.pk for turn in turns])
    found: dict[str, list[str]] = {}
    for turn_id, options in calls.order_by("id").values_list("turn_id", "degraded"):
        known = found.setdefault(turn_id, [])
        known += [option for option in options if option not in known]
    return found


def _full_output_urls(calls: Iterable[ToolCall]) -> dict[str, str]:
    """URLs of the full outputs of calls whose output was cut, by call id."""
    cut = {
        call.call_id: call.turn.conversation_id
        for call in calls
        if isinstance(call.output, str) and _CUT_MARK in call.output[-200:]
    }
    if not cut:
        return {}
    files = Attachment.objects.filter(
        conversation_id__in=set(cut.values()),
        name__in=[f"{call_id}.txt" for call_id in cut],
    )
    return {
        name.removesuffix(".txt"): reverse("api:attachment", args=[pk])
        for pk, name in files.values_list("pk", "name")
    }


def _input_messages(items: Iterable[ItemPayload]) -> Iterable[InputMessage]:
    for item in items:
        if item["type"] == "message":
            parts = [part for part in item["content"] if isinstance(part, dict)]
            files = [
                file_piece(part)
                for part in parts
                if part["type"] in ("input_image", "input_file")
            ]
            yield InputMessage(item["role"], text_of(item), files)
        elif item["type"] == "function_call_output":
            yield InputMessage("tool", pretty(item["output"]))
