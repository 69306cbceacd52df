"""Load the items of stored responses and conversations, for a request that continues
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.access.stored_turn_visibility import (
    find_visible_turns,
    visible_conversations,
)
from conversations.input.client_outputs import CallAlreadyAnswered, ClientCalls
from conversations.models import AccessToken, Conversation, Item, Turn
from conversations.turns.history import repair_history
from llm.errors import BadRequest
from llm.wire.items import Item as ItemPayload
from llm.wire.items import is_compaction

_OUTPUT = "function_call_output"


class PreviousNotFound(BadRequest):
    """There is no such previous response; it may have been deleted, or never stored."""

    code, status = "E_PREVIOUS_NOT_FOUND", 400
    openai_code = "previous_response_not_found"


class ConversationNotFound(BadRequest):
    """There is no such conversation of yours."""

    code, status = "E_CONVERSATION_NOT_FOUND", 404
    openai_code = "conversation_not_found"


def check_one_history(body: Mapping[str, Any]) -> None:
    """Raises BadRequest if a request names two things to continue."""
    if None not in (body.get("previous_response_id"), body.get("conversation")):
        raise BadRequest(
            "Send 'previous_response_id' or 'conversation', not both.",
            param="conversation",
        )


def find_turn(token: AccessToken, response_id: Any) -> Turn:
    """The turn of a previous response. Raises PreviousNotFound."""
    turns = Turn.objects.select_related("conversation").filter(pk=str(response_id))
    if not (found := find_visible_turns(token, turns)):
        raise PreviousNotFound(
            f"There is no previous response {str(response_id)[:80]!r}.",
            param="previous_response_id",
        )
    return found[0]


def find_conversation(token: AccessToken, named: Any) -> Conversation:
    """`named`: a request's field `conversation`. Raises ConversationNotFound."""
    id = named.get("id") if isinstance(named, dict) else named
    found = visible_conversations(token).filter(pk=str(id)).first()
    if found is None:
        raise ConversationNotFound(param="conversation")
    return found


def load_conversation(token: AccessToken, named: Any) -> list[ItemPayload]:
    """All items that a response with input continues which names this conversation,
    oldest first. Raises ConversationNotFound."""
    conversation = find_conversation(token, named)
    shown = conversation.last_turn_for(token.user_id)
    last = conversation.skip_failed_requests(shown)
    return load_items_up_to(last) if last is not None else []


def load_history(token: AccessToken, response_id: Any) -> list[ItemPayload]:
    """All items up to that response, oldest first. Runs three queries; four for a token
    without the scope `chat`."""
    return load_items_up_to(find_turn(token, response_id))


def load_items_up_to(turn: Turn) -> list[ItemPayload]:
    """The items of the turn and of its ancestors, oldest first."""
    parents = dict(
        Turn.objects.filter(conversation_id=turn.conversation_id).values_list(
            "pk", "parent_id"
        )
    )
    turn_ids: list[str] = []
    turn_id: str | None = turn.pk
    while turn_id in parents:
        turn_ids.append(turn_id)
        turn_id = parents.pop(turn_id)
    order = {pk: number for number, pk in enumerate(reversed(turn_ids))}
    rows = Item.objects.filter(turn_id__in=turn_ids).order_by("position")
    entries = rows.values_list("turn_id", "position", "payload")
    items = sorted(entries, key=lambda row: (order[row[0]], row[1]))
    # The gateway's clients choose their context themselves: no summary replaces it.
    return [payload for _, _, payload in items if not is_compaction(payload)]


def with_history(items: list[ItemPayload], request_input: Any) -> Any:
    """The model's input: the history `items`, then the input of the request.

    Outputs in the request are matched with the calls in the history. Raises BadRequest
    for an output without a call, and as `ClientCalls.new_items`
    for outputs that were answered before or are missing.
    """
    if isinstance(request_input, str):
        request_input = [{"type": "message", "role": "user", "content": request_input}]
    if not isinstance(request_input, list) or not all(
        isinstance(i, dict) for i in request_input
    ):
        return request_input  # the checks refuse it later
    input_items = [{"type": "message", **item} for item in request_input]
    check_outputs([*items, *input_items])
    new_items = list(ClientCalls().read(items).new_items(input_items))
    if input_items and not new_items:
        raise CallAlreadyAnswered(
            "These outputs were sent before; there is nothing new to answer.",
            param="input",
        )
    return repair_history([*items, *new_items])


def check_outputs(items: Sequence[ItemPayload]) -> None:
    """Raises BadRequest for an output without a call.

    Dropping it silently would hide from the client that the model never gets it.
    """
    if id := find_missing_call(items):
        raise BadRequest(
            f"There is no call {id[:80]!r} for this 'function_call_output'.",
            param="input",
        )


def find_missing_call(items: Sequence[ItemPayload]) -> str | None:
    """The `call_id` of an output in `items` whose call is missing, if there is one."""
    outputs = {_call_id(i) for i in items if i["type"] == _OUTPUT}
    if not outputs:
        return None
    calls = {_call_id(i) for i in items if i["type"] != _OUTPUT}
    return min(outputs - calls, default=None)


def _call_id(item: ItemPayload) -> str:
    return str(item.get("call_id"))
