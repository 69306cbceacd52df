"""Compaction: a summary that replaces the earlier items of a conversation. Pure.

In: the log, which is the items of a turn and of the turns that it follows, each with
its place, and the conversation's compaction items. Out: the items that a request
contains instead of the earlier ones, and where the next compaction may end.

Theory: a compaction item names the place of the last item that it covers
(`parley:through`). It changes no other row, so a request is a function of the log and
of the policy that the item names: taking it back restores the request before it. It may
be stored in any turn of the conversation, because another turn that follows the same
turns (an edit, a second attempt) uses it too.

No compaction ends between a call and its output, or between a model's reasoning and the
calls that follow from it: it ends at the end of a turn, or behind the outputs of a
round of calls. Pinned messages, instructions that a client has sent as messages, and
the message whose answer it splits are sent beside the summary, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from conversations.turns.history import estimate_tokens
from llm.wire.items import THROUGH, Item, message, new_id

TYPE = "compaction"
POLICY = 1  # of new compaction items: what is covered, what stays, how it is worded
PINNED = "parley:pinned"
UNDONE = "parley:undone"
CHANGED_AT = "parley:changed_at"  # when a person last edited it or took it back

#: Share of the room for prompts that recent items may fill after a compaction. It is
#: small because each compaction invalidates the provider's prompt cache.
KEEP = 0.25
#: A compaction that replaces less than this share of the room is not worth its price.
MIN_GAIN = 0.2
#: Share of the room that a summary may fill which a person has edited.
MAX_EDITED = 0.5

_VERSION = "parley:version"
_PIECE = 4_000  # characters of a summary that is summarised again
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "computer_call_output")
_CALLS = tuple(kind.removesuffix("_output") for kind in _OUTPUTS)
_HEADING = (
    "[The earlier part of this conversation was replaced by the following summary.]\n\n"
)


class LogEntry(NamedTuple):
    """An item and its place in the conversation."""

    turn_id: str
    position: int
    is_input: bool
    item: Item


@dataclass(frozen=True, slots=True)
class Log:
    """The items of a turn and its ancestors, in order, without compaction items."""

    entries: Sequence[LogEntry]
    order: Mapping[str, int]  # numbers of these turns
    compactions: Sequence[Item]  # of the whole conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A compaction that can be made."""

    through: Mapping[str, Any]
    messages: int  # messages that the summary will replace, earlier ones included
    summary: str  # the earlier summary, which the new one includes
    items: Sequence[Item]  # to be summarised
    version: int = 0  # of a summary that is shortened and covers what it covered


# The context


def find_active(compactions: Iterable[Item], order: Mapping[str, int]) -> Item | None:
    """The compaction that applies to the turns in `order`: the one that covers most,
    with the shortest summary."""
    usable = [
        item
        for item in _of_lineage(compactions, order)
        if not item.get(UNDONE) and item.get("parley:policy") == POLICY
    ]
    return max(usable, key=lambda item: _reach(item, order), default=None)


def is_declined(log: Log) -> bool:
    """Whether a person has taken back a compaction that covers more than the active
    one, or as much with a shorter summary: then no other is made until the model
    refuses the conversation."""
    active = find_active(log.compactions, log.order)
    undone = [
        item for item in _of_lineage(log.compactions, log.order) if item.get(UNDONE)
    ]
    floor = _reach(active, log.order)[:3] if active else (-1, -1, 0)
    return any(_reach(item, log.order)[:3] > floor for item in undone)


def apply_compaction(
    entries: Sequence[LogEntry], compaction: Item | None, order: Mapping[str, int]
) -> list[Item]:
    """The items of `entries` with the covered ones replaced."""
    if compaction is None:
        return [entry.item for entry in entries]
    cut = count_covered(entries, compaction, order)
    covered, rest = entries[:cut], entries[cut:]
    split = rest[0].turn_id if rest else ""
    kept = [_without_proof(e.item) for e in covered if _stays(e, split)]
    return [summary_message(compaction), *kept, *(entry.item for entry in rest)]


def count_covered(
    entries: Sequence[LogEntry], compaction: Item, order: Mapping[str, int]
) -> int:
    """The number of entries that the compaction covers."""
    through = compaction[THROUGH]
    end = (order[through["turn"]], through["position"])
    positions = ((order[entry.turn_id], entry.position) for entry in entries)
    return sum(position <= end for position in positions)


def summary_message(compaction: Item) -> Item:
    """The summary as the model reads it. As a user's message, because it may repeat
    what a web page or a tool has said."""
    text = _HEADING + summary_of(compaction)
    return {
        "type": "message",
        "id": compaction["id"],
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }


def summary_of(compaction: Item) -> str:
    return "".join(part["text"] for part in compaction["summary"])


def compaction_item(plan: Plan, summary: str) -> Item:
    item = {
        "type": TYPE,
        "id": new_id("cmp"),
        "status": "completed",
        "summary": [{"type": "summary_text", "text": summary}],
        "parley:policy": POLICY,
        THROUGH: dict(plan.through),
        "parley:messages": plan.messages,
    }
    return item | ({_VERSION: plan.version} if plan.version else {})


def _of_lineage(compactions: Iterable[Item], order: Mapping[str, int]) -> list[Item]:
    return [item for item in compactions if item[THROUGH].get("turn") in order]


