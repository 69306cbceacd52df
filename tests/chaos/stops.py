"""Stop a message that causes turns without end, and measure what still begins."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.integration.clients import Program

from .deliveries import Delivery
from .ledger import RecordedRequest
from .offered import model_of
from .provider import ChaosProvider
from .scenarios import ENDLESS
from .wires import WIRES
from .wish import Wish

BOUND = 0.5  # seconds after Stop in which all is quiet
QUIET = 1.5  # seconds without a request after which the message counts as ended
PATIENCE = 60  # seconds


@dataclass(slots=True)
class Stops:
    """Seconds from each Stop to the last thing that began, and to the last answer of
    the provider that was closed; 0 where it was over before."""

    begun: list[float] = field(default_factory=list)
    closed: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def lines(self, name: str) -> list[str]:
        return [
            f"{name}: {len(self.begun)} stops; time / bound ({BOUND * 1000:.0f} ms):"
            f" last beginning {_spread(self.begun)};"
            f" provider closed {_spread(self.closed)}",
            *(f"  VIOLATION {each}" for each in self.violations),
        ]


def _spread(seconds: Sequence[float]) -> str:
    ratios = sorted(each / BOUND for each in seconds)
    high = ratios[math.ceil(len(ratios) * 0.95) - 1]
    median = statistics.median(ratios)
    return f"median {median:.2f}, 95 % {high:.2f}, highest {ratios[-1]:.2f}"


async def measure(
    delivery: Delivery, provider: ChaosProvider, seed: str, count: int
) -> Stops:
    """One message after another, each stopped at a random moment from a process other
    than its own, if there is one."""
    dice, stops = random.Random(seed), Stops()
    for number in range(count):
        wish = Wish(
            id=f"stop{number}x{dice.randrange(10**6)}",
            scenario=ENDLESS,
            words=10,
            pace=0.02,
            work=100,
        )
        async with asyncio.timeout(PATIENCE):
            await _stop_one(delivery, provider, wish, dice, stops)
    return stops


async def _stop_one(
    delivery: Delivery,
    provider: ChaosProvider,
    wish: Wish,
    dice: random.Random,
    stops: Stops,
) -> None:
    asking, stopping = delivery.programs[0], delivery.programs[-1]
    ledger, least = provider.ledger, dice.randint(3, 8)
    model = model_of(dice.choice([*WIRES]), "")
    conversation = await asking.conversation()
    turn = await asking.create_turn(conversation, wish.text(), model=model)
    await ledger.wait_until(lambda: len(ledger.of(wish)) >= least)
    await asyncio.sleep(dice.uniform(0, 0.4))
    stopped_at = time.time()
    await stopping.cancel(turn)
    await _until_quiet(asking, conversation, ledger.of, wish)
    turns = await fetch_all(asking, conversation, "turns")
    calls = await fetch_all(asking, conversation, "tool-calls")
    requests = ledger.of(wish)
    rows = [datetime.fromisoformat(row["started_at"]) for row in [*turns, *calls]]
    begun = [
        *(request.begun_at for request in requests),
        *(row.timestamp() for row in rows),
    ]
    stops.begun.append(max(0.0, max(begun) - stopped_at))
    closed = max(request.closed_at or time.time() for request in requests)
    stops.closed.append(max(0.0, closed - stopped_at))
    stops.violations += problems(wish, turns, calls)


async def _until_quiet(
    program: Program, conversation: str, requests_of: Any, wish: Wish
) -> None:
    """No turn is unfinished, and for a while the provider gets no request."""
    quiet_since, known = time.monotonic(), -1
    while time.monotonic() - quiet_since < QUIET:
        await asyncio.sleep(0.1)
        requests: list[RecordedRequest] = requests_of(wish)
        turns = await fetch_all(program, conversation, "turns")
        is_over = all(turn["finished_at"] for turn in turns)
        if (
            len(requests) != known
            or not is_over
            or any(a.closed_at is None for a in requests)
        ):
            quiet_since, known = time.monotonic(), len(requests)


def problems(
    wish: Wish, turns: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]]
) -> list[str]:
    """What a Stop must not leave behind."""
    unfinished = [turn["id"] for turn in turns if not turn["finished_at"]]
    running = [c["id"] for c in calls if c["state"] in ("pending", "executing")]
    root = next(turn for turn in turns if turn["caused_by"] is None)
    found = [f"{wish.id}: turn {each} is not over" for each in unfinished]
    found += [f"{wish.id}: call {each} still runs" for each in running]
    if root["halted_by"] != "person":
        found.append(f"{wish.id}: halted by {root['halted_by']!r}")
    return found


async def fetch_all(
    program: Program, conversation: str, what: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    path = f"/api/conversations/{conversation}/{what}/"
    async with program.http() as http:
        while path:
            page = (await http.get(path)).json()
            found += page["results"]
            path = page.get("next") or ""
    return found
