"""The state of a run: its response, what of it is stored, and why it stops. No IO."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Literal

from conversations.engine.claim_store import Claim
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.loading.loaded_turn import Work
from conversations.engine.loading.unloaded_turn import UnloadedTurn
from conversations.engine.metering import Meter
from conversations.engine.progress_store import FinishedModelCall, TurnProgress
from llm.generation.result import cost_of
from llm.generation.retries import calls_made
from llm.http.client import ProviderCall
from llm.models.model_call import usage_with_estimates
from llm.pricing.caller import UNKNOWN_CALLER
from llm.pricing.usage_estimate import billed_tokens
from llm.provider import Route
from llm.wire.delta_item_stream import UNKNOWN_START
from llm.wire.deltas import UsageDelta
from llm.wire.items import Event, Item, ProviderData
from llm.wire.response_builder import ResponseBuilder
from tools.execute import CallOutcome, find_tool_name
from tools.registry import RuntimeTool

Stop = Literal["cancelled", "deadline", "released", "fenced"]


_NONE: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes


class RunState:
    """The loaded values that a run needs again; thousands of runs may exist."""

    __slots__ = (
        "abandoned",
        "began_at",
        "builder",
        "call",
        "call_after",
        "caller",
        "calls_made",
        "claim",
        "committed",
        "cost_left",
        "created_at",
        "delivering",
        "ended_as",
        "has_progressed",
        "in_loop",
        "inputs",
        "is_suspending",
        "limits_owner",
        "meter",
        "model",
        "next_turns",
        "pending",
        "preset_version",
        "proofs",
        "resumed_length",
        "route",
        "steering",
        "steps",
        "stop",
        "tokens_left",
        "tools",
        "unwritten",
        "writes",
    )

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.next_turns: Sequence[str] = ()  # turns that wait for the end of this one
        self.has_progressed = False  # beyond what earlier runs have stored
        self.began_at: float | None = None  # time.time(), as `created_at`
        self.created_at = 0.0  # of the turn
        self.ended_as = ""  # the status in which it was stored; "": it goes on
        self.resumed_length = 0  # characters that an earlier run has stored
        self.stop: Stop | None = None
        self.is_suspending = False  # the rows may be written already
        self.in_loop: asyncio.Task[None] | None = None
        self.writes = 0  # writes in progress
        self.builder = ResponseBuilder(id=claim.turn_id, model="")
        self.model: Route | None = None  # the route that is tried first
        self.route: Route | None = None  # route of the last call
        self.tools: Mapping[str, RuntimeTool] = {}
        self.inputs = 0  # number of the turn's own items
        self.steps = 0  # provider calls
        self.committed = 0  # items of the response that are stored
        #: Their proofs by item id, which their provider needs back with them.
        self.proofs: Mapping[str, ProviderData] = {}
        self.calls_made: Sequence[FinishedModelCall] = ()
        #: Outcomes of calls whose write has failed.
        self.unwritten: Sequence[CallOutcome] = ()
        self.call: ProviderCall | None = None  # the last one, until it is stored
        self.caller = UNKNOWN_CALLER
        self.call_after = 0  # items that were stored when it began
        #: A response of an earlier run that its provider continues, until a new call
        #: replaces it.
        self.pending: ProviderResponse | None = None
        self.meter: Meter | None = None
        self.limits_owner: str | None = None  # user to charge without a token
        self.cost_left: Decimal | None = None  # USD; None: no bound
        self.tokens_left: int | None = None  # None: no bound
        self.preset_version: int | None = None
        self.abandoned = _NONE  # ids of calls
        #: Rows of results that are being delivered, by the id of their item.
        self.delivering: Mapping[str, int] = {}
        #: Queued turns whose messages are being added, by the id of their item.
        self.steering: Mapping[str, str] = {}

    def begin(self, work: Work) -> list[Event]:
        """Take over the loaded values. Returns the events of the beginning."""
        self.began_at, self.created_at = time.time(), work.created_at.timestamp()
        self.limits_owner, self.caller = work.limits_owner, work.caller
        self.model, self.inputs = work.route, work.inputs
        self.cost_left, self.pending = work.cost_left, work.pending
        self.meter = work.meter
        self.tokens_left, self.preset_version = work.tokens_left, work.preset_version
        if work.task.partial:
            self.resumed_length = length_of(work.task.partial)
        self.tools = work.task.tools
        self.builder = ResponseBuilder(
            id=self.claim.turn_id,
            model=work.route.name,
            echo=work.echo,
            created_at=int(work.created_at.timestamp()),
            clock=time.time if work.is_timed else None,
        )
        usage = dict(work.usage) if work.usage else None
        self.committed, self.proofs = len(work.committed), work.proofs
        return [
            *self.builder.start(),
            *self.builder.restore(work.committed, usage, work.ended_output),
        ]

    def begin_unloaded(self, turn: UnloadedTurn) -> list[Event]:
        """As `begin`, for a turn that can only end or wait."""
        self.began_at, self.created_at = time.time(), turn.created_at.timestamp()
        progress = turn.progress
        self.model, self.inputs = turn.route, progress["inputs"]
        self.pending, self.proofs = progress["pending"], progress["proofs"]
        committed, usage = progress["committed"], progress["usage"]
        self.committed = len(committed)
        self.builder = ResponseBuilder(
            id=self.claim.turn_id, model=turn.model, created_at=int(self.created_at)
        )
        ended, usage = progress["ended_output"], dict(usage) if usage else None
        return [
            *self.builder.start(),
            *self.builder.restore(committed, usage, ended),
        ]

    # Stopping

    def cancel(self, reason: Stop = "cancelled") -> None:
        """Stop in any phase. The first reason counts."""
        if self.stop is not None or self.builder.ended:
            return
        if reason == "fenced" and self.is_suspending:
            return  # suspending is why a heartbeat finds no run
        self.stop = reason
        if self.in_loop is not None:
            self.in_loop.cancel()

    def stop_reason(self) -> Stop:
        return self.stop or "cancelled"

    def note_abandoned(self, call_id: str) -> None:
        self.abandoned |= {call_id}

    # Model calls

    def end_model_call(self, call: ProviderCall) -> Sequence[FinishedModelCall]:
        """Note the calls that were made for it, and return them."""
        builder, model = self.builder, self.model
        assert model is not None
        is_answer = call is self.call  # and not a summary, which the builder never got
        if is_answer:
            self.route = call.route or model
        new = [
            FinishedModelCall(
                route=made.route or model,
                call=made,
                caller=self.caller,
                step=self.steps,
                cancelled=made.error is None and self.stop is not None,
            )
            for made in calls_made(
                call,
                start=builder.start_delta if is_answer else UNKNOWN_START,
                usage=builder.call_usage if is_answer else UsageDelta(),
                finish=builder.finish if is_answer else None,
            )
            if made.started_at  # otherwise the call was refused here, and not sent
        ]
        self.calls_made = [*self.calls_made, *new]
        if not is_answer:
            builder.add_usage(call.usage or UsageDelta())
        if self.cost_left is not None:
            costs = [
                cost_of(replace(made.call, usage=_usage_of(made)), made.route)
                for made in new
            ]
            self.cost_left -= sum(filter(None, costs), Decimal(0))
        if self.tokens_left is not None:
            self.tokens_left -= sum(_tokens_of(made) for made in new)
        self.steps += 1
        return new

    def has_spent_all(self) -> bool:
        # A comparison would create a decimal context, which lives as long as the run.
        left = self.cost_left
        return left is not None and (not left or left.is_signed())

    def has_used_all_tokens(self) -> bool:
        return self.tokens_left is not None and self.tokens_left <= 0

    def has_host_ended(self) -> bool:
        finish = self.builder.finish
        return finish is not None and finish.reason != "size"

    def pending_response(self) -> ProviderResponse | None:
        """The response that a later run may resume: its end is not stored."""
        call = self.call
        if call is not None and call.background is not None:
            entry = self.meter.last_entry if self.meter else ""
            return ProviderResponse(call.background, self.call_after, entry)
        return self.pending

    # Items

    def uncommitted_items(self) -> Sequence[Item]:
        return [*self.builder.output[self.committed :], *self.builder.partial()]

    def find_call(self, call_id: str) -> Item:
        return next(i for i in self.builder.output if i.get("call_id") == call_id)

    def with_proof(self, item: Item) -> Item:
        proof = self.proofs.get(item["id"]) or self._proof(item)
        return {**item, "provider_data": proof} if proof else item

    def _proof(self, item: Item) -> ProviderData | None:
        raw = self.builder.proofs.get(item["id"])
        route = self.route  # of the call that produced all items since the last write
        if raw is None or route is None:
            return None
        return {"issuer": route.issuer, "raw": raw}

    def take_calls_made(self) -> Sequence[FinishedModelCall]:
        """The calls since the last write; from now on they count as written."""
        made, self.calls_made = self.calls_made, ()
        return made

    def take_progress(
        self,
        executing: Sequence[Item] = (),
        background: Collection[str] = (),
        outcomes: Sequence[CallOutcome] = (),
        items: bool = True,
    ) -> TurnProgress:
        """What is new since the last write; from now on it counts as written."""
        builder = self.builder
        first = self.committed
        new = builder.output[first:] if items else []
        self.committed += len(new)
        proofs = {item["id"]: proof for item in new if (proof := self._proof(item))}
        if proofs:
            self.proofs = {**self.proofs, **proofs}
        delivering = self.delivering
        delivered = [delivering[i["id"]] for i in new if i.get("id") in delivering]
        steering = [self.steering.get(i.get("id", "")) for i in new]
        return TurnProgress(
            items=[
                (item, proofs.get(item["id"]), sequence)
                for item, sequence in zip(new, builder.done_at[first:], strict=False)
            ],
            first_position=self.inputs + first,
            last_sequence=builder.sequence - 1,
            calls_made=self.take_calls_made(),
            executing=[self.by_tool_name(call) for call in executing],
            background=background,
            delivered=delivered,
            absorbed=list(dict.fromkeys(filter(None, steering))),
            outcomes=outcomes,
            is_durable=self._has_once_tools(executing, outcomes),
            usage=builder.usage,
            ended_output=builder.ended_output,
        )

    def give_back(self, progress: TurnProgress | None) -> None:
        """Count as not written what `take_progress` has returned. Calls that it was to
        begin have not begun."""
        if progress is not None:
            self.committed -= len(progress.items)
            self.calls_made = [*progress.calls_made, *self.calls_made]
            self.unwritten = [*progress.outcomes, *self.unwritten]

    def by_tool_name(self, call: Item) -> Item:
        """The call under the name of its tool, which a model may write with a prefix:
        rows are looked up by it."""
        return {**call, "name": find_tool_name(call["name"], self.tools)}

    def _has_once_tools(
        self, calls: Sequence[Item], outcomes: Sequence[CallOutcome]
    ) -> bool:
        names = [call["name"] for call in calls]
        names += [self.find_call(outcome.call_id)["name"] for outcome in outcomes]
        found = [self.tools.get(find_tool_name(name, self.tools)) for name in names]
        return any(tool is not None and tool.replay == "once" for tool in found)


def length_of(items: Sequence[Item]) -> int:
    """Characters of the texts in the items."""
    parts = [
        part
        for item in items
        for name in ("content", "summary")
        for part in item.get(name) or ()
    ]
    texts = [each.get("text") for each in parts]
    return sum(len(t or "") for t in [*texts, *(i.get("arguments") for i in items)])


def _usage_of(made: FinishedModelCall) -> UsageDelta:
    """The tokens that the row will have."""
    call = made.call
    usage = call.usage or UsageDelta()
    return usage_with_estimates(call, usage, call.finish)[0]


def _tokens_of(made: FinishedModelCall) -> int:
    return billed_tokens(_usage_of(made))
