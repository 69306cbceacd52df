"""Count of a prompt's tokens by its host, where the host counts for nothing."""

from __future__ import annotations

import asyncio
import logging
import time

import orjson

from llm.errors import BadRequest, BadResponse, LLMError, ProviderTimeout
from llm.http import client
from llm.keys.selection import KeySelection
from llm.provider import Route
from llm.wire.codec import CountingCodec
from llm.wire.delta_reader import DECODE_ERRORS
from llm.wire.request import Request

MAX_SECONDS = 5.0  # a client that counts waits before it asks

logger = logging.getLogger(__name__)


async def count_tokens(route: Route, request: Request) -> int | None:
    """The tokens of the prompt as its host counts them; None if the host does not.

    What a host refuses is a line in the log; the caller estimates then.
    """
    codec = route.endpoint.codec
    if not (route.endpoint.provider.counts_tokens and isinstance(codec, CountingCodec)):
        return None
    try:
        async with asyncio.timeout(MAX_SECONDS):
            return await _ask(route, codec, request)
    except TimeoutError:
        error: LLMError = ProviderTimeout("The provider did not count in time.")
    except LLMError as exc:
        error = exc
    logger.info(
        "the tokens for the model %r were not counted: %s", route.name, error.code
    )
    return None


async def _ask(route: Route, codec: CountingCodec, request: Request) -> int:
    """Raises LLMError."""
    keys = KeySelection(affinity="", wait=asyncio.sleep, now=time.time)
    route = await keys.select(route, request.items)
    try:
        body = orjson.dumps(codec.encode_count(request))
    except (*DECODE_ERRORS, orjson.JSONEncodeError) as exc:
        raise BadRequest("The prompt cannot be counted.") from exc
    answered = await client.post(
        route.endpoint, codec.count_path(request), body, request.forwarded
    )
    if not (tokens := codec.decode_count(answered)):
        raise BadResponse("The provider stated no number of tokens.")
    return tokens
