"""Display blocks of an answer: messages, reasoning, tool calls and their results.

A block is a value with the name of its template. While a turn runs,
static/js/turn-view.js builds the same blocks from events.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.models import Question, ToolCall
from conversations.pages.hosted_tool_cards import card_of
from conversations.pages.reading.citations import (
    Citation,
    citations_of,
    marked_text,
)
from conversations.turns.compaction import (
    CHANGED_AT,
    UNDONE,
    summary_of,
)
from conversations.turns.tool_display import (
    HostedResults,
    Piece,
    pieces,
    preview,
    shorten,
)
from llm.wire.item_stream import SECONDS
from llm.wire.items import Item as ItemPayload
from llm.wire.items import is_compaction, text_of
from tools.loop.late_results import CALL_NAME_KEY

MAX_UNGROUPED = 3  # more adjacent calls than this are shown as one group
RESULT_CALL_ID = (
    "parley:call_id"  # key of a message that reports a background call's result
)
_LATE = gettext_lazy("A result arrived too late and was not used.")
_FOR_CLIENT = gettext_lazy("The program that declared this function has to run it.")
_IN_BACKGROUND = gettext_lazy(
    "Running in the background; its result will appear when it is there."
)


@dataclass(frozen=True, slots=True)
class MessageBlock:
    template: ClassVar[str] = "conversations/_message_part.html"
    key: str
    text: str
    is_cut: bool
    citations: Sequence[Citation] = ()
    marked_text: str = ""  # the text with the citations' numbers


@dataclass(frozen=True, slots=True)
class SteeringBlock:
    """A person's message that joined the turn while it ran."""

    template: ClassVar[str] = "conversations/queue/_steered.html"
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    template: ClassVar[str] = "conversations/_reasoning.html"
    key: str
    text: str
    seconds: int | None = None  # that it took; None if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBlock:
    template: ClassVar[str] = "conversations/_tool_call.html"
    icon: ClassVar[str] = "tool"
    key: str
    name: str
    preview: str
    arguments: Sequence[Piece]
    approved_arguments: Sequence[
        Piece
    ] = ()  # what it ran with, if a user changed the arguments
    state: str
    state_label: str
    output: Sequence[Piece] = ()
    error: str = ""
    message: str = ""  # progress, while it runs
    seconds: float | None = None
    running: float | None = None  # seconds since its start, while it runs
    full_output_url: str = ""  # URL of the full output, if only a part is shown
    decision: str = ""  # a user's decision about the call
    in_background: bool = False  # it runs there


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedToolBlock(ToolCallBlock):
    """A call of a tool that the provider runs (hosted tool)."""

    icon: ClassVar[str] = "globe"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundResultBlock(ToolCallBlock):
    """The result of a background call, in the message that gave it to the model."""

    icon: ClassVar[str] = "inbox"
    tool: str = ""  # its name; `name` is a heading in the reader's language


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryBlock:
    """A summary that the model reads instead of earlier messages."""

    template: ClassVar[str] = "conversations/_summary.html"
    key: str
    item_id: str
    messages: int  # that it replaces
    text: str
    is_undone: bool
    is_edited: bool

    @property
    def label(self) -> str:
        words = ngettext(
            "%(count)s earlier message summarised",
            "%(count)s earlier messages summarised",
            self.messages,
        ) % {"count": self.messages}
        if self.is_undone:
            return _("%(summary)s, undone") % {"summary": words}
        return (
            _("%(summary)s, edited") % {"summary": words} if self.is_edited else words
        )


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Several adjacent calls, shown as one."""

    template: ClassVar[str] = "conversations/_tool_call_group.html"
    key: str
    calls: Sequence[ToolCallBlock]

    @property
    def states(self) -> list[tuple[str, str]]:
        """Calls counted by state, `("failed", "1 failed")`, …, in order of states."""
        counts = Counter(call.state for call in self.calls)
        return [
            (str(state), f"{counts[state]} {state.label}")
            for state in ToolCall.State
            if state in counts
        ]


Block = (
    MessageBlock
    | SteeringBlock
    | ReasoningBlock
    | ToolCallBlock
    | SummaryBlock
    | CallGroup
)


@dataclass(frozen=True, slots=True)
class CallRows:
    """Data from the database about an answer's calls, beside the items."""

    calls: Mapping[str, ToolCall] = field(default_factory=dict)  # by call id
    delivered: Mapping[str, ToolCall] = field(default_factory=dict)
    full_output_urls: Mapping[str, str] = field(
        default_factory=dict
    )  # URLs, by call id
    #: Outputs that clients sent for their own calls in a later turn; by call id.
    client_outputs: Mapping[str, Any] = field(default_factory=dict)


