"""Database access for stored responses. Synchronous, for the database's threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from conversations import engine
from conversations.access import budget
from conversations.access.errors import Forbidden
from conversations.access.stored_turn_visibility import find_visible_turns
from conversations.access.webhooks.limit_events import notes_refusals
from conversations.audit.act import Act, Channel, acting
from conversations.audit.record import record_event
from conversations.engine.finished_turn_events import replay
from conversations.gateway.errors import UploadQuotaExceeded
from conversations.gateway.exchanges import explanation
from conversations.gateway.gateway_request import GatewayRequest
from conversations.gateway.input_references import InputMissing
from conversations.gateway.preset_models import OtherPreset
from conversations.gateway.previous_responses import (
    check_one_history,
    check_outputs,
    find_conversation,
    find_missing_call,
    find_turn,
    load_items_up_to,
)
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.models import AccessToken, Conversation, Item, OpenedTurn, Turn
from conversations.models.access_token import Scope
from conversations.models.policy.legal_hold import is_conversation_held
from conversations.models.turn import CALLER
from conversations.turns.all_except import AllExcept
from conversations.turns.attachments import UploadRefused, check_inline_quota
from llm.errors import BadRequest
from llm.generation.request_builder import OPTIONS
from llm.models import LanguageModel, ModelCall
from llm.options import UNSET_VALUES
from llm.wire.facades.responses_request import echo_of
from llm.wire.facades.responses_writer import ResponsesWriter
from llm.wire.items import Event, message, new_id
from llm.wire.items import Item as ItemPayload
from llm.wire.request import single_tools
from llm.wire.response_builder import ResponseBuilder
from tools.loop.steps import is_allowed, is_limited


class ResponseNotFound(BadRequest):
    """There is no such response; it may have been deleted, or never stored."""

    code, status = "E_RESPONSE_NOT_FOUND", 404
    openai_code = "response_not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A stored response, as its endpoints need it."""

    id: str
    conversation_id: str
    echo: Mapping[str, Any]
    server_tools: Collection[str]
    receipts: bool = False
    explains: bool = False  # the request wants to know what became of it
    created_at: int = 0
    is_over: bool = False
    background: bool = False
    inputs: Sequence[ItemPayload] = ()
    #: The response as rows have it; recent events may be only in the event log.
    current_response: Mapping[str, Any] = field(default_factory=dict)
    explanation: Mapping[str, Any] = field(default_factory=dict)  # fields of the answer

    def writer(self, starting_after: int = -1) -> ResponsesWriter:
        return ResponsesWriter(
            server_tools=self.server_tools,
            receipts=self.receipts,
            starting_after=starting_after,
        )

    def add_echo(self, event: Event) -> Event:
        """Replace the engine's values in the event's response by the request's own."""
        if "response" in event:
            return {**event, "response": {**event["response"], **self.echo}}
        return event

    def explain(self) -> dict[str, Any]:
        """What became of the request so far, from the rows of its calls."""
        turn = Turn.objects.only("created_at", "finished_at", "options").get(pk=self.id)
        ended = turn.finished_at
        return explanation.explain(
            list(ModelCall.objects.filter(turn_id=self.id).order_by("pk")),
            requested_model=str(self.echo.get("model") or ""),
            request_id=str((turn.options.get(CALLER) or {}).get("request_id") or ""),
            seconds=(ended - turn.created_at).total_seconds() if ended else None,
        )

    def unstarted_response(self, status: str) -> dict[str, Any]:
        """The response object of a turn that has not started."""
        builder = ResponseBuilder(
            id=self.id, model="", echo=self.echo, created_at=self.created_at
        )
        return {**builder.response([]), "status": status}

    def to_dict(self) -> dict[str, Any]:
        whole = self.writer().whole({**self.current_response, **self.echo})
        return {**whole, **self.explanation}


