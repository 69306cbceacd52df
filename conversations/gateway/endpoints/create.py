"""POST handlers of Chat Completions, Messages and Responses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from conversations.gateway import preset_models, stored, token_access
from conversations.gateway.errors import Misdirected
from conversations.gateway.forwarding import answer as forwarded_answer
from conversations.gateway.forwarding.answer import ForwardedResponse
from conversations.gateway.gateway_request import GatewayRequest
from conversations.gateway.input_references import resolve_input
from conversations.gateway.previous_responses import (
    check_outputs,
    load_history,
    with_history,
)
from conversations.gateway.request_context import RequestContext
from conversations.gateway.request_reading import read_request
from conversations.gateway.stateless import StatelessResponse, send_stream, send_whole
from conversations.models import AccessToken
from llm.errors import BadRequest


async def answer(context: RequestContext) -> None:
    """Answer without storing anything but the usage."""
    database, headers = context.resources.database, context.exchange.headers
    gateway_request = await read_request(
        context.body,
        context.dialect,
        context.token,
        database,
        headers,
        context.exchange.id,
        may_forward=True,
    )
    if (use := gateway_request.chain.preset) is not None:
        request = await preset_models.with_context(
            use, gateway_request.request, context.token
        )
        gateway_request = replace(gateway_request, request=request)
    forwarded = gateway_request.request.forwarded
    if forwarded is not None and forwarded.wants_frames:
        await _forward(context, gateway_request)
        return
    body_size: float = context.exchange.body_size
    # A list may have outputs of calls, and references to stored items of any size.
    if isinstance(context.body.get("input"), list):
        check_outputs(gateway_request.request.items)
        body_size = math.inf
    gateway_request = await token_access.apply_limits(
        gateway_request, database, body_size=body_size
    )
    context.exchange.response_headers |= gateway_request.headers()
    response = StatelessResponse(gateway_request, context.resources.write_queue)
    send = send_stream if gateway_request.request.stream else send_whole
    await send(context.exchange, gateway_request, response)


async def _forward(context: RequestContext, gateway_request: GatewayRequest) -> None:
    """Send the client's own body, and the bytes of the answer."""
    exchange, resources = context.exchange, context.resources
    gateway_request = await token_access.apply_limits(
        gateway_request, resources.database, body_size=exchange.body_size
    )
    exchange.response_headers |= gateway_request.headers()
    response = ForwardedResponse(gateway_request, resources.write_queue)
    if gateway_request.request.stream:
        await forwarded_answer.send_stream(exchange, gateway_request, response)
    else:
        await forwarded_answer.send_whole(exchange, gateway_request, response)


async def respond(context: RequestContext) -> None:
    """Answer a Responses request.

    It is stored as a conversation of the token's user unless `store` is false.
    """
    body, database = {**context.body}, context.resources.database
    if not (body.get("input") and isinstance(body["input"], str)):
        body["input"] = await resolve_input(
            body,
            context.token,
            database,
            leaves_foreign=not is_stored(body, context.token),
        )
    if is_stored(body, context.token):
        if address := context.resources.engine_address:
            raise Misdirected(address)
        await stored.create(replace(context, body=body))
        return
    check_stateless(body)
    if (before := body.get("previous_response_id")) is not None:
        items = await database.read(load_history, context.token, before)
        body["input"] = with_history(items, body["input"])
    await answer(replace(context, body=body))


def is_stored(body: dict[str, Any], token: AccessToken) -> bool:
    """Whether the response is stored: as `store` says, or as the token has it, unless
    the request needs a stored one. Sets `store` where the token decides."""
    if body.get("store") is None and not token.stores_responses:
        body["store"] = bool(body.get("background") or body.get("conversation"))
    return body.get("store") is not False


def check_stateless(body: dict[str, Any]) -> None:
    """Raises BadRequest for fields that need a stored response."""
    for name in ("background", "conversation"):
        if body.get(name):
            raise BadRequest(
                f"{name!r} needs a stored response; leave out 'store: false'.",
                param=name,
            )