def build_blocks(items: Sequence[ItemPayload], rows: CallRows) -> list[Block]:
    outputs = {
        item["call_id"]: item["output"]
        for item in items
        if item["type"] == "function_call_output"
    }
    built: list[Block] = []
    adjacent: list[ToolCallBlock] = []  # adjacent calls
    for number, item in enumerate(items):
        key = str(number)  # the item's output_index
        if item["type"] == "function_call":
            output = outputs.get(
                item["call_id"], rows.client_outputs.get(item["call_id"])
            )
            adjacent.append(_call_block(key, item, rows, output))
            continue
        block = _item_block(key, item, rows)
        if block is not None or item["type"] == "function_call_output":
            built += _group_calls(adjacent)
            adjacent = []
        if block is not None:
            built.append(block)
    return built + _group_calls(adjacent)


def _group_calls(calls: Sequence[ToolCallBlock]) -> list[Block]:
    if len(calls) > MAX_UNGROUPED:
        return [CallGroup(f"group-{calls[0].key}", tuple(calls))]
    return list(calls)


def _item_block(key: str, item: ItemPayload, rows: CallRows) -> Block | None:
    match item["type"]:
        case "message" if RESULT_CALL_ID in item:
            return _background_result_block(
                key, item, rows.delivered.get(item[RESULT_CALL_ID])
            )
        case "message" if item.get("role") == "user":
            return SteeringBlock(key, text_of(item))
        case "message":
            is_cut = bool(item.get("parley:interrupted"))
            citations, marked = citations_of(item), marked_text(item)
            return MessageBlock(key, text_of(item), is_cut, citations, marked)
        case "reasoning":
            thought = _reasoning_text(item)
            seconds = _reasoning_seconds(item)
            return ReasoningBlock(key, thought, seconds) if thought else None
        case "function_call_output":
            return None
        case "compaction" if is_compaction(item):
            return _summary_block(key, item)
    return _provider_tool_block(key, item)


def _summary_block(key: str, item: ItemPayload) -> SummaryBlock:
    is_undone = bool(item.get(UNDONE))
    return SummaryBlock(
        key=key,
        item_id=item["id"],
        messages=item.get("parley:messages", 0),
        text=summary_of(item),
        is_undone=is_undone,
        is_edited=CHANGED_AT in item and not is_undone,
    )


def _reasoning_seconds(item: ItemPayload) -> int | None:
    """Whole seconds, rounded up; None for less than a tenth, and where none are
    stored."""
    seconds = item.get(SECONDS)
    return math.ceil(seconds) if isinstance(seconds, int | float) and seconds else None


def _reasoning_text(item: ItemPayload) -> str:
    """The summary, else the raw reasoning; "" where the provider does not reveal it."""
    for name in ("summary", "content"):
        parts = [part["text"] for part in item.get(name) or () if part.get("text")]
        if parts:
            return "\n\n".join(parts)
    return ""


# Calls of our tools


def _call_block(
    key: str, item: ItemPayload, rows: CallRows, output: Any
) -> ToolCallBlock:
    call = rows.calls.get(item["call_id"])
    state = _state(item, call, output)
    message, in_background = "", False
    if call and not call.blocking:  # its output item is only a placeholder
        output = call.output
        message = "" if call.state in ToolCall.FINISHED else str(_IN_BACKGROUND)
        in_background = call.state == ToolCall.State.EXECUTING
    elif output is None and call:
        output = call.output
    if call is None and state == ToolCall.State.PENDING:
        message = str(_FOR_CLIENT)
    error, decision = (call.error, _decision(call)) if call else ("", "")
    edited = _edited_arguments(call)
    if decision and state == ToolCall.State.CANCELLED:
        error, output = "", None  # the decision already says it
    return ToolCallBlock(
        key=key,
        name=item["name"],
        preview=preview(
            item["arguments"]
            if edited is None
            else json.dumps(edited, ensure_ascii=False)
        ),
        arguments=_arguments(item["arguments"]),
        approved_arguments=() if edited is None else pieces(edited),
        state=state,
        state_label=capfirst(str(state.label)),
        output=() if error and output == f"Error: {error}" else pieces(output),
        error=error,
        message=str(_LATE) if call and call.late_at else _progress(call) or message,
        seconds=call.seconds if call else None,
        running=call.running if call else None,
        full_output_url=rows.full_output_urls.get(item["call_id"], ""),
        decision=decision,
        in_background=in_background,
    )


