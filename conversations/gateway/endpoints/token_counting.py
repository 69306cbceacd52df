"""Endpoints that estimate the tokens of a prompt.

The estimate is that of `conversations.turns.history.estimate`.

No provider is called, so the estimate is free and immediate; the header
`x-parley-token-count: estimate` marks it.
"""

from __future__ import annotations

from conversations.gateway.input_references import resolve_references
from conversations.gateway.previous_responses import load_history, with_history
from conversations.gateway.request import read_request
from conversations.gateway.request_context import RequestContext
from conversations.turns.history import estimate_tokens

_HEADERS = {"x-parley-token-count": "estimate"}


async def count_tokens(context: RequestContext) -> None:
    """Anthropic's endpoint; it adds `max_tokens`, which the body's checks require."""
    tokens = await _estimate_tokens(context, {"max_tokens": 1, **context.body})
    await context.exchange.answer(200, {"input_tokens": tokens}, _HEADERS)


async def count_input_tokens(context: RequestContext) -> None:
    """OpenAI's endpoint."""
    body, database = context.body, context.resources.database
    model_input = await resolve_references(
        body.get("input") or [], context.token, database
    )
    if before := body.get("previous_response_id"):
        items = await database.read(load_history, context.token, before)
        model_input = with_history(items, model_input)
    tokens = await _estimate_tokens(context, {**body, "input": model_input})
    answer = {"object": "response.input_tokens", "input_tokens": tokens}
    await context.exchange.answer(200, answer, _HEADERS)


async def _estimate_tokens(context: RequestContext, body: dict[str, object]) -> int:
    resources = context.resources
    gateway_request = await read_request(
        body, context.dialect, context.token, resources.database
    )
    request = gateway_request.request
    return max(1, estimate_tokens(request.instructions, request.items, request.tools))
