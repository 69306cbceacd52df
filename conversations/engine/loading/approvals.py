"""The calls of a turn that need a person's approval or sign-in, and the decisions made
so far."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from django.db import models

from conversations.engine.question_store import NewQuestion
from conversations.models import Question, Turn
from llm.concurrency.database_thread import run_in_database_thread
from llm.db.statements import CompiledRows
from llm.errors import BadRequest
from llm.wire.items import Item
from llm.wire.response_builder import arguments_of
from tools.errors import ToolError
from tools.execute import CallOutcome, check_call, find_tool_name
from tools.loop.steps import calls_without_output
from tools.loop.untrusted_content import has_untrusted_content
from tools.mcp.errors import SignInNeeded
from tools.models import McpUserSignIn
from tools.registry import Context, RuntimeTool

_ERROR_TEXTS = {
    Question.State.DECLINED: "Error: a person declined this call{note}.",
    Question.State.CANCELLED: "Error: this call was not approved.",
}
_SIGN_IN_DECLINED = (
    "Error: the user declined to sign in at {server}{note}, so this call did not run."
)


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
    trusted: Collection[str] = ()  # tools whose earlier approval covers this turn
    expired: Collection[str] = ()  # questions that nobody answered in time
    has_untrusted_input: Callable[[], bool] = bool  # False

    def needs_approval(self, call: Item, output: Sequence[Item] = ()) -> bool:
        """False for a call that cannot run: its error needs no approval."""
        call_id: str = call["call_id"]
        if call_id in self.outcomes:
            return False
        tool = _tool(call, self.tools)
        if tool is None or check_call(call, self.tools) is not None:
            return False
        return self._lacks_approval(tool, call, output) or lacks_sign_in(tool)

    def _lacks_approval(
        self, tool: RuntimeTool, call: Item, output: Sequence[Item]
    ) -> bool:
        if call["call_id"] in self.accepted:
            return False
        if tool.asks_after_untrusted and self._has_untrusted(output):
            return True
        if tool.approval is None or tool.name in self.trusted:
            return False
        return tool.needs_approval(arguments_of(call))

    def _has_untrusted(self, output: Sequence[Item]) -> bool:
        return self.has_untrusted_input() or has_untrusted_content(output, self.tools)

    def is_expired(self, output: Sequence[Item]) -> bool:
        """Whether a call of `output` still waits for a decision that can no longer be
        made."""
        return any(c["call_id"] in self.expired for c in calls_without_output(output))


def load_decisions(
    turn: Turn, tools: Mapping[str, RuntimeTool], *, has_approvals: bool
) -> Decisions:
    """Load a turn's decisions: at most three queries. A new turn without tools that
    need approval or a sign-in has none. `has_approvals`: whether some of the
    conversation may cover further calls."""
    accepted, arguments, outcomes, expired = set(), {}, {}, set()
    for row in _decided_questions(turn):
        call_id = row.tool_call.call_id
        if row.state == Question.State.EXPIRED:
            expired.add(call_id)
        elif row.kind == Question.Kind.SIGN_IN and row.state == Question.State.ACCEPTED:
            continue  # whether it holds is looked up
        elif row.state == Question.State.ACCEPTED:
            accepted.add(call_id)
            if row.is_edited:
                arguments[call_id] = orjson.dumps(row.answer).decode()
        else:
            outcomes[call_id] = _outcome(row)
    trusted = _load_trusted_tools(turn, tools) if has_approvals else frozenset()
    signed_in = SignedIn.load(turn, tools)
    return Decisions(
        {
            name: signed_in.guard(_guard(tool, turn, trusted))
            for name, tool in tools.items()
        },
        accepted,
        arguments,
        outcomes,
        trusted,
        expired,
    )


def _decided_questions(turn: Turn) -> Iterable[Question]:
    if turn.epoch == 1:  # nothing has run of it that could have asked
        return ()
    rows = Question.objects.filter(tool_call__turn=turn).exclude(
        models.Q(kind=Question.Kind.FORM) | models.Q(state=Question.State.OPEN)
    )
    return rows.select_related("tool_call", "server")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The servers at which the user of a turn is signed in while the turn runs."""

    servers: set[int]

    @classmethod
    def load(cls, turn: Turn, tools: Mapping[str, RuntimeTool]) -> SignedIn:
        if not any(tool.own_sign_in for tool in tools.values()):
            return cls(set())
        return cls(McpUserSignIn.objects.find_servers(turn.actor_id))

    def guard(self, tool: RuntimeTool) -> RuntimeTool:
        """The tool; if the server refuses the user's tokens, its next call asks for a
        sign-in again."""
        if (own := tool.own_sign_in) is None:
            return tool
        server_id = own.server_id
        return replace(
            tool,
            call=_SignedInCall(tool.call, self.servers, server_id),
            own_sign_in=replace(own, is_done=lambda: server_id in self.servers),
        )


