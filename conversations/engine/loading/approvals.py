"""The calls of a turn that need a person's approval, and the decisions made so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from conversations.engine.question_store import NewQuestion
from conversations.models import Question, Turn
from llm.concurrency.database_thread import run_in_database_thread
from llm.errors import BadRequest
from llm.wire.items import Item
from llm.wire.response import arguments_of
from tools.errors import ToolError
from tools.execute import CallOutcome, check_call, find_tool_name
from tools.loop.steps import calls_without_output
from tools.registry import Context, RuntimeTool

_ERROR_TEXTS = {
    Question.State.DECLINED: "Error: a person declined this call{note}.",
    Question.State.CANCELLED: "Error: this call was not approved.",
}


class ApprovalExpired(BadRequest):
    """Nobody approved a tool call in time; it did not run. Send the message again."""

    code, status = "E_APPROVAL_EXPIRED", 409
    openai_code = "approval_expired"


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
    expired: Collection[str] = ()  # questions that nobody answered in time

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
        if tool.approval.policy == "first" and tool.name in self.trusted:
            return False
        return tool.approval.applies_to(arguments_of(call))

    def is_expired(self, output: Sequence[Item]) -> bool:
        """Whether a call of `output` still waits for a decision that can no longer be
        made."""
        return any(c["call_id"] in self.expired for c in calls_without_output(output))


def load_decisions(turn: Turn, tools: Mapping[str, RuntimeTool]) -> Decisions:
    """Load a turn's decisions: at most two queries. A new turn without tools that need
    approval has none."""
    policies = {tool.approval.policy for tool in tools.values() if tool.approval}
    rows = Question.objects.filter(tool_call__turn=turn, kind=Question.Kind.APPROVAL)
    rows = rows.exclude(state=Question.State.OPEN).select_related(
        "tool_call", "decided_by"
    )
    accepted, arguments, outcomes, expired = set(), {}, {}, set()
    for row in rows:
        call_id = row.tool_call.call_id
        if row.state == Question.State.EXPIRED:
            expired.add(call_id)
        elif row.state == Question.State.ACCEPTED:
            accepted.add(call_id)
            if row.is_edited:
                arguments[call_id] = orjson.dumps(row.answer).decode()
        else:
            outcomes[call_id] = _outcome(row)
    trusted = _load_trusted_tools(turn) if "first" in policies else frozenset()
    return Decisions(
        {name: _guard(tool, turn, trusted) for name, tool in tools.items()},
        accepted,
        arguments,
        outcomes,
        trusted,
        expired,
    )


def _load_trusted_tools(turn: Turn) -> frozenset[str]:
    rows = Question.objects.standing_approvals().filter(
        tool_call__turn__conversation_id=turn.conversation_id
    )
    return frozenset(rows.values_list("tool_call__name", flat=True).distinct())


def _guard(tool: RuntimeTool, turn: Turn, trusted: Collection[str]) -> RuntimeTool:
    """The tool; if it runs unasked because of an earlier approval, that approval is
    looked up before each call, since staff may revoke it while the turn runs."""
    is_unasked = tool.approval and tool.approval.policy == "first"
    if not is_unasked or tool.name not in trusted:
        return tool
    return replace(tool, permit=_StandingApproval(turn.conversation_id, tool))


@dataclass(frozen=True, slots=True)
class _StandingApproval:
    """Refuses calls after the approval was revoked."""

    conversation_id: str
    tool: RuntimeTool  # as it was without this

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> None:
        if self.tool.permit:
            await self.tool.permit(context, arguments)
        if not await run_in_database_thread(self._stands):
            raise ToolError(
                "the approval of this tool was revoked. Call it again in the next turn;"
                " the user is asked then."
            )

    def _stands(self) -> bool:
        rows = Question.objects.standing_approvals().filter(
            tool_call__turn__conversation_id=self.conversation_id,
            tool_call__name=self.tool.name,
        )
        return rows.exists()


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
