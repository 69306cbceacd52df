"""Remove a participant whose pages are open in all processes, and measure until they
are closed."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.integration.guests import Guest, closed, remove, revoke_unannounced

from .deliveries import Delivery

BOUND = 2.0  # seconds until the last page is closed
UNANNOUNCED = 5  # removals of which no process hears
ROLES = ("viewer", "writer", "approver")
CLOSE_CODE = 4404


@dataclass(slots=True)
class Revocations:
    """Seconds from each removal to the last page that was closed."""

    announced: list[float] = field(default_factory=list)
    unannounced: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def lines(self, name: str) -> list[str]:
        return [
            f"{name}: removed participants, until their last page is closed (bound"
            f" {BOUND:g} s): {_spread(self.announced)}; without the notification"
            f" {_spread(self.unannounced)}",
            *(f"  VIOLATION {each}" for each in self.violations),
        ]


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    return (
        f"{len(seconds)} times, median {statistics.median(seconds) * 1000:.0f} ms,"
        f" highest {max(seconds) * 1000:.0f} ms"
    )


async def measure_revocations(delivery: Delivery, count: int) -> Revocations:
    found = Revocations()
    if not count:
        return found
    guest = await asyncio.to_thread(Guest, delivery.webs[0], "guest")
    for number in range(count):
        await _remove_one(delivery, guest, ROLES[number % 3], found)
    for _ in range(min(count, UNANNOUNCED)):
        await _revoke_one(delivery, guest, found)
    return found


async def _remove_one(
    delivery: Delivery, guest: Guest, role: str, found: Revocations
) -> None:
    owner = delivery.programs[0]
    conversation = await owner.conversation()
    pk = await guest.join(owner, conversation, role)
    async with guest.pages(delivery.webs, conversation) as pages:
        ends = asyncio.gather(*map(closed, pages))
        began = time.time()
        await remove(owner, pk)
        _note(found, found.announced, began, await ends)


async def _revoke_one(delivery: Delivery, guest: Guest, found: Revocations) -> None:
    owner = delivery.programs[0]
    conversation = await owner.conversation()
    pk = await guest.join(owner, conversation, "viewer")
    async with guest.pages(delivery.webs, conversation) as pages:
        ends = asyncio.gather(*map(closed, pages))
        began = await asyncio.to_thread(revoke_unannounced, delivery.webs[0], pk)
        _note(found, found.unannounced, began, await ends)


def _note(
    found: Revocations,
    times: list[float],
    began: float,
    ends: Sequence[tuple[int | None, float]],
) -> None:
    times.append(max(0.0, max(at for _, at in ends) - began))
    if times[-1] > BOUND:
        found.violations.append(f"a page was open for {times[-1]:.2f} s")
    found.violations += [
        f"a page was closed with {code}" for code, _ in ends if code != CLOSE_CODE
    ]