def _progress(call: ToolCall | None) -> str:
    """The call's progress message; "" once it has ended."""
    return call.progress if call and call.state not in ToolCall.FINISHED else ""


def _arguments(text: str) -> Sequence[Piece]:
    """Empty where there are no arguments."""
    return () if text.strip() in ("", "{}") else pieces(text)


def _edited_arguments(call: ToolCall | None) -> Any:
    """The arguments it ran with, where a user has changed the model's; else None."""
    for question in call.questions.all() if call else ():
        if question.state == Question.State.ACCEPTED and question.is_edited:
            return question.answer
    return None


def _state(item: ItemPayload, call: ToolCall | None, output: Any) -> ToolCall.State:
    if call:
        return ToolCall.State(call.state)
    # No row: the client answers this call, or its arguments were cut off.
    if output is not None:
        return ToolCall.State.COMPLETED
    if item.get("status") == "incomplete":
        return ToolCall.State.CANCELLED
    return ToolCall.State.PENDING


def _decision(call: ToolCall) -> str:
    """A user's decision about the call as a sentence; "" where there is none."""
    for question in call.questions.all():
        if question.kind != Question.Kind.APPROVAL:
            continue
        person = question.decided_by
        words = _decision_in_words(question, bool(person)) % {"person": person}
        if question.state == Question.State.EXPIRED or not words:
            return words
        return f"{words}: {question.note}" if question.note else f"{words}."
    return ""


def _decision_in_words(question: Question, is_known: bool) -> str:
    match question.state, is_known:
        case Question.State.ACCEPTED, True if question.is_edited:
            return _("Approved by %(person)s with other arguments")
        case Question.State.ACCEPTED, False if question.is_edited:
            return _("Approved with other arguments")
        case Question.State.ACCEPTED, True:
            return _("Approved by %(person)s")
        case Question.State.ACCEPTED, False:
            return _("Approved")
        case Question.State.DECLINED, True:
            return _("Declined by %(person)s")
        case Question.State.DECLINED, False:
            return _("Declined")
        case Question.State.EXPIRED, _any:
            return _("The call was not approved in time.")
    return ""


def _background_result_block(
    key: str, item: ItemPayload, call: ToolCall | None
) -> BackgroundResultBlock:
    heading, _blank, rest = text_of(item).partition("\n\n")
    state = ToolCall.State(call.state) if call else ToolCall.State.COMPLETED
    output = call.output if call and call.output is not None else rest
    return BackgroundResultBlock(
        key=key,
        name=(
            _("Result of %(tool)s") % {"tool": call.name}
            if call
            else heading.removesuffix(":")
        ),
        tool=call.name if call else item.get(CALL_NAME_KEY, ""),
        preview=shorten(rest),
        arguments=(),
        state=state,
        state_label=capfirst(str(state.label)),
        output=pieces(output),
        error=call.error if call else "",
        seconds=call.seconds if call else None,
    )


# Tools that providers run

_EXECUTING = ToolCall.State.EXECUTING.label
_HOSTED_LABELS = {
    "completed": ToolCall.State.COMPLETED.label,
    "failed": ToolCall.State.FAILED.label,
    "incomplete": gettext_lazy("cut off"),
}


def _provider_tool_block(key: str, item: ItemPayload) -> HostedToolBlock:
    card = card_of(item)
    state = card["state"]
    found = card["results"]
    return HostedToolBlock(
        key=key,
        name=card["title"],
        preview=shorten(card["query"]),
        arguments=pieces(card["code"]),
        state="cancelled" if state == "incomplete" else state,
        state_label=capfirst(str(_HOSTED_LABELS.get(state, _EXECUTING))),
        output=[HostedResults(found, card["more"])] if found else [],
        error=card["error"],
    )