@notes_refusals
@transaction.atomic(savepoint=False)
def open_turn(gateway_request: GatewayRequest) -> OpenedTurn:
    """Raises BadRequest, Forbidden, PreviousNotFound, ConversationNotFound,
    BudgetExhausted, UploadQuotaExceeded."""
    budget.check_budget(gateway_request.token)
    try:
        check_inline_quota(gateway_request.token.user_id, gateway_request.request.items)
    except UploadRefused as exc:
        raise UploadQuotaExceeded(str(exc), param="input") from exc
    conversation, parent = _find_conversation(gateway_request)
    if conversation is not None and not conversation.is_from_api:
        _check_approvals(gateway_request)
    model = _model(gateway_request)
    use = gateway_request.chain.preset
    if conversation is None:
        conversation = Conversation(  # `open_turn` writes it
            owner=gateway_request.token.user,
            language_model=model,
            model_pool=model.pool_name,
            preset=use.preset if use else None,
            is_from_api=True,
        )
    elif use and conversation.preset_id != use.preset.pk:
        raise OtherPreset(param="model")
    opened = conversation.open_turn(
        [_to_stored_item(item) for item in gateway_request.request.items],
        language_model=model,
        parent=parent,
        access_token=gateway_request.token,
        options=_options(gateway_request),
    )
    _check_input(gateway_request.request.items, opened.turn)
    if len(gateway_request.chain.routes) > 1 or not opened.items:
        return opened
    # The chain was resolved for this request, so its reader need not do it again.
    opened.turn.lacking = {"fallbacks"}
    return replace(opened, route=gateway_request.route)


def _check_approvals(gateway_request: GatewayRequest) -> None:
    """Refuse a decision about a provider's call in a person's chat by a program that
    may not decide there. Raises Forbidden."""
    kinds = {item.get("type") for item in gateway_request.request.items}
    may_decide = gateway_request.token.has_scope(Scope.APPROVE)
    if "mcp_approval_response" in kinds and not may_decide:
        raise Forbidden(param="input")


def _check_input(items: Sequence[ItemPayload], turn: Turn) -> None:
    """Raises BadRequest for an output without a call, InputMissing if the conversation
    is empty."""
    if items and not find_missing_call(items):
        return
    items_so_far = load_items_up_to(turn)
    if not items_so_far:
        raise InputMissing(param="input")
    check_outputs(items_so_far)


def find(token: AccessToken, response_id: str) -> StoredResponse:
    """Raises ResponseNotFound."""
    turns = Turn.objects.select_related("language_model__provider")
    if not (found := find_visible_turns(token, turns.filter(pk=response_id))):
        raise ResponseNotFound(f"There is no response {response_id[:80]!r}.")
    return response_of(found[0], with_items=True)


def stop(response_id: str) -> None:
    engine.cancel(Turn(pk=response_id))


def stop_soon(response_id: str, records: WriteBehindQueue) -> None:
    """Queue `stop`, for a caller that cannot wait because it was cancelled."""
    records.add(partial(stop, response_id))


@transaction.atomic
def delete(response_id: str, token: AccessToken) -> None:
    """Delete a turn; turns that continue it are attached to its parent.

    Raises ResponseNotFound if another request has deleted it.
    """
    turns = Turn.objects.select_related("conversation").filter(
        pk=response_id, conversation__deleted_at=None, deleted_at=None
    )
    # Of parallel deletes only one finds the row: SQLite's transactions are serial.
    locked = turns.select_for_update(of=("self", "conversation"))
    if (turn := locked.first()) is None:
        raise ResponseNotFound(f"There is no response {response_id[:80]!r}.")
    if not turn.is_finished:
        engine.cancel(turn)
    act = Act(
        channel=Channel.GATEWAY, actor=token.user, identity={"token": str(token.pk)}
    )
    with acting(act):
        _delete(turn)


def _delete(turn: Turn) -> None:
    if turn.conversation.turns.count() == 1:
        turn.conversation.delete_softly()
        return
    held = is_conversation_held(turn.conversation_id, turn.conversation.owner_id)
    turn.children.update(parent=turn.parent)
    if held:  # hidden, as a deleted branch is
        Turn.objects.filter(pk=turn.pk).update(deleted_at=timezone.now())
    owner = turn.conversation.owner_id
    record_event("content.delete", target=turn, subject=owner)
    if not held:
        turn.delete()


def response_of(turn: Turn, *, with_items: bool = False) -> StoredResponse:
    options = turn.options.get("gateway") or {}
    echo = options.get("echo") or {"model": _model_name(turn)}
    rows = (
        list(Item.objects.filter(turn=turn).order_by("position")) if with_items else []
    )
    found = StoredResponse(
        id=turn.pk,
        conversation_id=turn.conversation_id,
        echo={**echo, "conversation": {"id": turn.conversation_id}},
        server_tools=_server_tools(turn),
        receipts=options.get("receipts") is True,
        explains=options.get("explain") is True,
        created_at=int(turn.created_at.timestamp()),
        is_over=turn.is_finished,
        background=echo.get("background") is True,
        inputs=[row.payload for row in rows if row.origin == Item.Origin.INPUT],
        current_response=_current_response(turn, rows) if with_items else {},
    )
    if with_items and found.explains:
        return replace(found, explanation={explanation.FIELD: found.explain()})
    return found