def _reach(item: Item, order: Mapping[str, int]) -> tuple[int, int, int, str]:
    through = item[THROUGH]
    turn, position = order[through["turn"]], through["position"]
    return turn, position, item.get(_VERSION, 0), item["id"]


def _stays(entry: LogEntry, split: str) -> bool:
    """Whether a covered item is sent all the same. `split` is the turn whose message
    is answered by what follows."""
    item = entry.item
    if item["type"] != "message":
        return False  # such as a tool's output: it cannot be sent without its call
    is_asked = entry.is_input and entry.turn_id == split
    return is_asked or bool(item.get(PINNED)) or _is_instruction(item)


def _is_instruction(item: Item) -> bool:
    return item.get("role") in ("system", "developer")


def _without_proof(item: Item) -> Item:
    """A provider's proof may refer to items before it, which are not sent any more."""
    return {k: v for k, v in item.items() if k != "provider_data"}


# Where a compaction may end


def plan_compaction(log: Log, *, keep: int, at_least: int) -> Plan | None:
    """The compaction after which recent items of about `keep` tokens remain; None if it
    would replace fewer than `at_least` tokens.

    A summary of more than `keep` tokens, made for a larger window or written by a
    person, is itself summarised.
    """
    entries = log.entries
    active = find_active(log.compactions, log.order)
    start = count_covered(entries, active, log.order) if active else 0
    tokens = [estimate_tokens("", [entry.item]) for entry in entries]
    summary = summary_of(active) if active else ""
    excess = estimate_tokens(summary, ()) - keep
    cut = _choose_cut(entries, tokens, start, keep) or start
    split = entries[cut].turn_id if cut > start else ""
    replaced = [n for n in range(start, cut) if not _stays(entries[n], split)]
    gain = sum(tokens[n] for n in replaced) + max(0, excess)
    if gain < at_least or not (replaced or (active and excess > 0)):
        return None
    before = _pieces(summary) if excess > 0 else []
    if active and not replaced:
        return Plan(
            through=active[THROUGH],
            messages=active.get("parley:messages", 0),
            summary="",
            items=before,
            version=active.get(_VERSION, 0) + 1,
        )
    items = [e.item for e in entries[start:cut] if not _is_instruction(e.item)]
    last = entries[cut - 1]
    gone = (entry.item for entry in entries[:cut] if not _stays(entry, split))
    return Plan(
        through={"turn": last.turn_id, "position": last.position},
        messages=sum(item["type"] == "message" for item in gone),
        summary="" if before else summary,
        items=[*before, *items],
    )


def _pieces(summary: str) -> list[Item]:
    """A long summary as messages, of which as many are read at a time as fit."""
    starts = range(0, len(summary), _PIECE)
    texts = [summary[start : start + _PIECE] for start in starts]
    return [message("earlier summary", text) for text in texts]


def _choose_cut(
    entries: Sequence[LogEntry], tokens: Sequence[int], start: int, keep: int
) -> int | None:
    """The first place that leaves at most `keep` tokens, if possible between turns;
    else the last place at all."""
    left = list(tokens)
    for n in range(len(left) - 2, -1, -1):
        left[n] += left[n + 1]
    cuts = [cut for cut in safe_cuts(entries) if cut > start]
    small = [cut for cut in cuts if left[cut] <= keep]
    between_turns = [
        cut
        for cut in small
        if left[cut] >= keep // 4 and entries[cut].turn_id != entries[cut - 1].turn_id
    ]
    return next(iter([*between_turns, *small, *cuts[-1:]]), None)


def safe_cuts(entries: Sequence[LogEntry]) -> list[int]:
    """The places (numbers of entries before them) at which a compaction may end."""
    open_calls = _count_open_calls(entries)
    return [
        n
        for n in range(1, len(entries))
        if not open_calls[n] and _is_border(entries[n - 1], entries[n])
    ]


def _is_border(last: LogEntry, first: LogEntry) -> bool:
    if first.item["type"] in _OUTPUTS or first.item["type"] == "mcp_approval_response":
        return False
    return last.turn_id != first.turn_id or last.item["type"] in _OUTPUTS


def _count_open_calls(entries: Sequence[LogEntry]) -> list[int]:
    """For each place the number of calls before it whose output is behind it.

    Some hosts use the same call ids in every answer, so an output belongs to the last
    call of its id. A call without an output is never open.
    """
    begun: dict[tuple[str, str], int] = {}
    change = [0] * (len(entries) + 1)
    for number, (*_, item) in enumerate(entries):
        kind = item["type"]
        if kind in _CALLS:
            begun[kind, str(item.get("call_id"))] = number
        elif kind == "mcp_approval_request":
            begun[kind, str(item.get("id"))] = number
        elif (call := begun.pop(_call_of(item), None)) is not None:
            change[call + 1] += 1
            change[number + 1] -= 1
    total, counts = 0, []
    for step in change:
        total += step
        counts.append(total)
    return counts


def _call_of(item: Item) -> tuple[str, str]:
    """The key of the call that this item answers; one of no call for others."""
    kind = item["type"]
    if kind == "mcp_approval_response":
        return "mcp_approval_request", str(item.get("approval_request_id"))
    return kind.removesuffix("_output") if kind in _OUTPUTS else "", str(
        item.get("call_id")
    )
