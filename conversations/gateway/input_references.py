"""Replace references in a request's input with the items that they stand for.

A client may name an item of a stored response (`item_reference`), as Vercel's SDK does
for all earlier items, or send back this server's encrypted summary (`compaction`).

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.access.stored_turn_visibility import find_visible_turns
from conversations.engine.database.executor import Database
from conversations.gateway.sealed_values import unseal
from conversations.models import AccessToken, Item, Turn
from llm.errors import BadRequest
from llm.wire.items import Item as ItemPayload
from llm.wire.items import message

HEADING = "Summary of the conversation so far:\n\n"


class ItemNotFound(BadRequest):
    """There is no such item; it may have been deleted, or never stored."""

    code, status = "E_ITEM_NOT_FOUND", 404
    openai_code = "item_not_found"


class InputMissing(BadRequest):
    """Send 'input', or what to go on from: 'previous_response_id' or 'conversation'."""

    code = "E_INPUT_MISSING"
    openai_code = "missing_required_parameter"


async def resolve_input(
    body: Mapping[str, Any],
    token: AccessToken,
    database: Database,
    *,
    leaves_foreign: bool = False,
) -> Any:
    """The input with its references resolved; `[]` if the request only continues a
    response or conversation.

    With `leaves_foreign` summaries of other servers stay (`refuse_foreign`).
    Raises InputMissing if there is neither, and what `resolve_references` raises.
    """
    raw_input = body.get("input")
    if raw_input not in (None, "", []):
        return await resolve_references(
            raw_input, token, database, leaves_foreign=leaves_foreign
        )
    if leaves_foreign and body.get("prompt") is not None:
        return []  # the host has the text
    if body.get("previous_response_id") is None and body.get("conversation") is None:
        raise InputMissing(param="input")
    return []


async def resolve_references(
    raw_input: Any,
    token: AccessToken,
    database: Database,
    *,
    leaves_foreign: bool = False,
) -> Any:
    """The input with references replaced. A value that is no list is returned as it is.

    Raises ItemNotFound, and BadRequest for a summary that this server did not make for
    this user.
    """
    if not isinstance(raw_input, list):
        return raw_input
    ids = [id for item in raw_input if (id := _referenced_id(item))]
    stored_items = await database.read(find_items, token, ids) if ids else {}
    resolved = [_resolve(item, token.user_id, stored_items) for item in raw_input]
    if not leaves_foreign:
        refuse_foreign(resolved)
    return resolved


def refuse_foreign(items: Any) -> None:
    """Raise BadRequest for a summary that this server has not made for this user."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("type") == "compaction":
            raise BadRequest(
                "This 'compaction' item was not made by this server for you.",
                param="input",
            )


def find_items(token: AccessToken, ids: Sequence[str]) -> dict[str, ItemPayload]:
    """The items with these ids that the token may read, by id."""
    rows = Item.objects.with_ids(ids)
    turns = Turn.objects.filter(pk__in=rows.values("turn_id"))
    visible_rows = rows.filter(turn__in=find_visible_turns(token, turns))
    payloads = visible_rows.values_list("payload", flat=True)
    return {payload["id"]: payload for payload in payloads}


def _referenced_id(item: Any) -> str | None:
    """The id in an `item_reference`; None for other items."""
    match item:
        case {"type": "item_reference", "id": str(id)}:
            return id
    return None


def _resolve(item: Any, user_id: int, stored_items: dict[str, ItemPayload]) -> Any:
    match item:
        case {"type": "item_reference", "id": str(id)}:
            return _stored_item(id, stored_items)
        case {"type": "compaction"}:
            return _summary_message(item, user_id)
    return item


def _stored_item(id: str, stored_items: dict[str, ItemPayload]) -> ItemPayload:
    if id not in stored_items:
        raise ItemNotFound(
            f"There is no item {id[:80]!r}. Items of responses with 'store: false' are"
            " not stored; send the item itself.",
            param="input",
        )
    return stored_items[id]


def _summary_message(item: ItemPayload, user_id: int) -> ItemPayload:
    summary = unseal("compaction", user_id, item.get("encrypted_content"))
    if summary is None:
        return item
    return message("developer", HEADING + summary)
