"""Limits that a gateway process shares with the engine's, which counts for all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cached_property
from typing import Any

from conversations.access.errors import ServerBusy, TooManyConnections
from conversations.access.rate_buckets.buckets import (
    Charge,
    SharedBuckets,
    Verdict,
    verdict_of,
)
from conversations.models.access_token import AccessToken
from project.server.gateway_processes.channel import PATIENCE, Channel

ERRORS = {each.__name__: each for each in (ServerBusy, TooManyConnections)}


class EngineBuckets(SharedBuckets):
    """Token buckets of the process with the engine."""

    def __init__(self, channel: Channel) -> None:
        super().__init__("the process with the engine")
        self._channel = channel
        self._loop = asyncio.get_running_loop()

    async def aclose(self) -> None:
        """The channel stays open until the process ends."""

    def _request(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        if all(each.is_unconditional for each in charges):
            # Calls are settled on the event loop, which cannot wait for an answer.
            self._loop.call_soon_threadsafe(
                self._channel.notify, "take", owner, _encode(charges)
            )
            return Verdict(True, ())
        asking = asyncio.run_coroutine_threadsafe(
            self._arequest(owner, charges), self._loop
        )
        return asking.result(2 * PATIENCE)  # the loop's wait ends before

    async def _arequest(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        is_allowed, levels = await self._channel.ask("take", owner, _encode(charges))
        return verdict_of(charges, is_allowed, levels)

    @cached_property
    def _failures(self) -> tuple[type[Exception], ...]:
        return ConnectionError, TimeoutError


class SharedConnections:
    """Registers this process's open requests with the process that counts them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)

    async def open(self, token: AccessToken, is_work: bool) -> Callable[[], None]:
        """Returns a function to be called at the end of the request. Raises
        TooManyConnections, and ServerBusy for new work."""
        number = next(self._numbers)

        def close() -> None:
            self._channel.notify("close", number)

        try:
            refusal = await self._channel.ask(
                "open", number, token.user_id, token.pk, is_work
            )
        except (ConnectionError, TimeoutError):
            return close  # failing limits must not stop the service
        except asyncio.CancelledError:
            close()
            raise
        if refusal:
            name, message, retry_after = refusal
            raise ERRORS[name](message, retry_after=retry_after)
        return close


def _encode(charges: Sequence[Charge]) -> list[Any]:
    return [astuple(each) for each in charges]
