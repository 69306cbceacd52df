"""`POST /v1/responses/compact`: a model's summary of a long conversation.

The summary is returned as an encrypted `compaction` item, which replaces all earlier
items in the input of a later response.

Source: https://platform.openai.com/docs/api-reference/responses/compact
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace

from conversations.gateway import tokens
from conversations.gateway.asked import read
from conversations.gateway.door import Visit
from conversations.gateway.given import written_out
from conversations.gateway.history import history_of, with_history
from conversations.gateway.light import Answer
from conversations.gateway.sealed import seal
from llm.errors import BadRequest, BadResponse
from llm.wire.items import new_id, output_text, user_message

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
    database = visit.means.database
    given = await written_out(body.get("input") or [], visit.token, database)
    if before := body.get("previous_response_id"):
        items = await database.read(history_of, visit.token, before)
        given = with_history(items, given)
    if not given:
        raise BadRequest("There is nothing to compact.", param="input")
    asked = await read(
        {"model": body["model"], "input": given, "store": False},
        visit.dialect,
        visit.token,
        database,
    )
    asked = await tokens.admit(asked, database)
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
