"""Durability of a real server process: subscribers, crashes, deploys, Stop."""

from __future__ import annotations

import json
import random

import pytest
from websockets.exceptions import InvalidStatus

from tests.integration.clients import Program, Screen, events_of_turn, sign_in, socket
from tests.integration.following import assert_no_gap, read
from tests.serving import PASSWORD, ServerProcess

COUNT = 120  # words of the demo's answer, at its human pace
NUMBERS = " ".join(str(number) for number in range(1, COUNT + 1))


async def test_a_subscriber_that_reconnects_misses_nothing(
    shared_server: ServerProcess,
):
    program = Program(shared_server)
    cookie = await sign_in(shared_server, "admin")
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, f"/long {COUNT}")
    screen, dice = Screen(), random.Random(7)
    while not screen.over:
        limit = dice.randint(1, 25)
        if dice.random() < 0.5:
            await read(program.follow(turn, screen.position), screen, limit)
            continue
        async with socket(shared_server, conversation, cookie) as connection:
            wish = {"type": "turn.follow", "turn": turn, "after": screen.position}
            await connection.send(json.dumps(wish))
            await read(events_of_turn(connection, turn), screen, limit)
    assert screen.text == NUMBERS
    assert_no_gap(screen)
    assert screen.positions[0] == "1-0"


async def test_a_second_tab_follows_live(shared_server: ServerProcess):
    program = Program(shared_server)
    cookie = await sign_in(shared_server, "admin")
    conversation = await program.conversation()
    async with (
        socket(shared_server, conversation, cookie) as first,
        socket(shared_server, conversation, cookie) as second,
    ):
        await first.send(json.dumps({"type": "turn.create", "input": "/echo Hi you"}))
        queued = json.loads(await second.recv())
        assert queued["type"] == "parley:turn.queued"
        await second.send(json.dumps({"type": "turn.follow", "turn": queued["turn"]}))
        screens = Screen(), Screen()
        for connection, screen in zip((first, second), screens, strict=True):
            await read(events_of_turn(connection, queued["turn"]), screen)
    assert [screen.text for screen in screens] == ["Hi you", "Hi you"]
    assert screens[0].positions == screens[1].positions


async def test_a_crash_loses_nothing_that_was_shown(server: ServerProcess):
    program = Program(server)
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=70)
    shown = screen.text
    server.kill()
    server.start()
    again = len(screen.events)
    await read(program.follow(turn, screen.position), screen)
    assert screen.events[again]["type"] == "parley:step.reset"
    assert screen.text == NUMBERS
    stored = next(
        event["delta"]
        for event in screen.events[again:]
        if event["type"] == "response.output_text.delta"
    )
    assert stored
    assert shown.startswith(stored) or stored.startswith(shown)
    row = await program.turn(turn)
    assert row["status"] == "completed"
    assert row["response"]["output"][-1]["content"][0]["text"] == NUMBERS


async def test_a_deploy_loses_nothing_and_asks_clients_to_reconnect(
    start_server,
):
    server = start_server(DRAIN_GRACE="0.3")
    program = Program(server)
    cookie = await sign_in(server, "admin")
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, f"/long {COUNT}")
    over_sse, over_ws = Screen(), Screen()
    stream = program.follow(turn)
    await read_some(stream, over_sse, 30)
    async with socket(server, conversation, cookie) as connection:
        await connection.send(json.dumps({"type": "turn.follow", "turn": turn}))
        await read_some(events_of_turn(connection, turn), over_ws, 30)
        assert server.stop() == 0
        await connection.wait_closed()
        assert connection.close_code == 1012
    last = [event["type"] async for _, event in stream][-1]
    assert last == "reconnect"
    server.start()
    await read(program.follow(turn, over_sse.position), over_sse)
    assert over_sse.text == NUMBERS


async def read_some(events, screen, limit):
    """As `read`, and leave the stream open."""
    async for position, event in events:
        screen.show(position, event)
        limit -= 1
        if limit <= 0:
            return


