"""Fixed cases of the durability suite: what is interrupted, where, and how often.

All cases of one kind of interruption run side by side: each round waits until every
case is where it is to be interrupted or is over, and then ends the server once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import checker
from .deliveries import Delivery, How, notes_of, open_gate
from .faults import FAULTS
from .ledger import RecordedRequest
from .person import Person
from .provider import ChaosProvider
from .scenarios import SCENARIOS
from .stored_turn import text_of
from .wish import Wish

LOOK = 0.2  # seconds between looks at another process, which sends no event
PATIENCE = 240  # seconds for a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    wire: str
    wish: Wish
    #: Tools are to be running at the first interruption; they may end after it.
    while_tools_run: bool = False
    #: A result in the background comes while the first answer is held.
    result_comes: bool = False

    @property
    def rounds(self) -> int:
        return len(self.wish.hold) or int(self.while_tools_run)


def case(
    name: str,
    wire: str,
    scenario: str,
    holds: dict[int, int] | None = None,
    *,
    while_tools_run: bool = False,
    result_comes: bool = False,
    **wish: Any,
) -> Case:
    waits = while_tools_run or result_comes
    return Case(
        name=f"{name} ({wire})",
        wire=wire,
        wish=Wish(
            id=_short(f"{name} {wire}"),
            scenario=scenario,
            hold={str(number): percent for number, percent in (holds or {}).items()},
            work=-1 if waits else 0,
            **wish,
        ),
        while_tools_run=while_tools_run,
        result_comes=result_comes,
    )


def _short(name: str) -> str:
    """Ids of calls hold it, and OpenAI takes 64 characters of those."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def on(wires: Iterable[str], name: str, *args: Any, **options: Any) -> list[Case]:
    return [case(name, wire, *args, **options) for wire in wires]


ALL = ("chat", "responses", "anthropic", "gemini")
ITEMS = ("responses", "anthropic", "gemini")  # whose answers are lists of items
KILLED = [
    *on(ALL, "in the text after thinking", "think", {1: 60}),
    *on(["chat", "anthropic"], "in the thinking", "think", {1: 16}),
    *on(["chat", "gemini"], "other words twice", "plain", {1: 50, 2: 50}),
    *on(ITEMS, "the same words twice", "think", {1: 60, 2: 80}, same=True),
    *on(ITEMS, "in the second message", "two messages", {1: 85, 2: 30}),
    *on(
        ["chat", "responses"],
        "while parallel tools run",
        "parallel",
        while_tools_run=True,
    ),
    *on(
        ["anthropic", "gemini"],
        "in the text after parallel calls",
        "parallel",
        {2: 60},
    ),
    *on(ALL, "a result comes", "background", {2: 60, 3: 60}, result_comes=True),
    *on(ITEMS, "after a hosted search", "hosted", {1: 80}),
    *on(["anthropic"], "after a pause", "pause", {2: 60}),
    *on(["gemini"], "in the first portion", "continuation", {1: 40}),
    *on(
        ["responses", "anthropic"],
        "four times in a loop",
        "loop",
        {3: 60, 4: 60, 5: 60, 6: 60},
    ),
]
TERMINATED = [
    replace(each, name=f"{each.name}, in order")
    for each in [
        *on(ALL, "in the text after thinking", "think", {1: 60}),
        *on(ALL, "a result comes", "background", {2: 60, 3: 60}, result_comes=True),
        *on(ITEMS, "after a hosted search", "hosted", {1: 80}),
        *on(ITEMS, "in the second message", "two messages", {1: 85, 2: 30}),
    ]
]

#: No faults: the ledger compares a provider's proofs with those that come back.
QUIET = [
    *on(ITEMS, "calls after reasoning", "loop"),
    *on(["anthropic"], "a pause", "pause"),
    *on(["gemini"], "portions", "continuation"),
]
#: Every failure of a provider, on two of the wire formats.
FAULTY = [each for fault in FAULTS for each in on(ALL, fault, "think", fault=fault)]
Outcomes = dict[str, list[str]]


