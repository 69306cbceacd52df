"""Many turns at once, interrupted at random moments; and what came of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.conf import settings

from . import checker
from .deliveries import HOWS, Delivery, notes_of
from .faults import FAULTS
from .person import Person
from .provider import ChaosProvider
from .scenarios import ONLY_ON, SCENARIOS
from .stored_turn import Row
from .wires import WIRES
from .wish import Wish

MOST = 4  # interruptions of one turn
LONGEST = 3.0  # seconds between a start and the next interruption
PACE = 0.05  # seconds for a word
WORDS = 40
WORK = 700  # milliseconds that a tool takes
STUCK = 4.0  # times the bound after which a turn counts as stuck
RARE = {"huge": 0.1}  # by scenario: the share of its turns that is made; else all


def settles() -> float:
    """Seconds in which a turn must be over once nothing interrupts it any more, beside
    the time that its provider takes: a lease lapses, and another run takes it up."""
    return float(settings.TURN_LEASE) + 10


@dataclass(slots=True)
class Report:
    turns: int = 0
    interrupted: int = 0  # turns that were, at least once
    interruptions: int = 0  # of all turns together
    violations: list[str] = field(default_factory=list)
    #: Seconds to the end once all was started again, as a share of the bound.
    ratios: list[float] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.turns += other.turns
        self.interrupted += other.interrupted
        self.interruptions += other.interruptions
        self.violations += other.violations
        self.ratios += other.ratios


def wishes(dice: random.Random, batch: str, count: int) -> Iterator[tuple[Wish, str]]:
    """Random scenarios and wire formats, a third of them with a fault."""
    number = 0
    while number < count:
        scenario, wire = dice.choice([*SCENARIOS]), dice.choice([*WIRES])
        if wire not in ONLY_ON.get(scenario, WIRES):
            continue
        if dice.random() > RARE.get(scenario, 1.0):
            continue
        number += 1
        yield _wish(dice, f"{batch}{number}", scenario), wire


def _wish(dice: random.Random, id: str, scenario: str) -> Wish:
    is_huge = scenario == "huge"
    fault = "" if is_huge or dice.random() > 1 / 3 else dice.choice(FAULTS)
    return Wish(
        id=id,
        scenario=scenario,
        same=dice.random() < 1 / 3,
        words=WORDS,
        pace=PACE,
        work=WORK,
        size=500_000 if is_huge else 0,
        fault=fault,
        fault_requests=dice.choice([0, 1, 2]),
    )


async def storm(
    delivery: Delivery,
    provider: ChaosProvider,
    seed: str,
    *,
    count: int,
) -> Report:
    """One batch: `count` turns side by side, with one to four interruptions."""
    dice = random.Random(seed)
    batch = seed.replace(":", "b") + "n"
    people = [
        Person(delivery.programs, wish, wire)
        for wish, wire in wishes(dice, batch, count)
    ]
    living = [asyncio.create_task(person.live()) for person in people]
    try:
        for _ in range(dice.randint(1, MOST)):
            await asyncio.sleep(dice.uniform(0.3, LONGEST))
            await delivery.interrupt(dice.choice(HOWS), dice)
        report = await _outcome(people, living)
    finally:
        for task in living:
            task.cancel()
    report.violations += _violations(delivery, provider, people, batch)
    return report


async def _outcome(people: list[Person], living: list[asyncio.Task[object]]) -> Report:
    began = time.monotonic()
    bound = settles() + max(_seconds(person.wish) for person in people)
    report = Report(turns=len(people))
    for person, task in zip(people, living, strict=True):
        left = began + STUCK * bound - time.monotonic()
        await asyncio.wait([task], timeout=max(left, 0.1))
        if not task.done():
            report.violations.append(f"{person.wish.id} ({person.wire}) is stuck")
        elif error := task.exception():
            report.violations.append(f"{person.wish.id} ended with {error!r}")
        again = person.epochs() - 1
        report.interrupted += again > 0
        report.interruptions += max(0, again)
        report.ratios.append(_ratio(person, began, bound))
    return report


def _ratio(person: Person, began: float, bound: float) -> float:
    return min(STUCK, max(0.0, person.settled_at - began) / bound)


def _seconds(wish: Wish) -> float:
    """What the provider and the tools take for a turn that nothing interrupts."""
    steps = SCENARIOS[wish.scenario]
    parts = sum(len(step.parts) for step in steps)
    return parts * (wish.words * wish.pace + wish.work / 1000)


def _violations(
    delivery: Delivery, provider: ChaosProvider, people: list[Person], batch: str
) -> list[str]:
    ledger = provider.ledger
    found = [*ledger.problems]
    ledger.problems.clear()
    calls: list[Row] = []
    for person in people:
        if person.record is not None:
            found += checker.violations(person.record, ledger.of(person.wish))
            calls += person.record.calls
    found += checker.effects(notes_of(delivery), batch, calls)
    ledger.recorded.clear()
    return found
