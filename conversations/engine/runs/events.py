"""Publishes the events of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conversations.engine.event_log import Position, Publisher
from conversations.engine.process import crash_points
from conversations.engine.runs.state import RunState
from llm.wire.items import Event


@dataclass(slots=True, eq=False, repr=False)
class RunEvents:
    state: RunState
    log: Publisher

    def publish(
        self,
        events: list[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        """Append the events to the log, unless another run has claimed the turn."""
        if self.state.stop == "fenced":
            return
        if crash_points.IS_ARMED:
            crash_points.reach("append:before")
        self.log.append(self.state.claim.epoch, events, earlier_positions)
        if crash_points.IS_ARMED:
            crash_points.reach("append:after")

    def publish_ending(self, events: list[Event]) -> None:
        """Append the last events, whose rows are stored."""
        self.log.append(self.state.claim.epoch, events)
