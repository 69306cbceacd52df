"""The calls of a turn that need a person's approval, and the decisions made so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from conversations.engine.turn_store import NewQuestion
from conversations.models import Question, Turn
from llm.wire.items import Item
from llm.wire.json_schema.validation import compile_schema
from llm.wire.response import arguments_of
from tools.execute import CallOutcome, check_call, find_tool_name
from tools.registry import Approval, RuntimeTool

_ERROR_TEXTS = {
    Question.State.DECLINED: "Error: a person declined this call{note}.",
    Question.State.EXPIRED: "Error: nobody approved this call in time.",
    Question.State.CANCELLED: "Error: this call was not approved.",
}


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions that people have made about a turn's calls, by call id."""

    tools: Mapping[str, RuntimeTool]
    accepted: Collection[str] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)  # where edited
    outcomes: Mapping[str, CallOutcome] = field(
        default_factory=dict
    )  # where not accepted
    trusted: Collection[str] = ()  # tools approved before in the conversation
    has_expired: bool = False  # a question expired without an answer

    def needs_approval(self, call: Item) -> bool:
        """False for a call that cannot run: its error needs no approval."""
        call_id: str = call["call_id"]
        if call_id in self.accepted or call_id in self.outcomes:
            return False
        tool = _tool(call, self.tools)
        if tool is None or tool.approval is None:
            return False
        if check_call(call, self.tools) is not None:
            return False
        return self._applies(tool.approval, tool, call)

    def _applies(self, approval: Approval, tool: RuntimeTool, call: Item) -> bool:
        match approval.policy:
            case "always":
                return True
            case "first":
                return tool.name not in self.trusted
            case "rule":
                return compile_schema(approval.rule or {}).is_valid(arguments_of(call))


NO_DECISIONS = Decisions({})


def decisions(turn: Turn, tools: Mapping[str, RuntimeTool]) -> Decisions:
    """Load a turn's decisions: at most two queries, and none for a new turn without
    tools that need approval."""
    policies = {tool.approval.policy for tool in tools.values() if tool.approval}
    if not policies and turn.epoch == 1:
        return NO_DECISIONS
    rows = Question.objects.filter(tool_call__turn=turn, kind=Question.Kind.APPROVAL)
    rows = rows.exclude(state=Question.State.OPEN).select_related(
        "tool_call", "decided_by"
    )
    accepted, arguments, outcomes, has_expired = set(), {}, {}, False
    for row in rows:
        has_expired |= row.state == Question.State.EXPIRED
        call_id = row.tool_call.call_id
        if row.state == Question.State.ACCEPTED:
            accepted.add(call_id)
            if row.is_edited:
                arguments[call_id] = orjson.dumps(row.answer).decode()
        else:
            outcomes[call_id] = _outcome(row)
    return Decisions(
        tools,
        accepted,
        arguments,
        outcomes,
        _load_trusted_tools(turn) if "first" in policies else (),
        has_expired,
    )


def _load_trusted_tools(turn: Turn) -> frozenset[str]:
    rows = Question.objects.filter(
        tool_call__turn__conversation_id=turn.conversation_id,
        kind=Question.Kind.APPROVAL,
        state=Question.State.ACCEPTED,
    )
    return frozenset(rows.values_list("tool_call__name", flat=True).distinct())


def _outcome(row: Question) -> CallOutcome:
    note = f": {row.note}" if row.note else ""
    text = _ERROR_TEXTS[Question.State(row.state)].format(note=note)
    who = f" by {row.decided_by}" if row.decided_by else ""
    error = f"{row.get_state_display().capitalize()}{who}{note}."
    return CallOutcome(row.tool_call.call_id, "cancelled", text, error, 0.0)


def question_of(call: Item, tools: Mapping[str, RuntimeTool]) -> NewQuestion:
    """The question to ask a person before `call` runs."""
    tool = _tool(call, tools)
    assert tool is not None, "it needs approval"
    return NewQuestion(
        kind=Question.Kind.APPROVAL,
        schema=tool.parameters,
        arguments=arguments_of(call),
        group_id=tool.approval.group_id if tool.approval else None,
    )


def question_payload(question: Question, call: Item) -> dict[str, Any]:
    """The question as our events and API responses show it."""
    return {
        "id": question.pk,
        "kind": question.kind,
        "call_id": call["call_id"],
        "item_id": call["id"],
        "name": call["name"],
        "message": question.message,
        "arguments": question.arguments,
        "schema": question.schema,
        "may_edit": question.kind == Question.Kind.APPROVAL,
        "group": question.group_id,
        "expires_at": int(question.expires_at.timestamp()),
    }


def _tool(call: Item, tools: Mapping[str, RuntimeTool]) -> RuntimeTool | None:
    return tools.get(find_tool_name(call["name"], tools))