async def test_stop_ends_the_turn_and_keeps_its_text(shared_server: ServerProcess):
    program = Program(shared_server)
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=20)
    await program.cancel(turn)
    await read(program.follow(turn, screen.position), screen)
    assert screen.events[-1]["type"] == "response.incomplete"
    row = await program.turn(turn)
    assert (row["status"], row["incomplete_reason"]) == ("cancelled", "cancelled")
    assert NUMBERS.startswith(screen.text)
    assert row["response"]["output"][0]["content"][0]["text"] == screen.text
    assert row["model_calls"][0]["status"] == "cancelled"


async def test_rows_of_other_users_are_out_of_reach(shared_server: ServerProcess):
    shared_server.manage("shell", "-c", _BOB)
    ada, bob = Program(shared_server), Program(shared_server, "bob")
    conversation = await ada.conversation()
    turn = await ada.create_turn(conversation, "/echo private")
    await read(ada.follow(turn), Screen())
    async with bob.http() as http:
        for url in (
            f"/api/conversations/{conversation}/",
            f"/api/conversations/{conversation}/turns/",
            f"/api/turns/{turn}/",
            f"/api/turns/{turn}/events/",
        ):
            assert (await http.get(url)).status_code == 404, url
        for url in (
            f"/api/conversations/{conversation}/turns/",
            f"/api/turns/{turn}/cancel/",
        ):
            answer = await http.post(url, json={"input": "hi"})
            assert answer.status_code == 404, url
        assert conversation not in (await http.get("/api/conversations/")).text
    cookie = await sign_in(shared_server, "bob")
    with pytest.raises(InvalidStatus):
        async with socket(shared_server, conversation, cookie):
            pass
    own = await bob.conversation()
    async with socket(shared_server, own, cookie) as connection:
        await connection.send(json.dumps({"type": "turn.follow", "turn": turn}))
        refused = json.loads(await connection.recv())
        assert refused["error"]["param"] == "turn"


_BOB = f"""
from django.contrib.auth.models import User
User.objects.create_user("bob", password={PASSWORD!r})
"""


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ("{", None, "invalid_message"),
        ("", None, "invalid_message"),
        (b"\x00\xff", None, "invalid_message"),
        ("[" * 100_000, None, "invalid_message"),
        ('{"type": "turn.create", "input": NaN}', None, "invalid_message"),
        ("[]", None, "invalid_message"),
        ('{"type": "nonsense"}', "type", "invalid_message"),
        (f'{{"type": "{50_000 * "x"}"}}', "type", "invalid_message"),
        ('{"type": "turn.create"}', "input", "required"),
        ('{"type": "turn.create", "input": ""}', "input", "empty_message"),
        ('{"type": "turn.create", "input": 7}', "input", "invalid_type"),
        ('{"type": "turn.create", "input": "a", "x": 1}', "x", "unknown_parameter"),
        (
            '{"type": "turn.create", "input": "a", "model": "none"}',
            "model",
            "model_not_found",
        ),
        ('{"type": "turn.cancel"}', "turn", "invalid_message"),
        ('{"type": "turn.cancel", "turn": "resp_0"}', "turn", "invalid_message"),
        ('{"type": "turn.follow", "turn": 5}', "turn", "invalid_message"),
    ],
)
async def test_a_wrong_message_gets_one_clear_error_and_no_more(
    shared_server: ServerProcess, message, param, code
):
    program = Program(shared_server)
    conversation = await program.conversation()
    cookie = await sign_in(shared_server, "admin")
    async with socket(shared_server, conversation, cookie) as connection:
        await connection.send(message)
        error = json.loads(await connection.recv())
        assert error["type"] == "error"
        assert (error["error"]["param"], error["error"]["code"]) == (param, code)
        assert error["error"]["message"].endswith(".")
        assert len(error["error"]["message"]) < 200
        await connection.send('{"type": "turn.create", "input": "/echo Still here"}')
        turn = json.loads(await connection.recv())["turn"]
        screen = Screen()
        await read(events_of_turn(connection, turn), screen)
        assert screen.text == "Still here"


async def test_a_foreign_page_opens_no_socket(shared_server: ServerProcess):
    program = Program(shared_server)
    conversation = await program.conversation()
    cookie = await sign_in(shared_server, "admin")
    with pytest.raises(InvalidStatus):
        async with socket(
            shared_server, conversation, cookie, Origin="https://evil.test"
        ):
            pass
