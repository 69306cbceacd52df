"""What was said in responses that are kept, for a response that goes on from one."""

from __future__ import annotations

from typing import Any

from conversations.history import mended
from conversations.models import Item, Turn
from llm.errors import BadRequest
from llm.wire.items import Item as ItemPayload


class PreviousNotFound(BadRequest):
    """There is no such previous response; it may have been deleted, or never kept."""

    code, status = "E_PREVIOUS_NOT_FOUND", 400
    openai_code = "previous_response_not_found"


def turn_of(user_id: int, response_id: Any) -> Turn:
    """The turn of a previous response. Raises PreviousNotFound."""
    found: Turn | None = _turns(user_id).filter(pk=str(response_id)).first()
    if found is None:
        raise PreviousNotFound(
            f"There is no previous response {str(response_id)[:80]!r}.",
            param="previous_response_id",
        )
    return found


def history_of(user_id: int, response_id: Any) -> list[ItemPayload]:
    """All that was said up to that response, oldest first. Two queries more."""
    turn = turn_of(user_id, response_id)
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

    Calls are mended with the outputs that the request brings.
    """
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(i, dict) for i in given):
        return given  # which the checks will refuse
    return mended([*items, *({"type": "message", **item} for item in given)])


def _turns(user_id: int) -> Any:
    return Turn.objects.filter(
        conversation__owner_id=user_id, conversation__deleted_at=None
    ).select_related("conversation")
