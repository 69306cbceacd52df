"""The requests that the chaos provider received and the answers that it sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .answers import Answer, Call, Say, Search, Think
from .prompt import Called, Entry, Output, Result, Text, Thought
from .prompt import Search as Searched
from .wish import Wish


@dataclass(slots=True)
class RecordedRequest:
    """One request and its answer."""

    wish: Wish
    wire: str
    number: int  # of the requests for this wish, from 1
    entries: Sequence[Entry]  # of the prompt, after the wish
    answer: Answer
    fault: str = ""
    frames: int = 0  # written
    is_held: bool = False
    ended: bool = False  # the end marker is written, and no fault was in the answer
    begun_at: float = field(default_factory=time.time)  # seconds
    closed_at: float | None = None  # of the answer or its connection; seconds

    def delivered_results(self) -> set[str]:
        return {e.call_id for e in self.entries if isinstance(e, Result)}


@dataclass(slots=True)
class Ledger:
    recorded: list[RecordedRequest] = field(default_factory=list)
    #: What was wrong with a prompt; each is a violation.
    problems: list[str] = field(default_factory=list)
    requests: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def of(self, wish: Wish) -> list[RecordedRequest]:
        return [request for request in self.recorded if request.wish.id == wish.id]

    def add(self, request: RecordedRequest) -> None:
        self.problems += prompt_problems(request, self.of(request.wish))
        self.recorded.append(request)

    def forget(self, wish: Wish) -> None:
        self.recorded = [each for each in self.recorded if each.wish.id != wish.id]

    async def note(self) -> None:
        """Wake the tasks that wait for a change of the ledger."""
        async with self._changed:
            self._changed.notify_all()

    async def wait_for_hold(self, wish: Wish, number: int) -> RecordedRequest:
        """Wait until the answer to this request is held where the wish says."""

        def is_held() -> bool:
            requests = self.of(wish)
            return len(requests) >= number and requests[number - 1].is_held

        await self.wait_until(is_held)
        return self.of(wish)[number - 1]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)


def prompt_problems(
    request: RecordedRequest, before: Sequence[RecordedRequest]
) -> list[str]:
    """What a strict provider would refuse, or a model would be misled by."""
    problems = [*_pairs(request.entries), *_unproven(request, before)]
    answers = {each.answer.source: each.answer for each in before}
    texts = {p.text for a in answers.values() for p in a.parts if isinstance(p, Say)}
    proofs = {
        p.proof for a in answers.values() for p in a.parts if isinstance(p, Think)
    }
    searches = {
        p.id for a in answers.values() for p in a.parts if isinstance(p, Search)
    }
    calls = {p.id for a in answers.values() for p in a.parts if isinstance(p, Call)}
    for index, entry in enumerate(request.entries):
        is_last = index == len(request.entries) - 1
        match entry:
            case Text(text) if text not in texts and not (
                is_last and any(whole.startswith(text) for whole in texts)
            ):
                problems.append(f"an assistant text that was not given: {text[:60]!r}")
            case Thought(proof) if proof and proof not in proofs:
                problems.append(f"a proof that was not given: {proof[:60]!r}")
            case Called(call_id) if call_id not in calls:
                problems.append(f"a call that was not made: {call_id!r}")
            case Searched(id) if id not in searches:
                problems.append(f"a hosted call that was not made: {id!r}")
    for kind in (Text, Thought, Called, Searched, Result):
        seen = [entry for entry in request.entries if isinstance(entry, kind)]
        if len(seen) > len(set(seen)):
            problems.append(f"a {kind.__name__} stands twice")
    where = f"{request.wish.id}, request {request.number} of {request.wire}"
    where += f" ({request.wish.scenario})"
    return [f"{where}: the prompt has {problem}" for problem in problems]


def _unproven(request: RecordedRequest, before: Sequence[RecordedRequest]) -> list[str]:
    """Calls without the reasoning that led to them. Chat has no proofs."""
    called = {entry.call_id for entry in request.entries if isinstance(entry, Called)}
    proofs = {entry.proof for entry in request.entries if isinstance(entry, Thought)}
    missing = [
        thought.proof
        for answer in {each.answer.source: each.answer for each in before}.values()
        for thought in answer.parts
        if isinstance(thought, Think) and thought.proof not in proofs
        if any(isinstance(p, Call) and p.id in called for p in answer.parts)
    ]
    if request.wire == "chat":
        return []
    return [f"a call without its reasoning {proof}" for proof in missing]


def _pairs(entries: Sequence[Entry]) -> list[str]:
    calls = [e.call_id for e in entries if isinstance(e, Called)]
    outputs = [e.call_id for e in entries if isinstance(e, Output)]
    if sorted(calls) == sorted(outputs):
        return []
    return [f"calls {calls} with outputs {outputs}"]
