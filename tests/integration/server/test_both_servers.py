"""What uvicorn (`serve`) and Daphne (`runserver`) both do, with a real engine."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.clients import Program, Screen, events_of_turn, sign_in, socket
from tests.serving import BareDaphneProcess, DaphneProcess, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

SHORT, LONG = "/long 20", "/long 200"  # numbers, 30 ms each


@pytest.fixture(params=[ServerProcess, DaphneProcess])
def server(request: pytest.FixtureRequest, migrated_data: Path, tmp_path: Path) -> Any:
    data = tmp_path / "data"
    shutil.copytree(migrated_data, data)
    server = request.param(data, {"MAX_UPLOAD_SIZE": "1000", "MAX_UPLOAD_COUNT": "1"})
    server.start()
    yield server
    if server.process:
        server.kill()


async def seen(program: Program, turn: str, screen: Screen) -> None:
    """Until its first word is shown."""
    async with aclosing(program.follow(turn)) as events:
        async for position, event in events:
            screen.show(position, event)
            if screen.text:
                return


@pytest.mark.smoke
async def test_a_turn_is_streamed_over_sse_and_over_a_websocket(server: ServerProcess):
    program, screen = Program(server), Screen()
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, SHORT)
    async for position, event in program.follow(turn):
        screen.show(position, event)
    assert screen.events[-1]["type"] == "response.completed"
    cookie = await sign_in(server, "admin")
    over_socket = Screen()
    async with socket(server, conversation, cookie) as connection:
        again = await program.create_turn(conversation, SHORT)
        await connection.send(f'{{"type": "turn.follow", "turn": "{again}"}}')
        async for position, event in events_of_turn(connection, again):
            over_socket.show(position, event)
    assert over_socket.text == screen.text != ""


async def test_a_client_that_disconnects_leaves_its_turn_running(
    server: ServerProcess,
):
    program, screen = Program(server), Screen()
    turn = await program.create_turn(await program.conversation(), LONG)
    await seen(program, turn, screen)
    async with aclosing(program.follow(turn, screen.position)) as events:
        async for position, event in events:
            screen.show(position, event)
    assert screen.events[-1]["type"] == "response.completed"
    assert server.stop() == 0


async def test_a_drain_closes_sockets_and_resumes_the_turn(
    server: ServerProcess,
):
    program, screen = Program(server), Screen()
    conversation = await program.conversation()
    cookie = await sign_in(server, "admin")
    async with socket(server, conversation, cookie) as connection:
        turn = await program.create_turn(conversation, LONG)
        await seen(program, turn, screen)
        ending = asyncio.create_task(asyncio.to_thread(server.stop))
        with suppress(ConnectionClosed):
            while True:
                await connection.recv()
        assert await ending == 0
    is_daphne = isinstance(server, DaphneProcess)
    assert connection.close_code == (1006 if is_daphne else 1012)
    server.start()
    async with aclosing(program.follow(turn, screen.position)) as events:
        async for position, event in events:
            screen.show(position, event)
    assert screen.events[-1]["type"] == "response.completed"


@pytest.mark.parametrize("path", ["/v1/responses", "/api/conversations/"])
async def test_a_body_that_is_too_large_is_refused(server: ServerProcess, path: str):
    token = server.create_token()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    size = 30 * 1024 * 1024  # more than Django's DATA_UPLOAD_MAX_MEMORY_SIZE
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        answer = await http.post(path, content=size * b" ", headers=headers)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


async def test_a_socket_from_elsewhere_is_refused(server: ServerProcess):
    conversation = await Program(server).conversation()
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Origin": "https://elsewhere.example",
    }
    async with httpx.AsyncClient(base_url=server.url) as http:
        answer = await http.get(f"/ws/conversations/{conversation}/", headers=headers)
    assert answer.status_code == 403


def test_runserver_prints_in_one_line_which_process_locks_the_folder(
    server: ServerProcess,
):
    second = DaphneProcess(server.data, server.environment)
    message = second.refused("--noreload", str(second.port), PYTHONUNBUFFERED="1")
    assert message.count("\n") == 1
    assert "is in use by process" in message


def test_bare_daphne_refuses_requests_while_another_process_has_the_folder(
    migrated_data: Path, tmp_path: Path
):
    data = tmp_path / "data"
    shutil.copytree(migrated_data, data)
    first, second = ServerProcess(data), BareDaphneProcess(data)
    first.start()
    try:
        second.start()
        answer = httpx.get(f"{second.url}/readyz", timeout=60)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.text.endswith("The server does not run; its log says why.")
        browser = {"Accept": "text/html,*/*;q=0.8", "Accept-Language": "de"}
        page = httpx.get(second.url, timeout=60, headers=browser)
        assert (page.status_code, page.headers["Retry-After"]) == (503, "2")
        assert '<html lang="de"' in page.text
        program = httpx.get(f"{second.url}/api/models/", timeout=60, headers=browser)
        assert program.json()["error"]["message"] in answer.text
        first.stop()
        assert httpx.get(f"{second.url}/readyz", timeout=60).status_code == 200
    finally:
        for each in (first, second):
            if each.process:
                each.kill()


async def test_bare_daphne_starts_the_engine_with_the_first_request(
    migrated_data: Path, tmp_path: Path
):
    data = tmp_path / "data"
    shutil.copytree(migrated_data, data)
    ServerProcess(data).start().stop()  # makes the admin
    server = BareDaphneProcess(data)
    server.start()
    try:
        program, screen = Program(server), Screen()
        turn = await program.create_turn(await program.conversation(), SHORT)
        async for position, event in program.follow(turn):
            screen.show(position, event)
        assert screen.events[-1]["type"] == "response.completed"
    finally:
        server.kill()
