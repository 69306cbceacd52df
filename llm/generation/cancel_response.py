"""Cancellation of responses that a provider continues in the background."""

from __future__ import annotations

import asyncio
import time

from llm.http import client
from llm.keys.selection import KeySelection
from llm.provider import Route
from llm.wire.codec import BackgroundCodec
from llm.wire.request import BackgroundResponse


async def cancel_response(route: Route, response: BackgroundResponse) -> None:
    """Cancel the response at its provider. Raises LLMError."""
    codec = route.endpoint.codec
    if not isinstance(codec, BackgroundCodec) or not route.owns_response(response):
        return
    keys = KeySelection(affinity="", wait=asyncio.sleep, now=time.time)
    route = await keys.select(route, (), issuer=response.issuer)
    await client.post(route.endpoint, codec.cancel_path(response.id))
