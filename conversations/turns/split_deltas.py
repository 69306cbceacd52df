"""Splitting of batches of deltas, so that gateway clients get each delta by itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from llm.http.client import ProviderCall, Stream
from llm.wire.deltas import Delta
from llm.wire.request import Request


def split_batches(stream: Stream) -> Stream:
    """Wrap `stream` so that each batch holds one delta.

    Gateway clients get the pieces as the provider cut them. In conversations, the
    deltas that arrived in one read stay in one batch.
    """

    async def split(
        request: Request, call: ProviderCall
    ) -> AsyncGenerator[list[Delta], None]:
        batches = stream(request, call)
        del request  # it may be large
        async with aclosing(batches):
            async for deltas in batches:
                for delta in deltas:
                    yield [delta]

    return split
