"""Interrupt turns at random and compare what is stored with what was sent. Then stop
messages that cause turns without end, and measure how long things still begin. Remove
participants, and measure how long their pages stay open.

    python -m tests.chaos [--turns 200] [--stops 25] [--revocations 20] [--seed N]
                          [--delivery embedded|scaled|both]

Prints the seed, counts, violations and times; ends with 1 where a law was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import django

from tests.scaled import Cluster, absent, migrated
from tests.serving import ServerProcess, free_port

from .deliveries import SETTINGS, Delivery, Embedded, Scaled
from .provider import ChaosProvider
from .revocations import Revocations, measure_revocations
from .stops import Stops, measure
from .storm import Report, settles, storm

PARALLEL = 16  # turns
#: No bound ends a message before a person does.
UNBOUND = {**SETTINGS, "MAX_TURNS_PER_MESSAGE": "1000"}


@contextmanager
def embedded(folder: Path, port: int) -> Iterator[Delivery]:
    server = ServerProcess(folder / "data", UNBOUND)
    server.manage("migrate", "--skip-checks", "--verbosity=0")
    server.start()
    try:
        yield Embedded(server, port)
    finally:
        if server.process:
            server.kill()


@contextmanager
def scaled(folder: Path, port: int) -> Iterator[Delivery]:
    with migrated(folder / "template") as template:
        cluster = Cluster(folder, template, webs=2, workers=2, **UNBOUND)
        try:
            yield Scaled(cluster.start(), port)
        finally:
            cluster.end()


DELIVERIES: dict[str, Callable[[Path, int], AbstractContextManager[Delivery]]] = {
    "embedded": embedded,
    "scaled": scaled,
}


async def run(
    name: str, folder: Path, seed: int, turns: int, stops: int, revocations: int
) -> tuple[Report, Stops, Revocations]:
    """Removals and stops one after another, then batches until so many turns were
    interrupted."""
    whole, port, batch = Report(), free_port(), 0
    async with ChaosProvider(port) as provider:
        opened = DELIVERIES[name](folder, port)
        delivery = await asyncio.to_thread(opened.__enter__)
        try:
            removed = await measure_revocations(delivery, revocations)
            stopped = await measure(delivery, provider, f"{seed}:{name}", stops)
            while whole.interrupted < turns:
                batch += 1
                began = time.monotonic()
                one = await storm(
                    delivery, provider, f"{seed}:{name}:{batch}", count=PARALLEL
                )
                whole.add(one)
                _print_batch(name, batch, one, time.monotonic() - began)
        finally:
            await asyncio.to_thread(opened.__exit__, None, None, None)
    return whole, stopped, removed


def _print_batch(name: str, batch: int, report: Report, seconds: float) -> None:
    print(
        f"{name} batch {batch}: {report.interrupted} of {report.turns} turns"
        f" interrupted, {report.interruptions} times, {seconds:.0f} s",
        flush=True,
    )
    for violation in report.violations:
        print(f"  VIOLATION {violation}", flush=True)


def _print_report(
    name: str, report: Report, stops: Stops, removed: Revocations
) -> None:
    if removed.announced:
        print(*removed.lines(name), sep="\n", flush=True)
    if stops.begun:
        print(*stops.lines(name), sep="\n", flush=True)
    if not report.turns:
        return
    ratios = sorted(report.ratios)
    print(
        f"{name}: {report.turns} turns, {report.interrupted} interrupted,"
        f" {report.interruptions} interruptions, {len(report.violations)} violations;"
        f" time to the end / bound ({settles():.0f} s and the provider's own time):"
        f" median {statistics.median(ratios):.2f}, highest {ratios[-1]:.2f}",
        flush=True,
    )


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--stops", type=int, default=25, help="of each delivery")
    parser.add_argument("--revocations", type=int, default=20, help="as --stops")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6)
    )
    parser.add_argument("--delivery", choices=[*DELIVERIES, "both"], default="both")
    arguments = parser.parse_args()
    names = [*DELIVERIES] if arguments.delivery == "both" else [arguments.delivery]
    if "scaled" in names and (reason := absent()):
        print(f"The scaled delivery cannot run: {reason}", file=sys.stderr)
        return 2
    print(
        f"seed {arguments.seed}: make chaos CHAOS='--seed {arguments.seed}'", flush=True
    )
    share = -(-arguments.turns // len(names))
    reports = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix=f"parley-chaos-{name}-") as folder:
            reports[name] = asyncio.run(
                run(
                    name,
                    Path(folder),
                    arguments.seed,
                    share,
                    arguments.stops,
                    arguments.revocations,
                )
            )
    for name, found in reports.items():
        _print_report(name, *found)
    return int(any(each.violations for found in reports.values() for each in found))


if __name__ == "__main__":
    sys.exit(main())
