"""A turn that is interrupted again and again, at the level of the loop.

`Store` holds what rows would hold, no sooner than rows would; `Model` answers each step
in a given shape, with other words for each request if so configured.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from conversations.turns.history import repair_history
from llm.http.client import ProviderCall
from llm.wire.deltas import (
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import Item, message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tools.execute import CallOutcome
from tools.loop.late_results import CALL_ID_KEY, LateResult
from tools.loop.loop import respond
from tools.loop.steps import rounds
from tools.loop.task import Task
from tools.loop.tool_calls import PLACEHOLDER
from tools.registry import Context, RuntimeTool

SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "Riga"}}


class Crash(BaseException):
    """The process is lost."""


@dataclass
class Model:
    """Answers with `steps` one after another: each a list of kinds of items. With
    `other_words` each attempt has other words.
    """

    steps: Sequence[Sequence[str]]
    other_words: bool
    #: How it takes the beginning of its answer: "" not at all, "goes on" behind it, or
    #: "repeats" it first.
    prefill: str = ""
    request_count: int = 0
    requests: list[Sequence[Item]] = field(default_factory=list)
    #: The items of the last whole answer to each request, by the request's length.
    spoken: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    #: Called before each delta.
    tick: Callable[[], None] = lambda: None

    async def __call__(
        self, request: Request, call: ProviderCall
    ) -> AsyncGenerator[list[Delta], None]:
        call.started_at = 1.0
        self.request_count += 1
        self.requests.append(list(request.items))
        step = min(rounds(request.items), len(self.steps) - 1)
        words = f"take {self.request_count}" if self.other_words else "as ever"
        deltas = answer(self.steps[step], step, words)
        if request.prefill and self.prefill:
            call.prefill = request.prefill
            deltas, self.spoken[len(request.items)] = self._continued(request.prefill)
        else:
            self.spoken.pop(len(request.items), None)
        for delta in deltas:
            self.tick()
            await asyncio.sleep(0)
            yield [delta]
        self.tick()
        self.spoken.setdefault(len(request.items), items_of(deltas))

    def _continued(self, prefill: str) -> tuple[list[Delta], list[tuple[Any, ...]]]:
        """The continuation of `prefill`, and the items that both make together."""
        rest = [" and", f" on {self.request_count}"]
        spoken_parts = [prefill[:7], prefill[7:]] if self.prefill == "repeats" else []
        end = [ProofDelta("k", {"raw": "rest"}), FinishDelta("stop")]
        texts: list[Delta] = [TextDelta("k", text) for text in [*spoken_parts, *rest]]
        whole: list[Delta] = [TextDelta("k", prefill + "".join(rest)), *end]
        return [*texts, *end], items_of(whole)


def answer(kinds: Sequence[str], step: int, words: str) -> list[Delta]:
    """What a decoder makes of an answer that has such items."""
    deltas: list[Delta] = [StartDelta("resp_x", "model-x")]
    for number, kind in enumerate(kinds):
        key = f"{number}"
        text = [f"{kind} {step}.{number}: ", words, " and", " the end."]
        match kind:
            case "thought":
                deltas += [ReasoningDelta(key, piece) for piece in text]
                deltas.append(ProofDelta(key, {"signed": words}))
            case "summary":
                for part, piece in enumerate(text):
                    deltas.append(ReasoningDelta(key, piece, "summary", part))
            case "hidden":  # a thought of which nothing is shown
                deltas += [ReasoningDelta(key, ""), ProofDelta(key, {"signed": words})]
            case "message":
                deltas += [TextDelta(key, piece) for piece in text]
            case "closed":  # a message that the provider ends
                deltas += [TextDelta(key, piece) for piece in text]
                deltas += [ProofDelta(key, {"raw": words}), CloseDelta(key)]
            case "refusal":
                deltas += [RefusalDelta(key, piece) for piece in text]
            case "search":
                deltas += [
                    ItemDelta(key, dict(SEARCH)),
                    ItemDelta(key, {**SEARCH, "results": [words]}, done=True),
                ]
            case name:  # a call of the tool of that name
                deltas += [
                    ToolCallDelta(key, f"call_{step}_{number}", name),
                    ToolCallDelta(key, arguments='{"of": '),
                    ToolCallDelta(key, arguments=f'"{step}.{number}"}}'),
                ]
    paused = bool(kinds) and kinds[-1] == "search"
    return [*deltas, FinishDelta("pause" if paused else "stop")]


def items_of(deltas: Sequence[Delta]) -> list[tuple[Any, ...]]:
    builder = ResponseBuilder(id="r", model="m")
    builder.begin_call()
    builder.feed(list(deltas))
    builder.end_call()
    return [content(item, builder.proofs) for item in builder.output]


def content(item: Item, proofs: Any = None) -> tuple[Any, ...]:
    """The item's content without its id."""
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    texts = [part.get("text") or part.get("refusal") for part in parts]
    known = ("type", "action", "results", "call_id", "arguments", "status")
    return (*(repr(item.get(name)) for name in known), "".join(filter(None, texts)))