def _server_tools(turn: Turn) -> Collection[str]:
    """A turn from the chat page has no list, so it may call all server tools."""
    named, choice = turn.options.get("server_tools"), turn.options.get("tool_choice")
    if named is not None and not is_limited(choice):
        return frozenset(named)
    tools = single_tools(turn.options.get("tools") or ())
    declared = [str(tool.get("name")) for tool in tools]
    return AllExcept([name for name in declared if is_allowed(name, choice)])


def _model(gateway_request: GatewayRequest) -> LanguageModel:
    assert gateway_request.route.model_id is not None, "names lead to rows"
    chain = gateway_request.chain
    if chain.model is not None:
        return chain.model
    model = LanguageModel.objects.get(pk=gateway_request.route.model_id)
    if (chains := chain.pool) is not None:
        model.pool_name = chains.pool.name
    return model


def _model_name(turn: Turn) -> str:
    return turn.language_model.public_name if turn.language_model else ""


def _current_response(turn: Turn, rows: Sequence[Item]) -> dict[str, Any]:
    try:
        replayed = replay(turn.pk)
    except engine.TurnDeleted as exc:  # since its row was read
        raise ResponseNotFound("This response has been deleted.") from exc
    if replayed:
        response: dict[str, Any] = replayed.entries[-1].event["response"]
        if turn.status == Turn.Status.CANCELLED:
            response["status"] = "cancelled"
        return response
    builder = ResponseBuilder(
        id=turn.pk, model="", created_at=int(turn.created_at.timestamp())
    )
    output = [row.payload for row in rows if row.origin == Item.Origin.OUTPUT]
    builder.restore(output, turn.usage)
    waits = turn.status == Turn.Status.QUEUED
    return {**builder.response(), "status": "queued" if waits else "in_progress"}


def _find_conversation(
    gateway_request: GatewayRequest,
) -> tuple[Conversation | None, Turn | None]:
    """The conversation of the request, and the turn that it continues."""
    token, body = gateway_request.token, gateway_request.body
    check_one_history(body)
    if (before := body.get("previous_response_id")) is not None:
        parent = find_turn(token, before)
        return parent.conversation, parent
    if (named := body.get("conversation")) is not None:
        return find_conversation(token, named), None
    return None, None


def _options(gateway_request: GatewayRequest) -> dict[str, Any]:
    """What the turn stores of its request."""
    request, own_tools = gateway_request.request, gateway_request.own_tools
    body, parley = gateway_request.body, gateway_request.parley_options
    values = {name: getattr(request, name) for name in OPTIONS}
    return {
        **{name: value for name, value in values.items() if value not in UNSET_VALUES},
        "tools": [each for each in request.tools if each.get("name") not in own_tools],
        "server_tools": sorted(own_tools),
        "instructions": request.instructions,
        "ignore_invalid_options": parley.ignore_invalid_options,
        "droppable_options": gateway_request.droppable,
        "max_tool_calls": gateway_request.max_tool_calls,
        "cache_seconds": parley.cache_seconds,
        CALLER: gateway_request.said_of_caller(),
        "gateway": {
            "echo": echo_of(body, request) | {"model": body["model"], "store": True},
            "receipts": parley.receipts,
            "explain": parley.explain,
            # The request names a conversation, and its token may read chats.
            "chats": body.get("conversation") is not None
            and gateway_request.token.has_scope(Scope.CHAT),
        },
    }


def _to_stored_item(item: ItemPayload) -> ItemPayload:
    """A request's item as it is stored: with an id and parts, without proofs."""
    kind = item.get("type", "message")
    plain = {name: value for name, value in item.items() if name != "provider_data"}
    if kind == "message" and isinstance(item.get("content"), str):
        plain = message(item["role"], item["content"]) | (
            {"id": item["id"]} if item.get("id") else {}
        )
    prefix = {"message": "msg", "function_call_output": "fco"}.get(kind, "item")
    return {
        **plain,
        "type": kind,
        "id": plain.get("id") or new_id(prefix),
        "status": plain.get("status") or "completed",
    }
