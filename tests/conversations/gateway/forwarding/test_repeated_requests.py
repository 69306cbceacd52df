"""`Idempotency-Key` over `/v1`: a host is asked once, and a key belongs to one body."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway.resources import MAX_OPENINGS, resources
from conversations.models import Turn
from conversations.models.gateway.answered_request import AnsweredRequest
from tests.conversations.gateway.forwarding.hosts import (
    Answer,
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_host_is_asked_once_and_another_body_is_refused():
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")

        async def ask(text: str, key: str) -> tuple[int, bytes]:
            messages = [{"role": "user", "content": text}]
            body = {"model": name, "messages": messages}
            answer = await client.post(
                "/v1/chat/completions", body, {"idempotency-key": key}
            )
            return answer.status, answer.body

        first = await ask("Hi", "one")
        assert first[0] == 200
        assert await ask("Hi", "one") == first
        status, body = await ask("Bye", "one")
        assert status == 409
        assert b"idempotency_key_reused" in body
        assert len(host.received) == 1
        assert (await ask("Hi", "two"))[0] == 200
        assert len(host.received) == 2
    await client.close()


# A background response, which goes on without its client


class Background:
    """Asks for a background response, always with the same key."""

    def __init__(self, client: Client, model: str) -> None:
        self.client = client
        self.body = {"model": model, "input": "Hi", "background": True}

    async def ask(self, **fields: Any) -> Answer:
        headers = {"idempotency-key": "one"}
        return await self.client.post("/v1/responses", {**self.body, **fields}, headers)

    async def leave(self, **fields: Any) -> None:
        """Leave while the response waits to be opened; it is opened after that."""
        slots = resources().openings
        for _ in range(MAX_OPENINGS):
            await slots.acquire("others")
        asking = asyncio.ensure_future(self.ask(**fields))
        while not slots.waiting:
            assert not asking.done(), asking.result().body
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert (await self.ask(**fields)).status == 409  # in use
        for _ in range(MAX_OPENINGS):
            slots.release()


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    client = await Client().open()
    url = "http://127.0.0.1:9/v1"  # never called: no engine runs
    name = await add_model("openai", "openai_responses", url, "m")
    yield Background(client, name)
    await client.close()


@sync_to_async
def ids_of_turns() -> list[str]:
    return list(Turn.objects.values_list("pk", flat=True))


async def test_a_background_response_is_opened_once_though_its_client_leaves(
    background: Background,
):
    await background.leave()
    async with asyncio.timeout(60):
        while not (ids := await ids_of_turns()):
            pass
    again = await background.ask()
    assert again.status == 200, again.body
    assert again.headers["idempotent-replayed"] == "true"
    assert (again.json()["id"], again.json()["status"]) == (ids[0], "queued")
    assert await ids_of_turns() == ids


async def test_the_key_of_a_background_stream_stays_in_use(background: Background):
    await background.leave(stream=True)
    async with asyncio.timeout(60):
        while not (ids := await ids_of_turns()):
            pass
    assert (await background.ask(stream=True)).status == 409
    assert await ids_of_turns() == ids


async def test_the_key_of_a_response_that_could_not_be_opened_is_free(
    background: Background,
):
    with patch("conversations.gateway.stored_rows.open_turn", side_effect=OSError):
        await background.leave()
        async with asyncio.timeout(60):
            while await AnsweredRequest.objects.aexists():
                pass
    answer = await background.ask()
    assert (answer.status, len(await ids_of_turns())) == (200, 1)
    assert "idempotent-replayed" not in answer.headers


# A release of a key


async def test_a_write_that_waits_runs_though_its_caller_is_cancelled():
    database, running, go_on = (
        resources().database,
        threading.Event(),
        threading.Event(),
    )

    def block() -> None:
        running.set()
        go_on.wait()

    ran: list[int] = []
    blocking = database.write(block)
    waiting = database.write(ran.append, 1)
    waiting.cancel()
    go_on.set()
    await blocking
    await database.write(lambda: None)
    assert ran == [1]
