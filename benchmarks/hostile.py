"""What hostile input costs everybody else: the longest stall of the event loop.

Each reader is given as much as it takes, up to 20 MB, of input made to be slow, through
the door by which it comes in. Meanwhile a task of the same loop wakes every
millisecond; its longest gap is the stall. Where that is above the bound the row is
measured again, at most `TRIES` times, and the shortest of the longest gaps stands: what
our code does it does each time, what the machine did meanwhile it does not.

Beside the stall stand the CPU time of the process during it, all threads, and the time
for which the loop's thread could run and the machine ran something else (`queued`).
The verdict is by the stall, on a machine that does nothing else: where the stall is
above the bound and would not be without the time that was queued, it is "machine".

The hosts run in a process of their own. `HOSTILE=mcp` measures the rows whose name has
"mcp" in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.hostile_hosts import serve
from benchmarks.hostile_readers import Reader, readers, settle
from benchmarks.table import show

BOUND = 50  # ms
TRIES = 3
_INTERVAL = 0.001
_PATIENCE = 10.0  # seconds for one reader; the rest of its input is left unread
_QUEUED = Path("/proc/thread-self/schedstat")  # Linux
_SCRIPT = Path(__file__).parent / "markdown_stream.mjs"
#: What Markdown is made of, in a row.
STREAMED = ("[", "http://", "- [ ] ", "*a ", "`", "> ", "_", "**", "~", "|", "| a |\n")


class Stalls:
    """Of the event loop, while the block runs: the longest, and what went on in it."""

    def __init__(self) -> None:
        self.longest = self.cpu = self.queued = 0.0  # seconds

    async def __aenter__(self) -> Stalls:
        self._watching = asyncio.create_task(self._watch())
        await asyncio.sleep(10 * _INTERVAL)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.sleep(10 * _INTERVAL)  # a stall at the very end is noticed too
        self._watching.cancel()

    async def _watch(self) -> None:
        with _QUEUED.open() as told:  # noqa: ASYNC230  (it never blocks)
            last = time.perf_counter(), time.process_time(), _queued(told)
            while True:
                await asyncio.sleep(_INTERVAL)
                now = time.perf_counter(), time.process_time(), _queued(told)
                if now[0] - last[0] > self.longest:
                    self.longest, self.cpu, self.queued = (
                        after - before for after, before in zip(now, last, strict=True)
                    )
                last = now


def _queued(told: Any) -> float:
    told.seek(0)
    return int(told.read().split()[1]) / 1e9


async def _measured(name: str, read: Reader) -> list[object]:
    best: list[object] = []
    for _ in range(TRIES):
        tried = await _tried(name, read)
        if not best or tried[1] < best[1]:  # type: ignore[operator]
            best = tried
        await settle()
        if not best[4]:
            break
    return best


async def _tried(name: str, read: Callable[[], Awaitable[object]]) -> list[object]:
    started, outcome = time.perf_counter(), "read"
    async with Stalls() as stalls:
        try:
            async with asyncio.timeout(_PATIENCE):
                outcome = str(await read() or outcome)
        except Exception as exc:  # each reader refuses in its own way: shown
            outcome = type(exc).__name__
    took = time.perf_counter() - started
    stall = stalls.longest * 1000
    verdict = "" if stall <= BOUND else "above"
    if verdict and stall - stalls.queued * 1000 <= BOUND:
        verdict = "machine"  # was busy with something else
    parts = [stall, stalls.cpu * 1000, stalls.queued * 1000]
    return [name, *parts, verdict, took, outcome]


async def _all(port: int) -> list[list[object]]:
    wanted, rows = os.environ.get("HOSTILE", "").lower(), []
    async with readers(port) as found:
        for name, read in found.items():
            if wanted in name.lower():
                rows.append(await _measured(name, read))
                print(*rows[-1], file=sys.stderr, flush=True)  # if a reader ends us
    return rows


def _streamed() -> list[list[object]]:
    """What the page's own parser takes, which holds up that page and nothing else."""
    command = ["node", str(_SCRIPT), *STREAMED]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        print("The page's parser is left out: there is no node.", file=sys.stderr)
        return []
    return [
        [repr(row["unit"]), row["longest"], row["all"], row["outcome"]]
        for row in json.loads(done.stdout)
    ]


def main() -> None:
    logging.disable(logging.WARNING)
    near, far = multiprocessing.get_context("spawn").Pipe()
    host = multiprocessing.get_context("spawn").Process(target=serve, args=(far,))
    host.start()
    try:
        rows = asyncio.run(_all(near.recv()))
    finally:
        host.terminate()
        host.join()
    head = ["20 MB at", "stall, ms", "CPU in it", "queued", f"of {BOUND}", "all, s"]
    show("Hostile input: the longest stall of the event loop", [*head, "ends"], rows)
    if not os.environ.get("HOSTILE") and (pages := _streamed()):
        head = ["1 MB, 20,000 at a time", "longest, ms", "all, ms", "ends"]
        show("Hostile input: the page's parser of streamed Markdown", head, pages)
