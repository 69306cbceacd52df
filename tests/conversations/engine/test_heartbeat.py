"""The heartbeat of many runs over a slow database: leases first, snapshots in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from django.db.utils import OperationalError

from conversations.engine.claim_store import Claim
from conversations.engine.heartbeat import Heartbeat
from conversations.engine.lease_store import HeartbeatResult, Snapshot
from conversations.engine.runs.snapshots import LONG, STORING_TIME, Snapshots
from conversations.engine.runs.state import RunState
from llm.wire.deltas import TextDelta

RUNS = 300
TEXT = 3_000  # characters of each answer when it begins
LIMIT = 5.0  # seconds of a statement


@dataclass
class SpeakingRun:
    """A run whose answer grows."""

    claim: Claim
    clock: Callable[[], float]
    state: RunState = field(init=False)
    snapshots: Snapshots = field(init=False)

    def __post_init__(self) -> None:
        self.state = RunState(self.claim)
        self.state.builder.start()
        self.say(TEXT)
        self.snapshots = Snapshots(self.state, self.clock)

    def say(self, length: int) -> None:
        self.state.builder.feed([TextDelta("m", "x" * length)])


@dataclass
class SlowDatabase:
    """Takes so many seconds for a thousand characters of snapshots, and cancels what
    would take too long, as PostgreSQL."""

    clock: list[float]
    seconds: float
    beats: list[dict[Claim, Snapshot | None]] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)

    async def beat(self, _function: Any, beats: dict[Claim, Snapshot | None]) -> Any:
        characters = sum(each.length for each in beats.values() if each)
        took = min(LIMIT, self.seconds * characters / 1_000)
        self.clock[0] += took
        if took == LIMIT:
            raise OperationalError
        self.beats.append(beats)
        self.lengths.append(took)
        return HeartbeatResult(lost=[], stopped=[], skipped=[])


@dataclass
class Dispatching:
    runs: dict[str, SpeakingRun]

    def loading_claims(self) -> list[Claim]:
        return []

    def fence(self, claim: Claim) -> None:
        raise AssertionError(claim)


@dataclass
class Scene:
    clock: list[float]
    database: SlowDatabase
    runs: dict[str, SpeakingRun] = field(default_factory=dict)
    failed: int = 0  # heartbeats

    def __post_init__(self) -> None:
        parts = cast(Any, (None, Dispatching(self.runs), self.database))
        self.heartbeat = Heartbeat(*parts, clock=self.read_clock)

    def read_clock(self) -> float:
        return self.clock[0]

    def start_runs(self, count: int) -> None:
        for number in range(len(self.runs), len(self.runs) + count):
            claim = Claim(f"resp_{number}", f"conv_{number}", epoch=1)
            self.runs[claim.turn_id] = SpeakingRun(claim, self.read_clock)

    async def beat(self, times: int) -> None:
        for _ in range(times):
            for run in self.runs.values():
                run.say(10)
            try:
                await self.heartbeat.beat()
            except OperationalError:
                self.failed += 1
            self.clock[0] += 1.0


def scene_of(seconds: float) -> Scene:
    clock = [1000.0]
    return Scene(clock, SlowDatabase(clock, seconds))


async def beat_often(
    seconds: float, times: int
) -> tuple[SlowDatabase, list[SpeakingRun]]:
    scene = scene_of(seconds)
    scene.start_runs(RUNS)
    await scene.beat(times)
    return scene.database, list(scene.runs.values())


async def test_on_a_slow_database_every_beat_renews_all_leases_in_time():
    seconds = 0.005  # all snapshots at once would take 4.5 s
    database, runs = await beat_often(seconds, 40)
    assert all(len(beats) == RUNS for beats in database.beats)
    least = seconds * LONG / 1_000  # so many characters are stored on any database
    assert all(took < 2 * max(STORING_TIME, least) for took in database.lengths[1:])
    stored = [{claim for claim, each in b.items() if each} for b in database.beats]
    assert set().union(*stored) == {run.claim for run in runs}  # each had its turn


async def test_a_quick_database_stores_every_answer_at_every_beat():
    database, _ = await beat_often(0.00001, 20)
    stored = [sum(each is not None for each in b.values()) for b in database.beats]
    assert stored[0] < RUNS  # until its pace is known
    assert stored[-5:] == [RUNS] * 5


async def test_after_a_quiet_time_many_answers_at_once_are_stored_in_turn():
    scene = scene_of(0.002)
    scene.start_runs(1)
    await scene.beat(100)
    scene.start_runs(10 * RUNS)  # all at once would take 18 s
    await scene.beat(1)
    assert scene.failed == 0
    assert scene.database.lengths[-1] < 4 * STORING_TIME


async def test_a_heartbeat_that_the_database_cancels_is_followed_by_shorter_ones():
    scene = scene_of(0.02)
    scene.start_runs(RUNS)
    await scene.beat(4)
    assert scene.failed == 1
    assert [len(beats) for beats in scene.database.beats] == [RUNS] * 3
