"""`Idempotency-Key` over `/v1`: a host is asked once, and a key belongs to one body."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError
from django.utils import timezone

from conversations import engine
from conversations.engine.database.executor import Database
from conversations.gateway.exchanges.idempotency import give_up
from conversations.gateway.exchanges.key_leases import KeyLeases
from conversations.gateway.loop_resources import MAX_OPENINGS, resources
from conversations.models import AccessToken, Turn
from conversations.models.gateway.answered_request import (
    AnsweredRequest,
    ClaimLost,
)
from tests.conversations.gateway.forwarding.hosts import (
    Answer,
    Client,
    Host,
    Received,
    Reply,
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


async def test_a_key_of_one_endpoint_or_token_gives_no_other_the_answer():
    client, other_client = await Client().open(), await Client().open()
    headers = {"idempotency-key": "one"}
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": name, "messages": messages, "max_tokens": 9}
        first = await client.post("/v1/chat/completions", body, headers)
        assert first.status == 200
        for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses"):
            refused = await client.post(path, body, headers)
            assert refused.status == 409, path
            assert b"belongs to another request" in refused.body
        assert len(host.received) == 1
        of_other = await other_client.post("/v1/chat/completions", body, headers)
        assert (of_other.status, len(host.received)) == (200, 2)
        assert "idempotent-replayed" not in of_other.headers
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
    row = await AnsweredRequest.objects.aget()
    row.is_unstoppable = row.is_lost = True
    give_up(row, resources())
    written = threading.Event()
    resources().write_queue.add(written.set)  # after the others
    assert await asyncio.to_thread(written.wait, 60)
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


# A process that is lost with its requests


async def a_token() -> AccessToken:
    await Client().open()
    return await AccessToken.objects.aget()


@sync_to_async
def lose(**fields: Any) -> None:
    """The process that answers the requests dies, and their leases expire."""
    past = timezone.now() - timedelta(seconds=1)
    leased = AnsweredRequest.objects.filter(lease_expires_at__isnull=False)
    leased.update(lease_expires_at=past, **fields)


async def test_a_request_that_was_lost_with_its_process_runs_again():
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": name, "messages": messages}

        async def ask() -> Answer:
            headers = {"idempotency-key": "one"}
            return await client.post("/v1/chat/completions", body, headers)

        assert (await ask()).status == 200
        await AnsweredRequest.objects.aupdate(status=None, body=None)
        assert (await ask()).status == 409  # its process lives
        await lose()
        again = await ask()
        assert (again.status, len(host.received)) == (200, 2)
        assert "idempotent-replayed" not in again.headers
        repeated = await ask()
        assert repeated.body == again.body
        assert repeated.headers["idempotent-replayed"] == "true"
        assert len(host.received) == 2
    await client.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stored_response_of_a_lost_process_is_not_opened_again(
    stream: bool, running: None
):
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        body = {"model": name, "input": "Hi", "stream": stream}

        async def ask() -> Answer:
            return await client.post("/v1/responses", body, {"idempotency-key": "one"})

        first = await ask()
        await lose(status=None, body=None)
        again = await ask()
        assert (first.status, again.status) == (200, 200)
        (turn_id,) = await ids_of_turns()
        assert turn_id.encode() in again.body
        assert len(host.received) == 1
        await Turn.objects.aupdate(deleted_at=timezone.now())
        await lose(status=None, body=None)
        assert (await ask()).status == 200
        assert len(await ids_of_turns()) == 2
    await client.close()


async def test_a_lost_request_whose_response_is_over_gives_it_to_the_next(
    running: None,
):
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        body = {"model": name, "input": "Hi", "stream": True}

        async def ask() -> Answer:
            return await client.post("/v1/responses", body, {"idempotency-key": "one"})

        assert (await ask()).status == 200
        await AnsweredRequest.objects.aupdate(status=None, body=None)
        row = await AnsweredRequest.objects.aget()
        row.is_lost = True
        give_up(row, resources())
        async with asyncio.timeout(60):
            while (again := await ask()).status == 409:
                pass
        (turn_id,) = await ids_of_turns()
        assert (again.status, turn_id.encode() in again.body) == (200, True)
        assert len(host.received) == 1
    await client.close()


@pytest.mark.parametrize("fields", [{}, {"stream": True}])
async def test_a_response_of_a_stopped_server_goes_on_for_the_next_request(
    fields: dict[str, Any], running: None
):
    client, begun, go = await Client().open(), threading.Event(), threading.Event()

    def reply(received: Received) -> Reply:
        begun.set()
        assert go.wait(60)
        return canned_reply("chat", received)

    with Host(reply) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        body = {"model": name, "input": "Hi", **fields}

        async def ask(text: str = "Hi") -> Answer:
            headers = {"idempotency-key": "one"}
            return await client.post("/v1/responses", {**body, "input": text}, headers)

        asking = asyncio.ensure_future(ask())
        assert await asyncio.to_thread(begun.wait, 60)
        await engine.drain()
        refused = await asking
        assert (refused.status, b"shutting down" in refused.body) == (503, True)
        assert (await ask("Bye")).status == 409
        go.set()
        await engine.start()
        again, repeated = await ask(), await ask()
    assert (again.status, repeated.body) == (200, again.body)
    (turn_id,) = await ids_of_turns()
    assert turn_id.encode() in again.body
    await client.close()


async def test_two_repetitions_of_a_lost_request_run_once():
    def claim() -> tuple[AnsweredRequest, bool]:
        return AnsweredRequest.objects.claim(token.pk, "one", "fingerprint")

    token = await a_token()
    first, is_first = await sync_to_async(claim)()
    await lose()
    second, is_second = await sync_to_async(claim)()
    assert (is_first, is_second, (await sync_to_async(claim)())[1]) == (
        True,
        True,
        False,
    )
    # The lost process was only slow: it changes nothing any more.
    await sync_to_async(first.save_answer)(200, [], b"first")
    await sync_to_async(first.release)()
    with pytest.raises(ClaimLost):
        await sync_to_async(first.note_turn)("turn_1")
    await sync_to_async(second.save_answer)(200, [], b"second")
    row, _ = await sync_to_async(claim)()
    assert row.read_body() == b"second"


async def test_the_lease_of_a_key_is_renewed_while_its_request_is_answered():
    token, database = await a_token(), resources().database
    row, _ = await database.write(
        AnsweredRequest.objects.claim, token.pk, "one", "fingerprint"
    )
    leases = KeyLeases(database, interval=0.0)
    with leases.renewing(row):
        await lose()
        async with asyncio.timeout(60):
            while await AnsweredRequest.objects.filter(
                lease_expires_at__lt=timezone.now()
            ).aexists():
                pass
    leases.close()


# A process that cannot renew its leases


class Unreachable(Database):
    """A database that answers no renewal."""

    async def write(self, function: Any, *args: Any) -> Any:
        raise OperationalError("no answer")


async def claim_of(token: AccessToken) -> tuple[AnsweredRequest, bool]:
    return await resources().database.write(
        AnsweredRequest.objects.claim, token.pk, "one", "fingerprint"
    )


async def answer_for_ever(leases: KeyLeases, row: AnsweredRequest) -> None:
    with leases.renewing(row):
        await asyncio.Event().wait()


async def test_a_process_that_cannot_renew_stops_before_another_answers():
    token = await a_token()
    row, _ = await claim_of(token)
    leases = KeyLeases(Unreachable(), interval=0.0, patience=0.05)
    async with asyncio.timeout(60):
        with pytest.raises(ClaimLost):
            await answer_for_ever(leases, row)
    leases.close()
    assert row.is_lost
    assert not (await claim_of(token))[1]  # its lease is longer than the patience
    await lose()
    assert (await claim_of(token))[1]


async def test_a_process_that_renews_goes_on():
    row, _ = await claim_of(await a_token())
    began_at = row.leased_at
    leases = KeyLeases(resources().database, interval=0.0, patience=3_600.0)
    with leases.renewing(row):
        async with asyncio.timeout(60):
            while row.leased_at == began_at:
                await asyncio.sleep(0)
    leases.close()
    assert not row.is_lost


async def test_a_process_whose_key_another_has_stops_and_renews_nothing():
    token = await a_token()
    row, _ = await claim_of(token)
    await lose()
    _, is_second = await claim_of(token)
    assert is_second
    await lose()
    leases = KeyLeases(resources().database, interval=0.0)
    async with asyncio.timeout(60):
        with pytest.raises(ClaimLost):
            await answer_for_ever(leases, row)
    leases.close()
    _, is_third = await claim_of(token)
    assert is_third  # the lease of the second was not extended by the first


async def test_a_cancelled_request_is_not_taken_for_a_lost_one():
    row, _ = await claim_of(await a_token())
    leases = KeyLeases(resources().database)
    task = asyncio.ensure_future(answer_for_ever(leases, row))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not row.is_lost
    leases.close()


async def test_a_lost_request_calls_no_host_any_more():
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")
        body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
        leases = KeyLeases(Unreachable(), interval=0.0, patience=0.0)

        async def ask() -> Answer:
            headers = {"idempotency-key": "one"}
            return await client.post("/v1/chat/completions", body, headers)

        with patch.object(resources(), "key_leases", leases):
            answer = await ask()
        assert (answer.status, len(host.received)) == (409, 0)
        assert b"idempotency_key_in_use" in answer.body
        leases.close()
        async with asyncio.timeout(60):
            while (again := await ask()).status == 409:
                pass
        assert (again.status, len(host.received)) == (200, 1)
    await client.close()


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
