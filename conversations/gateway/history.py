"""What was said in responses that are kept, for a response that goes on from one."""

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
    """All that was said up to that response, oldest first. Two queries more."""
    return said_up_to(turn_of(token, response_id))


def said_up_to(turn: Turn) -> list[ItemPayload]:
    """Oldest first."""
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
    """What a model is told: `items`, then the input of the request.

    Calls are mended with the outputs that the request brings. Raises BadRequest for an
    output that answers none, and as `conversations.answers` for a second one.
    """
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(i, dict) for i in given):
        return given  # which the checks will refuse
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
    """Raises BadRequest for the output of a call that nobody has made.

    Left out in silence, it would be an answer that the model never hears of.
    """
    if id := unasked(items):
        raise BadRequest(
            f"There is no call {id[:80]!r} that this 'function_call_output' answers.",
            param="input",
        )


def unasked(items: Sequence[ItemPayload]) -> str | None:
    """The call that an output among `items` answers and that is not among them."""
    outputs = {_call_of(i) for i in items if i["type"] == _OUTPUT}
    if not outputs:
        return None
    calls = {_call_of(i) for i in items if i["type"] != _OUTPUT}
    return min(outputs - calls, default=None)


def _call_of(item: ItemPayload) -> str:
    return str(item.get("call_id"))
