"""`POST /v1/responses/compact`: a model's summary of a long conversation.

The summary is returned as an encrypted `compaction` item, which replaces all earlier
items in the input of a later response.

Source: https://platform.openai.com/docs/api-reference/responses/compact
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace

from conversations.gateway import preset_models, token_access
from conversations.gateway.input_references import resolve_references
from conversations.gateway.previous_responses import load_history, with_history
from conversations.gateway.request_context import RequestContext
from conversations.gateway.request_reading import read_request
from conversations.gateway.sealed_values import seal
from conversations.gateway.stateless import StatelessResponse
from llm.errors import BadRequest, BadResponse
from llm.wire.deltas import NATURAL_ENDS
from llm.wire.items import new_id, output_text, user_message
from llm.wire.text.thoughts import remove_thought

_INSTRUCTIONS = (
    "Summarise this conversation for an assistant that will go on with it and sees"
    " nothing else of it. Keep every fact, name, number, decision, open question and"
    " wish of the user, and what tools have found out. Write plain text without a"
    " preamble."
)
_FIELDS = (
    "instructions",
    "parley",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "user",
)
_NO_USAGE = {
    "input_tokens": 0,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 0,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 0,
}


async def compact(context: RequestContext) -> None:
    body, user_id = context.body, context.token.user_id
    if not body.get("model"):
        raise BadRequest(
            "Set 'model' to the model that writes the summary.", param="model"
        )
    database = context.resources.database
    model_input = await resolve_references(
        body.get("input") or [], context.token, database
    )
    if (before := body.get("previous_response_id")) is not None:
        items = await database.read(load_history, context.token, before)
        model_input = with_history(items, model_input)
    if not model_input:
        raise BadRequest("There is nothing to compact.", param="input")
    named = {name: body[name] for name in _FIELDS if name in body}
    gateway_request = await read_request(
        {**named, "model": body["model"], "input": model_input, "store": False},
        context.dialect,
        context.token,
        database,
        context.exchange.headers,
        context.exchange.id,
    )
    if (use := gateway_request.chain.preset) is not None:
        preset_models.check_cost(use)
    gateway_request = await token_access.apply_limits(gateway_request, database)
    context.exchange.response_headers |= gateway_request.headers()
    prompt = user_message(_INSTRUCTIONS)
    request = replace(
        gateway_request.request,
        items=[*gateway_request.request.items, prompt],
        tools=(),  # a preset's would be called
    )
    answer = StatelessResponse(
        replace(gateway_request, request=request, own_tools={}),
        context.resources.write_queue,
    )
    async with aclosing(answer.events()) as batches:
        async for _ in batches:
            pass
    if answer.builder.error:
        raise answer.builder.error
    finish = answer.builder.finish
    if finish is None or finish.reason not in NATURAL_ENDS:
        raise BadResponse("The summary was cut off; allow more output tokens.")
    summary = remove_thought(output_text(answer.builder.output))
    if not summary.strip():
        raise BadResponse("The model returned no summary; try again.")
    sealed = seal("compaction", user_id, summary)
    item = {"type": "compaction", "id": new_id("cmp"), "encrypted_content": sealed}
    compacted = {
        "id": new_id("resp"),
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [item],
        "usage": answer.builder.usage or _NO_USAGE,
    }
    await context.exchange.answer(200, compacted)
