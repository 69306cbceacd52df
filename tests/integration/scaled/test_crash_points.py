"""`kill -9` at every transition of the protocol, of a worker or of a web process, while
others go on: whatever the moment, they bring the turn to its end.

A crash costs its lease, in which nothing is to be done; so several clusters crash side
by side, and each test looks at what became of one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.clients import Program
from tests.integration.crashes import (
    DOORS,
    FINAL,
    LONG,
    RUNS,
    SETTINGS,
    Person,
    crashed,
    spelled,
)
from tests.scaled import Cluster, migrated
from tests.serving import ServerProcess

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]

SIDE_BY_SIDE = 3
PLACES = {
    **RUNS,
    **DOORS,
    "outbox.send:before": LONG,
    "outbox.send:after": LONG,
    "outbox.send:after#9": LONG,
}
SYNC = "from tools.models import Tool; Tool.objects.sync()"

Outcomes = dict[str, BaseException | None]


@pytest.fixture(scope="module")
def find_violation(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], BaseException | None]]:
    """`find_violation(crash_point)`: None if the law holds."""
    wanted = [
        item.callspec.params["crash_point"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_another_process_ends_what_a_crashed_one_began
    ]
    with migrated(tmp_path_factory.mktemp("template")) as template:

        def crash_at(places: list[str]) -> Outcomes:
            lanes = min(SIDE_BY_SIDE, len(places))
            folders = [tmp_path_factory.mktemp("lane") for _ in range(lanes)]
            return asyncio.run(_crash_at_all(places, folders, template))

        outcomes = crash_at(wanted)

        def find(crash_point: str) -> BaseException | None:
            if crash_point not in outcomes:  # a test that failed is run once more
                outcomes.update(crash_at([crash_point]))
            return outcomes.pop(crash_point)

        yield find


async def _crash_at_all(
    wanted: list[str], folders: list[Path], template: str
) -> Outcomes:
    outcomes: Outcomes = {}
    places = iter(wanted)
    async with asyncio.TaskGroup() as lanes:
        for folder in folders:
            lanes.create_task(_crash_one_by_one(places, folder, template, outcomes))
    return outcomes


async def _crash_one_by_one(
    places: Iterator[str], folder: Path, template: str, outcomes: Outcomes
) -> None:
    cluster = Cluster(folder, template, webs=2, workers=2, **SETTINGS)
    try:
        stays, other = cluster.webs[0], cluster.workers[1]
        await asyncio.to_thread(stays.start)
        await asyncio.to_thread(stays.manage, "shell", "-v0", "-c", SYNC)
        token = await asyncio.to_thread(stays.create_token)
        await asyncio.to_thread(other.start)
        for crash_point in places:
            crash = _Crash(cluster, token, crash_point)
            try:
                outcomes[crash_point] = await crash.outcome()
            finally:
                crash.clean_up()
    finally:
        await asyncio.to_thread(cluster.end)


class _Crash:
    """`webs[0]` stays; of the workers the second takes over, having slept until then
    where the first one is to crash."""

    def __init__(self, cluster: Cluster, token: str, crash_point: str) -> None:
        self._place, self._question = crash_point, PLACES[crash_point]
        stays, crashing_web = cluster.webs
        crashing_worker, self._other = cluster.workers
        is_web_endpoint = crash_point in DOORS
        self._crashing: ServerProcess = (
            crashing_web if is_web_endpoint else crashing_worker
        )
        servers = [crashing_web, stays] if is_web_endpoint else [stays]
        self._person = Person([Program(web, token=token) for web in servers])
        self._sleeps = not is_web_endpoint
        self._traces = stays.data / "traces"

    async def outcome(self) -> BaseException | None:
        try:
            await self._carry_out()
        except Exception as exc:
            return exc
        return None

    async def _carry_out(self) -> None:
        self._traces.unlink(missing_ok=True)
        if self._sleeps:
            self._other.pause()
        self._crashing.environment["CRASH_AT"] = spelled(self._place)
        await asyncio.to_thread(self._crashing.start)
        await self._person.begin()
        living = asyncio.create_task(self._person.live(self._question))
        try:
            await crashed(self._crashing, self._person, self._place)
            self._other.go_on()
            async with asyncio.timeout(FINAL):
                await living
        finally:
            living.cancel()
        await self._person.assert_whole(self._question)
        await self._person.assert_effects(self._traces)

    def clean_up(self) -> None:
        if self._crashing.process:
            self._crashing.kill()
        self._other.go_on()


@pytest.mark.parametrize("crash_point", PLACES)
def test_another_process_ends_what_a_crashed_one_began(
    find_violation: Callable[[str], BaseException | None], crash_point: str
):
    if failure := find_violation(crash_point):
        raise failure
