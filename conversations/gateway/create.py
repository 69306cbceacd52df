"""POST handlers of Chat Completions, Messages and Responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conversations.gateway import kept, light, tokens
from conversations.gateway.asked import read
from conversations.gateway.door import Visit
from conversations.gateway.given import input_of
from conversations.gateway.history import check_outputs, history_of, with_history
from llm.errors import BadRequest


async def answer(visit: Visit) -> None:
    """Answer without storing anything but the usage."""
    database, headers = visit.means.database, visit.exchange.headers
    asked = await read(visit.body, visit.dialect, visit.token, database, headers)
    if asked.dialect.wire_is_ours:
        check_outputs(asked.request.items)
    asked = await tokens.admit(asked, database)
    visit.exchange.told |= asked.headers
    await light.answer(visit.exchange, asked, visit.means.records)


async def respond(visit: Visit) -> None:
    """Answer a Responses request.

    It is stored as a conversation of the token's user unless `store` is false.
    """
    body, database = {**visit.body}, visit.means.database
    body["input"] = await input_of(body, visit.token, database)
    if body.get("store") is not False:
        await kept.create(replace(visit, body=body))
        return
    check_unkept(body)
    if (before := body.get("previous_response_id")) is not None:
        items = await database.read(history_of, visit.token, before)
        body["input"] = with_history(items, body["input"])
    await answer(replace(visit, body=body))


def check_unkept(body: dict[str, Any]) -> None:
    """Raises BadRequest for fields that need a stored response."""
    for name in ("background", "conversation"):
        if body.get(name):
            raise BadRequest(
                f"{name!r} needs a response that is kept; leave out 'store: false'.",
                param=name,
            )
