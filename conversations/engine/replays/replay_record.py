"""The record of a replayed turn: in memory, so that nothing enters the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from llm.generation.retries import calls_made
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.pricing.caller import Caller
from llm.provider import Route
from llm.wire.items import Item
from llm.wire.response_builder import ResponseBuilder
from tools.loop.task import UnstoredRecord

MOST = Decimal("999999.999999999999")  # USD; what the columns hold


@dataclass(slots=True, eq=False)
class ReplayRecord(UnstoredRecord):
    """A `tools.loop.task.Record`."""

    id: str
    builder: ResponseBuilder
    route: Route
    caller: Caller
    budget_left: Decimal | None  # USD
    purpose: str  # of its calls, instead of their own
    replayed_turn_id: str | None = None
    rows: list[ModelCall] = field(default_factory=list)  # unsaved; of no turn

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        raise AssertionError("no call of a replay needs approval")

    def begin_model_call(self, call: ProviderCall) -> None:
        """Do nothing: it is recorded when it has ended."""

    def record_model_call(self, call: ProviderCall) -> None:
        builder = self.builder
        made = calls_made(
            call,
            start=builder.start_delta,
            usage=builder.call_usage,
            finish=builder.finish,
        )
        self.rows += [self._row(each) for each in made if each.started_at]

    def _row(self, call: ProviderCall) -> ModelCall:
        row = ModelCall.of(
            call,
            call.route or self.route,
            attempt=call.attempt,
            start=call.start,
            usage=call.usage,
            finish=call.finish,
            cancelled=call.error is None and call.finish is None,
            caller=self.caller,
        )
        row.purpose = self.purpose
        row.replayed_turn_id = self.replayed_turn_id
        return row

    @property
    def cost(self) -> Decimal:
        """USD, as the rows have it: with estimates where a host reports nothing."""
        total = sum((row.cost or Decimal(0) for row in self.rows), Decimal(0))
        return min(total, MOST)

    @property
    def known_cost(self) -> Decimal | None:
        """None if a price is unknown, so that the sum is no cost."""
        completed = ModelCall.Status.COMPLETED
        if any(each.cost is None and each.status == completed for each in self.rows):
            return None
        return self.cost

    def add_cost(self, row: Any) -> None:
        """Add the cost of these calls to `row`, a replayed turn or an evaluation's
        answer. The sum is unknown (None) once a part of it is. Call this before
        `row.model_calls` counts the new calls: without earlier ones None means zero."""
        known = self.known_cost
        if known is None or (row.cost is None and row.model_calls > 0):
            row.cost = None
        else:
            row.cost = min(MOST, (row.cost or Decimal(0)) + known)

    @property
    def input_tokens(self) -> int:
        return sum(row.input_tokens or 0 for row in self.rows)

    @property
    def output_tokens(self) -> int:
        return sum(row.output_tokens or 0 for row in self.rows)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def is_cost_exhausted(self) -> bool:
        return self.budget_left is not None and self.cost >= self.budget_left
