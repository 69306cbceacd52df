"""More promises of one server process: Stop in every phase, one turn for one
Idempotency-Key, order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.clients import Program
from tests.integration.promises import (
    assert_turns_run_in_order,
    one_turn_for_one_key,
    side_by_side,
)
from tests.integration.stopping import PHASES, SETTINGS, stop, stop_call, teach
from tests.integration.upstream import Upstream
from tests.serving import PASSWORD, ServerProcess, free_port

pytestmark = pytest.mark.server

Report = Callable[[str, object], None]
BOB = f"""
from django.contrib.auth.models import User
User.objects.create_user("bob", password={PASSWORD!r})
"""


@pytest.fixture(scope="module")
def upstream_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def hanging(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path, upstream_port: int
) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("hanging") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data, SETTINGS).start()
    try:
        teach(server, upstream_port)
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def program(hanging: ServerProcess) -> Program:
    return Program(hanging)


@pytest.mark.parametrize("phase", PHASES)
async def test_stop_ends_a_turn_in_every_phase(
    hanging: ServerProcess,
    program: Program,
    upstream_port: int,
    phase: str,
    record_property: Report,
):
    async with Upstream(upstream_port) as upstream:
        took = await stop(phase, program, program, upstream, hanging.data)
    print(f"stop {phase}: {took} ms")
    record_property("milliseconds", took)


async def test_stop_ends_a_call_in_the_background(
    hanging: ServerProcess,
    program: Program,
    upstream_port: int,
    record_property: Report,
):
    async with Upstream(upstream_port) as upstream:
        took = await stop_call(program, program, upstream, hanging.data)
    print(f"stop of a background call: {took} ms")
    record_property("milliseconds", took)


async def test_a_hundred_posts_with_one_key_are_one_turn(
    hanging: ServerProcess, program: Program
):
    hanging.manage("shell", "-v0", "-c", BOB)
    await one_turn_for_one_key([program], Program(hanging, "bob"))


@pytest.mark.slow
async def test_fifty_messages_at_once_are_answered_in_order(program: Program):
    await assert_turns_run_in_order([program], 50)


@pytest.mark.slow
async def test_two_hundred_conversations_run_side_by_side(
    program: Program, upstream_port: int
):
    await side_by_side([program], upstream_port, 200)
