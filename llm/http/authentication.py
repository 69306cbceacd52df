"""Headers that authenticate a request, with a key or a token issued for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import httpx

from llm.errors import InvalidKey
from llm.http import connections, exchange
from llm.http import request as outgoing
from llm.http.exchange import MAX_ERROR_BODY
from llm.provider import Endpoint, bearer


async def auth_headers(endpoint: Endpoint) -> dict[str, str]:
    """The authentication headers: with the API key, or with a token issued for it.

    Raises InvalidKey for a key that no header can hold.
    """
    if endpoint.credentials is not None:
        key = await endpoint.credentials.token(partial(_post_form, endpoint))
    else:
        key = endpoint.api_key
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise InvalidKey(
            "The API key contains a character that is not allowed; enter it again."
        )
    auth = bearer(key) if endpoint.credentials else endpoint.auth_headers
    return {**auth, **endpoint.secret_headers}


async def _post_form(
    endpoint: Endpoint, text: str, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """Post a form to the token issuer and return status and body. Raises LLMError."""
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
