"""Load the items of stored responses, for a response that continues one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conversations.answers import CallAnswered, Line
from conversations.history import mended
from conversations.models import AccessToken, Item, Turn
from conversations.visibility import visible_turns
from llm.errors import BadRequest
from llm.wire.items import Item as ItemPayload

_OUTPUT = "function_call_output"


class PreviousNotFound(BadRequest):
    """There is no such previous response; it may have been deleted, or never kept."""

    code, status = "E_PREVIOUS_NOT_FOUND", 400
    openai_code = "previous_response_not_found"


def turn_of(token: AccessToken, response_id: Any) -> Turn:
    """The turn of a previous response. Raises PreviousNotFound."""
    turns = visible_turns(token).select_related("conversation")
    found = turns.filter(pk=str(response_id)).first()
    if found is None:
        raise PreviousNotFound(
            f"There is no previous response {str(response_id)[:80]!r}.",
            param="previous_response_id",
        )
    return found


def history_of(token: AccessToken, response_id: Any) -> list[ItemPayload]:
    """All items up to that response, oldest first. Runs three queries."""
    return said_up_to(turn_of(token, response_id))


def said_up_to(turn: Turn) -> list[ItemPayload]:
    """The items of the turn and of its ancestors, oldest first."""
    parents = dict(
        Turn.objects.filter(conversation_id=turn.conversation_id).values_list(
            "pk", "parent_id"
        )
    )
    line: list[str] = []
    place: str | None = turn.pk
    while place in parents:
        line.append(place)
        place = parents.pop(place)
    order = {pk: number for number, pk in enumerate(reversed(line))}
    rows = Item.objects.filter(turn_id__in=line).order_by("position")
    told = rows.values_list("turn_id", "position", "payload")
    items = sorted(told, key=lambda row: (order[row[0]], row[1]))
    return [payload for _, _, payload in items]


def with_history(items: list[ItemPayload], given: Any) -> Any:
    """The model's input: the history `items`, then the input of the request.

    Outputs in the request are matched with the calls in the history. Raises BadRequest
    for an output without a call, and as `conversations.answers.Line.news` for outputs
    that were answered before or are missing.
    """
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(i, dict) for i in given):
        return given  # the checks refuse it later
    told = [{"type": "message", **item} for item in given]
    check_outputs([*items, *told])
    news = list(Line().read(items).news(told))
    if told and not news:
        raise CallAnswered(
            "These outputs were sent before; there is nothing new to be answered.",
            param="input",
        )
    return mended([*items, *news])


def check_outputs(items: Sequence[ItemPayload]) -> None:
    """Raises BadRequest for an output without a call.

    Dropping it silently would hide from the client that the model never gets it.
    """
    if id := unasked(items):
        raise BadRequest(
            f"There is no call {id[:80]!r} that this 'function_call_output' answers.",
            param="input",
        )


def unasked(items: Sequence[ItemPayload]) -> str | None:
    """The `call_id` of an output in `items` whose call is missing, if there is one."""
    outputs = {_call_of(i) for i in items if i["type"] == _OUTPUT}
    if not outputs:
        return None
    calls = {_call_of(i) for i in items if i["type"] != _OUTPUT}
    return min(outputs - calls, default=None)


def _call_of(item: ItemPayload) -> str:
    return str(item.get("call_id"))
