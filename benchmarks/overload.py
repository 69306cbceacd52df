"""A server that is offered three times what it can do: goodput, refusals, first token.

The capacity is what as many connections as `BUSY` get one request after another. Then
requests begin at three times this rate, whatever becomes of the earlier ones; those
that are refused with 503 do not come again. Streams of stored responses at `/v1`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from django.conf import settings

from benchmarks.client import Http, RequestFailed
from benchmarks.dataset import make_dataset
from benchmarks.native.programs import build, provider
from benchmarks.table import show
from tests.serving import ServerProcess, free_port

BUSY = 64  # connections that measure the capacity
RETRY_AFTER = 0.1  # seconds until one of them, refused, comes again
SECONDS = 10.0
FACTOR = 3
LIMITS = {"MAX_LAG": "0.1", "MAX_START_WAIT": "0.2"}  # see docs/scaling.md
_BODY = {"model": "mock-c20-d20", "input": "Hi", "stream": True}


@dataclass(slots=True)
class Outcome:
    ended: int = 0
    failed: int = 0
    first_tokens: list[float] = field(default_factory=list)  # seconds
    refusals: list[float] = field(default_factory=list)  # seconds until the answer


def main() -> None:
    with ExitStack() as running:
        environment = {"ENABLE_DEMO": "false", **LIMITS}
        server = ServerProcess(settings.DATA, environment).start()
        running.callback(server.stop)
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        port = free_port()
        running.enter_context(provider(build(folder), port))
        data = make_dataset(port, 1, (1,), ("c20-d20",), prefix="mock-")
        headers = {"Authorization": f"Bearer {data.token}"}
        asyncio.run(_offer_busily(server.port, headers, 2.0))  # starts its threads
        busy = asyncio.run(_offer_busily(server.port, headers, SECONDS))
        capacity = busy.ended / SECONDS
        flooded = asyncio.run(_offer(server.port, headers, FACTOR * capacity))
        rows = [_row("capacity", busy), _row(f"{FACTOR} × capacity", flooded)]
        head = ["", "ended/s", "refused/s", "failed", "first token p50, p99 ms"]
        show("Overload", [*head, "refusal p50, p99 ms"], rows)
        print(f"goodput: {flooded.ended / busy.ended:.0%} of the capacity")


async def _offer_busily(port: int, headers: dict[str, str], seconds: float) -> Outcome:
    outcome, until = Outcome(), time.monotonic() + seconds

    async def go_on() -> None:
        while time.monotonic() < until:
            if not await _request(port, headers, outcome):
                await asyncio.sleep(RETRY_AFTER)

    await asyncio.gather(*(go_on() for _ in range(BUSY)))
    return outcome


async def _offer(port: int, headers: dict[str, str], rate: float) -> Outcome:
    outcome, began, tasks = Outcome(), time.monotonic(), []
    for number in range(int(rate * SECONDS)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(_request(port, headers, outcome)))
    await asyncio.gather(*tasks)
    return outcome


class _Timed(Http):
    """Notes when the first token came."""

    first_token: float | None = None

    async def _read(self) -> bytes:
        data = await super()._read()
        if self.first_token is None and b"output_text.delta" in data:
            self.first_token = time.monotonic()
        return data


async def _request(port: int, headers: dict[str, str], outcome: Outcome) -> bool:
    """Whether it was answered."""
    began = time.monotonic()
    try:
        async with _Timed(port, headers) as http:
            await http.post("/v1/responses", dict(_BODY))
    except RequestFailed as exc:
        if " 503 " in str(exc):
            outcome.refusals.append(time.monotonic() - began)
        else:
            outcome.failed += 1
        return False
    except (OSError, EOFError):
        outcome.failed += 1
        return False
    outcome.ended += 1
    outcome.first_tokens.append((http.first_token or time.monotonic()) - began)
    return True


def _row(name: str, outcome: Outcome) -> list[object]:
    return [
        name,
        f"{outcome.ended / SECONDS:.0f}",
        f"{len(outcome.refusals) / SECONDS:.0f}",
        str(outcome.failed),
        _percentiles(outcome.first_tokens),
        _percentiles(outcome.refusals),
    ]


def _percentiles(seconds: list[float]) -> str:
    if len(seconds) < 2:
        return "–"
    found = quantiles(seconds, n=100)
    return f"{1e3 * found[49]:.0f}, {1e3 * found[98]:.0f}"
