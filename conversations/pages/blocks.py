"""Display blocks of an answer: messages, reasoning, tool calls and their results.

A block is a value with the name of its template. While a turn runs,
static/js/turn-view.js builds the same blocks from events.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from conversations.models import Question, ToolCall
from conversations.pages.hosted_tool_cards import card_of
from conversations.turns.tool_display import (
    HostedResults,
    Piece,
    pieces,
    preview,
    shorten,
)
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

MAX_UNGROUPED = 3  # more adjacent calls than this are shown as one group
RESULT_CALL_ID = (
    "parley:call_id"  # key of a message that reports a background call's result
)

_WEB = re.compile(r"https?://", re.IGNORECASE)
_LATE = "A result came later, and was not used."
_FOR_CLIENT = "The program that declared this function has to run it."
_IN_BACKGROUND = "Goes on in the background; the result will be told as it comes."


@dataclass(frozen=True, slots=True)
class Citation:
    url: str
    title: str


@dataclass(frozen=True, slots=True)
class MessageBlock:
    template: ClassVar[str] = "conversations/_said.html"
    key: str
    text: str
    is_cut: bool
    citations: Sequence[Citation] = ()


@dataclass(frozen=True, slots=True)
class ReasoningBlock:
    template: ClassVar[str] = "conversations/_thought.html"
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallBlock:
    template: ClassVar[str] = "conversations/_called.html"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedToolBlock(ToolCallBlock):
    """A call of a tool that the provider runs (hosted tool)."""

    icon: ClassVar[str] = "globe"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundResultBlock(ToolCallBlock):
    """The result of a background call, in the message that gave it to the model."""

    icon: ClassVar[str] = "inbox"


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Several adjacent calls, shown as one."""

    template: ClassVar[str] = "conversations/_called_group.html"
    key: str
    calls: Sequence[ToolCallBlock]

    @property
    def states(self) -> list[tuple[str, str]]:
        """Calls counted by state, `("failed", "1 failed")`, …, in order of states."""
        counts = Counter(call.state for call in self.calls)
        labels = {call.state: call.state_label for call in self.calls}
        order = [str(state) for state in ToolCall.State]
        return [
            (state, f"{counts[state]} {labels[state].lower()}")
            for state in sorted(counts, key=order.index)
        ]


Block = MessageBlock | ReasoningBlock | ToolCallBlock | CallGroup


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
        case "message":
            is_cut = bool(item.get("parley:interrupted"))
            return MessageBlock(key, text_of(item), is_cut, citations_of(item))
        case "reasoning":
            thought = _reasoning_text(item)
            return ReasoningBlock(key, thought) if thought else None
        case "function_call_output":
            return None
    return _provider_tool_block(key, item)


def citations_of(item: ItemPayload) -> list[Citation]:
    """The web pages that a message cites, each once."""
    parts = item["content"] if isinstance(item["content"], list) else []
    found = {
        note["url"]: Citation(note["url"], note.get("title") or _host(note["url"]))
        for part in parts
        for note in part.get("annotations") or ()
        if note.get("type") == "url_citation" and _WEB.match(note.get("url") or "")
    }
    return list(found.values())


def _host(url: str) -> str:
    return url.split("/")[2]


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
    message = ""
    if call and not call.blocking:  # its output item is only a placeholder
        output = call.output
        message = "" if call.state in ToolCall.FINISHED else _IN_BACKGROUND
    elif output is None and call:
        output = call.output
    if call is None and state == ToolCall.State.PENDING:
        message = _FOR_CLIENT
    error, decision = (call.error, _decision(call)) if call else ("", "")
    if decision and state == ToolCall.State.CANCELLED:
        error, output = "", None  # the decision already says it
    return ToolCallBlock(
        key=key,
        name=item["name"],
        preview=preview(item["arguments"]),
        arguments=_arguments(item["arguments"]),
        approved_arguments=_final_arguments(call) if call else (),
        state=state,
        state_label=str(state.label).capitalize(),
        output=() if error and output == f"Error: {error}" else pieces(output),
        error=error,
        message=_LATE if call and call.late_at else _progress(call) or message,
        seconds=call.seconds if call else None,
        running=call.running if call else None,
        full_output_url=rows.full_output_urls.get(item["call_id"], ""),
        decision=decision,
    )


def _progress(call: ToolCall | None) -> str:
    """The call's progress message; "" once it has ended."""
    return call.progress if call and call.state not in ToolCall.FINISHED else ""


def _arguments(text: str) -> Sequence[Piece]:
    """Empty where there are no arguments."""
    return () if text.strip() in ("", "{}") else pieces(text)


def _final_arguments(call: ToolCall) -> Sequence[Piece]:
    """The arguments it ran with, where a user has changed the model's."""
    for question in call.questions.all():
        if question.state == Question.State.ACCEPTED and question.is_edited:
            return pieces(question.answer)
    return ()


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
        decider = f" by {question.decided_by}" if question.decided_by else ""
        note = f": {question.note}" if question.note else "."
        match question.state:
            case Question.State.ACCEPTED if question.is_edited:
                return f"Approved{decider} with other arguments{note}"
            case Question.State.ACCEPTED:
                return f"Approved{decider}{note}"
            case Question.State.DECLINED:
                return f"Declined{decider}{note}"
            case Question.State.EXPIRED:
                return "Nobody approved it in time."
    return ""


def _background_result_block(
    key: str, item: ItemPayload, call: ToolCall | None
) -> BackgroundResultBlock:
    heading, _, rest = text_of(item).partition("\n\n")
    state = ToolCall.State(call.state) if call else ToolCall.State.COMPLETED
    output = call.output if call and call.output is not None else rest
    return BackgroundResultBlock(
        key=key,
        name=f"Result of {call.name}" if call else heading.removesuffix(":"),
        preview=shorten(rest),
        arguments=(),
        state=state,
        state_label=str(state.label).capitalize(),
        output=pieces(output),
        error=call.error if call else "",
        seconds=call.seconds if call else None,
    )


# Tools that providers run

_HOSTED_LABELS = {"completed": "Completed", "failed": "Failed", "incomplete": "Cut off"}


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
        state_label=_HOSTED_LABELS.get(state, "Executing"),
        output=[HostedResults(found, card["more"])] if found else [],
        error=card["error"],
    )
