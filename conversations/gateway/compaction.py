"""`POST /v1/responses/compact`: a long conversation in few words, by any model.

The summary is a `compaction` item, which stands for all that came before it in the
input of a later response.

Source: https://platform.openai.com/docs/api-reference/responses/compact
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from conversations.gateway import tokens
from conversations.gateway.asked import read
from conversations.gateway.door import Visit
from conversations.gateway.history import history_of, with_history
from conversations.gateway.light import Answer
from conversations.gateway.sealed import seal, unseal
from llm.errors import BadRequest, BadResponse
from llm.wire.items import Item, message, new_id, output_text, user_message

_HEADING = "Summary of the conversation so far:\n\n"
_INSTRUCTIONS = (
    "Summarise this conversation for an assistant that will go on with it and sees"
    " nothing else of it. Keep every fact, name, number, decision, open question and"
    " wish of the user, and what tools have found out. Write plain text without a"
    " preamble."
)
_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


async def compact(visit: Visit) -> None:
    body, user_id = visit.body, visit.token.user_id
    if not body.get("model"):
        raise BadRequest("Say which 'model' is to write the summary.", param="model")
    given = body.get("input") or []
    if before := body.get("previous_response_id"):
        items = await visit.means.database.read(history_of, user_id, before)
        given = with_history(items, given)
    if not given:
        raise BadRequest("There is nothing to compact.", param="input")
    asked = await read(
        {"model": body["model"], "input": unfolded(given, user_id), "store": False},
        visit.dialect,
        visit.token,
        visit.means.database,
    )
    asked = await tokens.admit(asked, visit.means.database)
    visit.exchange.told |= asked.headers
    wish = user_message(_INSTRUCTIONS)
    request = replace(asked.request, items=[*asked.request.items, wish])
    answer = Answer(replace(asked, request=request), visit.means.records)
    async with aclosing(answer.events()) as batches:
        async for _ in batches:
            pass
    if answer.builder.error:
        raise answer.builder.error
    summary = output_text(answer.builder.output)
    if not summary.strip():
        raise BadResponse("The model has written no summary; try again.")
    sealed = seal("compaction", user_id, summary)
    item = {"type": "compaction", "id": new_id("cmp"), "encrypted_content": sealed}
    told = {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [item],
        "usage": answer.builder.usage or _NO_USAGE,
    }
    await visit.exchange.answer(200, told)


def unfolded(given: Any, user_id: int) -> Any:
    """`given` with the words of each summary in the place of its item.

    Raises BadRequest for one that is not of ours, or of somebody else.
    """
    if not isinstance(given, list):
        return given
    return [_unfolded(item, user_id) for item in given]


def _unfolded(item: Any, user_id: int) -> Item:
    if not isinstance(item, dict) or item.get("type") != "compaction":
        return item  # type: ignore[no-any-return]
    summary = unseal("compaction", user_id, item.get("encrypted_content"))
    if summary is None:
        raise BadRequest(
            "This 'compaction' item was not made by this server for you.",
            param="input",
        )
    return message("developer", _HEADING + summary)