@dataclass
class Store:
    """The rows of one turn: what is committed, and the snapshot of the rest."""

    items: list[Item] = field(default_factory=list)
    ended_output: int | None = None
    calls: dict[str, CallOutcome | None] = field(default_factory=dict)
    background: set[str] = field(default_factory=set)
    concluded: list[str] = field(default_factory=list)
    undelivered: list[Item] = field(default_factory=list)
    partial: list[Item] = field(default_factory=list)
    read: list[Item] = field(default_factory=list)  # all that snapshots held
    has_new_results: bool = False
    tick: Callable[[], None] = lambda: None

    def begin(self, builder: ResponseBuilder) -> None:
        self.builder, self._committed = builder, len(self.items)
        self._is_writing = False
        self.has_new_results = bool(self.undelivered)

    def snapshot(self) -> None:
        if self._is_writing:
            return
        unsaved = self.builder.output[self._committed :]
        self.partial = copy.deepcopy([*unsaved, *self.builder.partial()])
        self.read += self.partial

    async def _commit(self) -> None:
        self.snapshot()
        self._is_writing = True
        new = copy.deepcopy(self.builder.output[self._committed :])
        ended = self.builder.ended_output
        self._committed += len(new)
        ids = {item["id"] for item in new}
        self.tick()  # all that follows happens at once, or not at all
        await asyncio.sleep(0)
        self.items += new
        self.ended_output = ended
        self.undelivered = [i for i in self.undelivered if i["id"] not in ids]
        if new:
            self.partial = []
        self._is_writing = False

    async def save_calls(self, calls: Any, *, background: Any) -> None:
        await self._commit()
        for call in calls:
            self.calls.setdefault(call["call_id"], None)
        self.background |= set(background)

    async def save_outcomes(self, outcomes: Any, *, last: bool) -> None:
        if last:
            await self._commit()
        for outcome in outcomes:
            if outcome.state != "background":
                self.calls[outcome.call_id] = outcome

    async def fetch_results(self) -> Sequence[LateResult]:
        self.tick()
        await asyncio.sleep(0)
        self.has_new_results = False
        return [
            LateResult(
                item=item, call_id=item[CALL_ID_KEY], name="later", state="completed"
            )
            for item in self.undelivered
        ]

    async def suspend(self, calls: Any) -> Any:
        raise AssertionError("nothing here asks for approval")

    def begin_model_call(self, call: ProviderCall) -> None:
        pass

    def record_model_call(self, call: ProviderCall) -> None:
        pass

    def conclude(self) -> None:
        """What ran in the background has come to its end."""
        for call_id in sorted(self.background):
            self.concluded.append(call_id)
            result_message = message("user", f"Result of {call_id}")
            self.undelivered.append({**result_message, CALL_ID_KEY: call_id})
        self.background.clear()
        self.has_new_results = bool(self.undelivered)

    def outcomes(self) -> dict[str, CallOutcome]:
        """As `load` makes them of the rows; every tool is a `once` tool."""
        found = {}
        for call_id, outcome in self.calls.items():
            unknown = CallOutcome(call_id, "unknown", "Error: unknown", "unknown", 0.0)
            found[call_id] = outcome or unknown
        for item in [*self.items, *self.undelivered]:
            if call_id := item.get(CALL_ID_KEY):
                found[call_id] = CallOutcome(
                    call_id, "background", PLACEHOLDER, "", 0.0
                )
        for call_id in self.background:
            found[call_id] = CallOutcome(call_id, "background", PLACEHOLDER, "", 0.0)
        return found


class Scene:
    """Runs the turn; each of `cuts` says after how many ticks the next run dies."""

    def __init__(
        self,
        model: Model,
        cuts: Sequence[tuple[int, bool]],
        news_at: int | None = None,
    ) -> None:
        self.model, self.store = model, Store()
        self.cuts = list(cuts)
        self.news_at = news_at  # the tick at which what runs in the background ends
        self.effects: Counter[str] = Counter()
        self.ticks = 0
        self.left: int | None = None
        self.ending: dict[str, Any] = {}
        model.tick = self.store.tick = self.tick

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == self.news_at:
            self.store.conclude()
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            raise Crash

    async def live(self) -> dict[str, Any]:
        while not self.ending:
            cut, released = self.cuts.pop(0) if self.cuts else (None, False)
            self.left = cut
            await self._run(released)
        return self.ending

    async def _run(self, released: bool) -> None:
        store = self.store
        builder = ResponseBuilder(id="resp_1", model="m")
        events = builder.start()
        events += builder.restore(
            copy.deepcopy(store.items), None, ended_output=store.ended_output
        )
        store.begin(builder)
        partial = copy.deepcopy(store.partial)
        batches = respond(self._task(partial), builder=builder, record=store)
        try:
            async for batch in batches:
                events += batch
            self.tick()  # before its end is on record
        except Crash:
            if released and not builder.ended:
                builder.cancel("released")
            store.snapshot()
            with suppress(Crash):
                await batches.aclose()
            return
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        self._end(events, builder)

    def _end(self, events: list[dict[str, Any]], builder: ResponseBuilder) -> None:
        self.ending = events[-1]["response"]
        if self.ending["status"] == "completed":
            assert builder.ended_output is not None

    def _task(self, partial: list[Item]) -> Task:
        async def act(context: Context, arguments: dict[str, Any]) -> str:
            self.effects[arguments["of"]] += 1
            await asyncio.sleep(0)
            return "done"

        def tool(name: str, blocking: bool) -> RuntimeTool:
            return RuntimeTool(
                name=name,
                description="",
                parameters={"type": "object"},
                call=act,
                blocking=blocking,
            )

        return Task(
            prepare=lambda items: Request(model="m", items=repair_history(items)),
            stream=self.model,
            tools={"act": tool("act", True), "later": tool("later", False)},
            outcomes=self.store.outcomes(),
            partial=partial,
            max_steps=50,
        )
