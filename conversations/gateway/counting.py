"""Endpoints that estimate a prompt's tokens with `conversations.history.estimate`.

No provider is called, so the estimate is free and immediate; the header
`x-parley-token-count: estimate` marks it.
"""

from __future__ import annotations

from conversations.gateway.asked import read
from conversations.gateway.door import Visit
from conversations.gateway.given import written_out
from conversations.gateway.history import history_of, with_history
from conversations.history import estimate

_HEADERS = {"x-parley-token-count": "estimate"}


async def count_tokens(visit: Visit) -> None:
    """Anthropic's endpoint; it adds `max_tokens`, which the body's checks require."""
    tokens = await _tokens(visit, {"max_tokens": 1, **visit.body})
    await visit.exchange.answer(200, {"input_tokens": tokens}, _HEADERS)


async def input_tokens(visit: Visit) -> None:
    """OpenAI's endpoint."""
    body, database = visit.body, visit.means.database
    given = await written_out(body.get("input") or [], visit.token, database)
    if before := body.get("previous_response_id"):
        items = await database.read(history_of, visit.token, before)
        given = with_history(items, given)
    tokens = await _tokens(visit, {**body, "input": given})
    told = {"object": "response.input_tokens", "input_tokens": tokens}
    await visit.exchange.answer(200, told, _HEADERS)


async def _tokens(visit: Visit, body: dict[str, object]) -> int:
    means = visit.means
    asked = await read(body, visit.dialect, visit.token, means.database)
    request = asked.request
    return max(1, estimate(request.instructions, request.items, request.tools))
