"""Replace references in a request's input with the items that they stand for.

A client may name an item of a stored response (`item_reference`), as Vercel's SDK does
for all earlier items, or send back this server's encrypted summary (`compaction`).

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.engine.database import Database
from conversations.gateway.sealed import unseal
from conversations.models import AccessToken, Item
from conversations.visibility import visible_turns
from llm.errors import BadRequest
from llm.wire.items import Item as ItemPayload
from llm.wire.items import message

HEADING = "Summary of the conversation so far:\n\n"


class ItemNotFound(BadRequest):
    """There is no such item; it may have been deleted, or never kept."""

    code, status = "E_ITEM_NOT_FOUND", 404
    openai_code = "item_not_found"


class InputMissing(BadRequest):
    """Send 'input', or what to go on from: 'previous_response_id' or 'conversation'."""

    code = "E_INPUT_MISSING"
    openai_code = "missing_required_parameter"


async def input_of(
    body: Mapping[str, Any], token: AccessToken, database: Database
) -> Any:
    """The input with its references resolved; `[]` if the request only continues a
    response or conversation.

    Raises InputMissing if there is neither, and what `resolve_references` raises.
    """
    given = body.get("input")
    if given not in (None, "", []):
        return await written_out(given, token, database)
    if body.get("previous_response_id") is None and body.get("conversation") is None:
        raise InputMissing(param="input")
    return []


async def written_out(given: Any, token: AccessToken, database: Database) -> Any:
    """The input with references replaced. A value that is no list is returned as it is.

    Raises ItemNotFound, and BadRequest for a summary that this server did not make for
    this user.
    """
    if not isinstance(given, list):
        return given
    named = [id for item in given if (id := _referred(item))]
    kept = await database.read(items_of, token, named) if named else {}
    return [_written_out(item, token.user_id, kept) for item in given]


def items_of(token: AccessToken, ids: Sequence[str]) -> dict[str, ItemPayload]:
    """The items with these ids that the token may read, by id."""
    rows = Item.objects.named(ids).filter(turn__in=visible_turns(token))
    payloads = rows.values_list("payload", flat=True)
    return {payload["id"]: payload for payload in payloads}


def _referred(item: Any) -> str | None:
    """The id in an `item_reference`; None for other items."""
    match item:
        case {"type": "item_reference", "id": str(id)}:
            return id
    return None


def _written_out(item: Any, user_id: int, kept: dict[str, ItemPayload]) -> Any:
    match item:
        case {"type": "item_reference", "id": str(id)}:
            return _kept(id, kept)
        case {"type": "compaction"}:
            return _summary(item, user_id)
    return item


def _kept(id: str, kept: dict[str, ItemPayload]) -> ItemPayload:
    if id not in kept:
        raise ItemNotFound(
            f"There is no item {id[:80]!r}. What is said with 'store: false' is not"
            " kept; send the item itself.",
            param="input",
        )
    return kept[id]


def _summary(item: ItemPayload, user_id: int) -> ItemPayload:
    summary = unseal("compaction", user_id, item.get("encrypted_content"))
    if summary is None:
        raise BadRequest(
            "This 'compaction' item was not made by this server for you.",
            param="input",
        )
    return message("developer", HEADING + summary)
