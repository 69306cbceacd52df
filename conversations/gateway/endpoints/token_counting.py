"""Endpoints that count the tokens of a prompt.

The model's host counts where that costs nothing (`llm.generation.token_count`);
otherwise the answer is the estimate of `conversations.turns.history.estimate`. The
header `x-parley-token-count` states which: `host` or `estimate`.
"""

from __future__ import annotations

import orjson

from conversations.gateway.dialects import MESSAGES
from conversations.gateway.input_references import resolve_references
from conversations.gateway.previous_responses import (
    check_one_history,
    load_conversation,
    load_history,
    with_history,
)
from conversations.gateway.request_context import RequestContext
from conversations.gateway.request_reading import read_request
from conversations.turns.history import estimate_tokens
from llm.generation import token_count
from llm.pricing.usage_estimate import measure_prompt
from llm.wire.request import Request

_PROMPT = ("messages", "system", "tools")  # fields of Anthropic's API


async def count_tokens(context: RequestContext) -> None:
    """Anthropic's endpoint; it adds `max_tokens`, which the body's checks require."""
    tokens, headers = await _count(context, {"max_tokens": 1, **context.body})
    await context.exchange.answer(200, {"input_tokens": tokens}, headers)


async def count_input_tokens(context: RequestContext) -> None:
    """OpenAI's endpoint."""
    body, database = context.body, context.resources.database
    model_input = await resolve_references(
        body.get("input") or [], context.token, database
    )
    check_one_history(body)
    if before := body.get("previous_response_id"):
        items = await database.read(load_history, context.token, before)
        model_input = with_history(items, model_input)
    elif named := body.get("conversation"):
        items = await database.read(load_conversation, context.token, named)
        model_input = with_history(items, model_input)
    tokens, headers = await _count(context, {**body, "input": model_input})
    answer = {"object": "response.input_tokens", "input_tokens": tokens}
    await context.exchange.answer(200, answer, headers)


async def _count(
    context: RequestContext, body: dict[str, object]
) -> tuple[int, dict[str, str]]:
    """The tokens, and the header that states who counted. Raises LLMError."""
    resources = context.resources
    gateway_request = await read_request(
        body,
        context.dialect,
        context.token,
        resources.database,
        context.exchange.headers,
        may_forward=context.dialect is MESSAGES,
    )
    request = gateway_request.request
    counted = await token_count.count_tokens(gateway_request.route, request)
    tokens = counted or max(1, _estimate(request))
    return tokens, {"x-parley-token-count": "host" if counted else "estimate"}


def _estimate(request: Request) -> int:
    if request.forwarded is None:
        return estimate_tokens(request.instructions, request.items, request.tools)
    body = request.forwarded.fields
    return measure_prompt(orjson.dumps({n: body[n] for n in _PROMPT if n in body}))