async def outcomes(
    cases: Sequence[Case], delivery: Delivery, provider: ChaosProvider, how: How
) -> Outcomes:
    """The violations of each case, by its name."""
    renamed = [
        replace(each, wish=replace(each.wish, id=f"{how}{each.wish.id}"))
        for each in cases
    ]
    running = [_Running(each, delivery, provider) for each in renamed]
    try:
        for number in range(max(each.rounds for each in cases)):
            await asyncio.gather(*(each.reach(number) for each in running))
            await delivery.interrupt(how)
            for each in running:
                each.go_on()
        await asyncio.gather(*(each.settle() for each in running))
        return {each.case.name: each.violations() for each in running}
    finally:
        for each in running:
            each.living.cancel()


class _Running:
    def __init__(self, case: Case, delivery: Delivery, provider: ChaosProvider) -> None:
        self.case = case
        self._delivery, self._ledger = delivery, provider.ledger
        self._person = Person(delivery.programs, case.wish, case.wire)
        self.living = asyncio.create_task(self._person.live())
        self._unreached: list[str] = []

    async def reach(self, number: int) -> None:
        """Where the round of this number interrupts it, or its end."""
        awaited = [self.living]
        if number < self.case.rounds:
            awaited = [asyncio.create_task(self._reach(number)), self.living]
        await asyncio.wait(
            awaited, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE
        )
        if not awaited[0].done():
            what = "is over" if self.living.done() else "is stuck"
            self._unreached.append(f"it {what} before interruption {number + 1}")
            self._unreached += await self._situation()
        for task in awaited[:-1]:
            task.cancel()

    async def _reach(self, number: int) -> None:
        if self.case.while_tools_run:
            await self._until_tools_run()
            return
        request_number = int(sorted(self.case.wish.hold, key=int)[number])
        request = await self._ledger.wait_for_hold(self.case.wish, request_number)
        if self.case.result_comes and number == 0:
            open_gate(self._delivery, self.case.wish)
            while not await self._person.has_results():
                await asyncio.sleep(LOOK)
        while not self._holds(await self._person.output(), request):
            await asyncio.sleep(LOOK)

    async def _until_tools_run(self) -> None:
        calls = sum(
            part.startswith("chaos")
            for part in SCENARIOS[self.case.wish.scenario][0].parts
        )
        notes = notes_of(self._delivery)
        while True:
            lines = notes.read_text().splitlines() if notes.exists() else []
            if sum(f" {self.case.wish.id}_" in line for line in lines) >= calls:
                return
            await asyncio.sleep(LOOK)

    async def _situation(self) -> list[str]:
        """What a reader of the report needs to see why a case is stuck."""
        requests = [
            f"request {request.number}: step {request.answer.step},"
            f" {request.frames} frames written,"
            f" held {request.is_held}, closed {request.closed_at is not None}"
            for request in self._ledger.of(self.case.wish)
        ]
        return [*requests, *await self._person.situation()]

    def _holds(
        self, output: Sequence[dict[str, Any]], request: RecordedRequest
    ) -> bool:
        """Whether the server has stored a part of this answer."""
        begins = f"{request.answer.source}-"
        return any(text_of(item).startswith(begins) for item in output)

    def go_on(self) -> None:
        if self.case.while_tools_run:
            open_gate(self._delivery, self.case.wish)

    async def settle(self) -> None:
        await asyncio.wait([self.living], timeout=PATIENCE)

    def violations(self) -> list[str]:
        wish = self.case.wish
        if not self.living.done():
            return [*self._unreached, "it is stuck"]
        record = self.living.result()
        mine = [
            each for each in self._ledger.problems if each.startswith(f"{wish.id} ")
        ]
        return [
            *self._unreached,
            *mine,
            *checker.violations(record, self._ledger.of(wish)),
            *checker.effects(notes_of(self._delivery), f"{wish.id}_", record.calls),
        ]
