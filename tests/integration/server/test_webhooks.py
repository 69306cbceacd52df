"""`kill -9` between the commit of a turn's end and its webhook: it is sent after a
restart. And while it is being sent: it is sent again, with the same id."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conversations.webhooks.receiver import Answer, Receiver, receiving
from tests.integration.clients import Program
from tests.integration.crashes import SETTINGS
from tests.serving import Deadline, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

_ENDPOINT = """
from conversations.models import EventType, WebhookEndpoint
row = WebhookEndpoint(name="r", url={url!r}, networks="127.0.0.1")
row.events = EventType.values
print(row.renew_secret())
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def server(migrated_data: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    shutil.copytree(migrated_data, tmp_path / "data")
    server = ServerProcess(tmp_path / "data", SETTINGS)
    yield server
    if server.process:
        server.kill()


def make_endpoint(server: ServerProcess, receiver: Receiver) -> str:
    """Its secret."""
    code = _ENDPOINT.format(url=receiver.url)
    return server.manage("shell", "-v0", "-c", code).strip().splitlines()[-1]


async def begin_turn(server: ServerProcess) -> str:
    program = Program(server)
    return await program.create_turn(await program.conversation(), "Hi")


async def test_what_a_turns_end_has_committed_is_sent_after_a_crash(server, receiver):
    server.environment["CRASH_AT"] = "turn_store.finish:after"
    server.start()
    secret = make_endpoint(server, receiver)
    # A running process learns of it within two seconds; a new one at once.
    server.stop()
    server.start()
    turn = await begin_turn(server)
    process, server.process = server.process, None
    assert process is not None

    def wait() -> int:
        with process, Deadline(process):
            return process.wait()

    assert await asyncio.to_thread(wait) == -9
    assert not receiver.rest()
    del server.environment["CRASH_AT"]
    await asyncio.to_thread(server.start)
    received = await asyncio.to_thread(receiver.get)
    assert received.is_signed_with(secret)
    assert received.event["data"]["id"] == turn


async def test_what_was_being_sent_at_a_crash_is_sent_again(server, receiver):
    release = threading.Event()
    receiver.answers = [Answer(waits_for=release)]
    server.start()
    make_endpoint(server, receiver)
    server.stop()
    server.start()
    turn = await begin_turn(server)
    first = await asyncio.to_thread(receiver.get)
    server.kill()
    release.set()
    await asyncio.to_thread(server.start)
    second = await asyncio.to_thread(receiver.get)
    assert second.id == first.id
    assert second.event["data"]["id"] == turn