@dataclass(frozen=True, slots=True)
class _SignedInCall:
    call: Callable[[Context, dict[str, Any]], Awaitable[Any]]
    servers: set[int]
    server_id: int

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> Any:
        try:
            return await self.call(context, arguments)
        except SignInNeeded as exc:
            self.servers.discard(self.server_id)
            raise ToolError(
                "the user's sign-in at the tool's server has ended. Call the tool"
                " again; the user is asked to sign in."
            ) from exc


def lacks_sign_in(tool: RuntimeTool) -> bool:
    return tool.own_sign_in is not None and not tool.own_sign_in.is_done()


def _load_trusted_tools(turn: Turn, tools: Mapping[str, RuntimeTool]) -> frozenset[str]:
    """Tools that a first approval covers, or one that the turn's user gave for all his
    further calls."""
    first = {name for name, tool in tools.items() if tool.asks_once}
    waivable = {name for name, tool in tools.items() if tool.may_run_always}
    approvals = _STANDING_APPROVALS.rows(turn.conversation_id)
    return frozenset(
        name
        for name, always, decided_by in approvals
        if name in first
        or (name in waivable and always and decided_by == turn.actor_id)
    )


_STANDING_APPROVALS = CompiledRows(
    lambda conversation_id: (
        Question.objects.standing_approvals()
        .filter(tool_call__turn__conversation_id=conversation_id)
        .order_by()
        .values_list("tool_call__name", "always", "decided_by")
    ),
    "conversation",
)


def _guard(tool: RuntimeTool, turn: Turn, trusted: Collection[str]) -> RuntimeTool:
    """The tool; if it runs unasked because of an earlier approval, that approval is
    looked up before each call, since it may be revoked while the turn runs."""
    if tool.name not in trusted:
        return tool
    decided_by = None if tool.asks_once else turn.actor_id
    return replace(
        tool, permit=_StandingApproval(turn.conversation_id, tool, decided_by)
    )


@dataclass(frozen=True, slots=True)
class _StandingApproval:
    """Refuses calls after the approval was revoked."""

    conversation_id: str
    tool: RuntimeTool  # as it was without this
    decided_by: int | None  # the user whose approval it is; None for anybody's

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
        if self.decided_by is not None:
            rows = rows.filter(always=True, decided_by=self.decided_by)
        return rows.exists()


def _outcome(row: Question) -> CallOutcome:
    note = f": {row.note.rstrip('.')}" if row.note else ""  # a period follows
    is_sign_in = row.kind == Question.Kind.SIGN_IN
    if is_sign_in and row.state == Question.State.DECLINED:
        server = row.server or "the tool's server"
        text = _SIGN_IN_DECLINED.format(server=server, note=note)
        error = f"The sign-in at {server} was declined{note}."
        return CallOutcome(row.tool_call.call_id, "cancelled", text, error, 0.0)
    text = _ERROR_TEXTS[Question.State(row.state)].format(note=note)
    # Without the person's name, which the question has until the person is erased.
    error = f"{row.get_state_display().capitalize()}{note}."
    return CallOutcome(row.tool_call.call_id, "cancelled", text, error, 0.0)


def question_of(call: Item, tools: Mapping[str, RuntimeTool]) -> NewQuestion:
    """The question to ask a person before `call` runs."""
    tool = _tool(call, tools)
    assert tool is not None, "it needs approval"
    if tool.own_sign_in and lacks_sign_in(tool):
        return NewQuestion(
            kind=Question.Kind.SIGN_IN, server_id=tool.own_sign_in.server_id
        )
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
        **_sign_in_fields(question),
    }


def _sign_in_fields(question: Question) -> dict[str, Any]:
    if question.kind != Question.Kind.SIGN_IN:
        return {}
    server = str(question.server) if question.server else ""
    return {"server": server, "url": question.sign_in_url}


def _tool(call: Item, tools: Mapping[str, RuntimeTool]) -> RuntimeTool | None:
    return tools.get(find_tool_name(call["name"], tools))
