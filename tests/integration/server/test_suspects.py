"""One turn that ends the process again and again takes no other with it."""

from __future__ import annotations

import pytest

from project import settings
from tests.conftest import StartServer
from tests.integration.clients import Program
from tests.integration.crashes import SETTINGS
from tests.integration.suspects import (
    DEADLY,
    DEADLY_LATER,
    assert_innocent,
    crashed_until_over,
)

pytestmark = [pytest.mark.server, pytest.mark.timeout(600), pytest.mark.slow]


async def test_a_turn_that_ends_the_process_fails_and_the_others_do_not(
    start_server: StartServer,
):
    server = start_server(**SETTINGS)
    program = Program(server)
    case = await crashed_until_over(program, [server], DEADLY)
    culprit = await program.turn(case.culprit)
    assert culprit["status"] == "failed"
    assert culprit["error"]["code"] == "E_TURN_INTERRUPTED"
    await assert_innocent(program, case)
    # Once as it came to its call, which counts as a step, and then as often as it may.
    assert case.crashes == 1 + settings.TURN_MAX_CLAIMS


async def test_a_call_in_the_background_that_ends_the_process_takes_no_turn_with_it(
    start_server: StartServer,
):
    server = start_server(**SETTINGS)
    program = Program(server)
    case = await crashed_until_over(program, [server], DEADLY_LATER)
    assert (await program.turn(case.culprit))["status"] == "completed"
    await assert_innocent(program, case)
    assert case.crashes <= 4
