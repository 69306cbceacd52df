"""Requests to the issuer of an access token, which a key is exchanged for."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from llm.http import connections, exchange
from llm.http import request as outgoing
from llm.http.exchange import MAX_ERROR_BODY
from llm.provider import Endpoint


async def post_form(
    endpoint: Endpoint, text: str, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """Post a form to the issuer and return status and body. Raises LLMError."""
    allow_private = endpoint.allow_private_network
    message = httpx.Request(
        "POST",
        outgoing.parse_url(text, allow_private=allow_private),
        data=form,
        headers={"Accept": "application/json", "User-Agent": "parley"},
        extensions=outgoing.extensions(endpoint),
    )
    is_proxied = bool(endpoint.connection.proxy_url)
    transport = connections.transport(private=allow_private or is_proxied)
    answer = await exchange.send_request(transport, message, streams=True)
    try:
        body = await answer.read_rest(limit=MAX_ERROR_BODY)
    finally:
        await answer.aclose()
    return answer.response.status_code, body
