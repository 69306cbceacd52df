"""Longest stalls of the event loop while readers process hostile input.

Each reader receives up to 20 MB of input made to be slow, through its usual entry.
Meanwhile a task on the same loop wakes every millisecond; its longest gap is the stall.
A row above the bound is measured up to `TRIES` times and the shortest stall counts: our
code stalls every time, other processes on the machine do not.

The table also shows the process's CPU time during the stall (all threads), and the time
in which the loop's thread was runnable but the machine ran something else (`queued`).
If only the queued time puts a stall above the bound, the verdict is "machine".

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

from benchmarks.hostile_input.hosts import serve
from benchmarks.hostile_input.parsers import Reader, readers, settle
from benchmarks.table import show

BOUND = 50  # ms
TRIES = 3
_INTERVAL = 0.001
_PATIENCE = 10.0  # seconds for one reader; then it is cancelled
_QUEUED = Path("/proc/thread-self/schedstat")  # Linux
_SCRIPT = Path(__file__).parent / "markdown_stream.mjs"
#: Fragments of Markdown, each repeated.
STREAMED = ("[", "http://", "- [ ] ", "*a ", "`", "> ", "_", "**", "~", "|", "| a |\n")


class Stalls:
    """The event loop's longest stall in an `async with` block, with its CPU time."""

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
        with _QUEUED.open() as schedstat:  # noqa: ASYNC230  (it never blocks)
            last = time.perf_counter(), time.process_time(), _queued(schedstat)
            while True:
                await asyncio.sleep(_INTERVAL)
                now = time.perf_counter(), time.process_time(), _queued(schedstat)
                if now[0] - last[0] > self.longest:
                    self.longest, self.cpu, self.queued = (
                        after - before for after, before in zip(now, last, strict=True)
                    )
                last = now


def _queued(schedstat: Any) -> float:
    schedstat.seek(0)
    return int(schedstat.read().split()[1]) / 1e9


async def _measured(name: str, read: Reader) -> list[object]:
    best: list[object] = []
    for _ in range(TRIES):
        tried = await _tried(name, read)
        if not best or tried[1] < best[1]:
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
        except (
            Exception
        ) as exc:  # readers refuse with different errors; the table shows it
            outcome = type(exc).__name__
    took = time.perf_counter() - started
    stall = stalls.longest * 1000
    verdict = "" if stall <= BOUND else "above"
    if verdict and stall - stalls.queued * 1000 <= BOUND:
        verdict = "machine"  # ran another process
    parts = [stall, stalls.cpu * 1000, stalls.queued * 1000]
    return [name, *parts, verdict, took, outcome]


async def _all(port: int) -> list[list[object]]:
    wanted, rows = os.environ.get("HOSTILE", "").lower(), []
    async with readers(port) as found:
        for name, read in found.items():
            if wanted in name.lower():
                rows.append(await _measured(name, read))
                print(
                    *rows[-1], file=sys.stderr, flush=True
                )  # in case a reader kills the process
    return rows


def _streamed() -> list[list[object]]:
    """Times of the page's own parser; its stalls affect that page alone."""
    command = ["node", str(_SCRIPT), *STREAMED]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        print("Skipped the page's parser: node is not installed.", file=sys.stderr)
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
