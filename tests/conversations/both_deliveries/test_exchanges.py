"""What is stored of a provider call's request and response, and who may read it."""

from __future__ import annotations

import base64
import os
import zlib
from datetime import timedelta
from itertools import pairwise
from typing import Any

import httpx
import orjson
import pytest
import respx
from asgiref.sync import sync_to_async
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from benchmarks import streams
from conversations.engine.maintenance.retention import clean_up
from conversations.models import Conversation, Item
from conversations.staff.turn_timeline import timeline
from llm.db.encrypted_field import MASK
from llm.models import ApiKey, LanguageModel, ModelCall, ModelExchange, Provider
from tests.conversations.both_deliveries.test_engine import answer
from tests.conversations.scene import a_user, signed_in, staff

HOST = "https://models.example/v1"
KEY = "planted/k3y+of'these\"tests"
QUESTION = "planted question, ‘quoted’"
STREAM = b"".join(streams.openai_chat(3))


@pytest.fixture
def upstream(db: None):
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router.post(f"{HOST}/chat/completions").mock(
            return_value=httpx.Response(
                200,
                headers={"content-type": "text/event-stream", "x-request-id": "up_1"},
                content=STREAM,
            )
        )


@pytest.fixture
def provider(db: None) -> Provider:
    provider = Provider.objects.create(
        name="Host",
        kind="openai_compatible",
        base_url=HOST,
        keeps_exchanges=True,
        options={"headers": {"X-Team-Token": "planted-team"}},
    )
    ApiKey.objects.create(provider=provider, secret=KEY)
    LanguageModel.objects.create(provider=provider, name="m", is_default=True)
    return provider


@pytest.fixture
def chat(provider: Provider) -> Conversation:
    return Conversation.objects.create(owner=a_user("ada"))


def stored() -> dict[str, Any]:
    return ModelExchange.objects.get().read()


def page_of(call: ModelCall) -> str:
    return reverse("admin:llm_modelcall_exchange", args=[call.pk])


async def test_the_bytes_are_stored_exactly_and_without_keys(chat, upstream, running):
    await answer(chat, text=QUESTION)
    kept = await sync_to_async(stored)()
    sent = upstream.calls.last.request
    assert kept["request"].encode() == sent.content
    assert kept["response"].encode() == STREAM
    assert (kept["status"], kept["method"]) == (200, "POST")
    assert dict(kept["request_headers"])["authorization"] == MASK
    assert dict(kept["request_headers"])["x-team-token"] == MASK
    assert ["x-request-id", "up_1"] in kept["response_headers"]
    assert KEY in sent.headers["authorization"]
    assert KEY not in str(kept)
    assert "planted-team" not in str(kept)


async def test_a_provider_that_quotes_the_key_does_not_store_it(
    chat, upstream, running
):
    body = orjson.dumps({"error": {"message": f"bad key {KEY}"}})
    upstream.mock(return_value=httpx.Response(401, content=body))
    await answer(chat)
    kept = await sync_to_async(stored)()
    assert "bad key" in kept["response"]
    assert "k3y" not in kept["response"]


async def test_nothing_is_stored_and_nothing_asked_of_the_database_when_off(
    chat, provider, upstream, running
):
    await Provider.objects.aupdate(keeps_exchanges=False)
    await answer(chat)
    assert not await ModelExchange.objects.aexists()
    assert await ModelCall.objects.aexists()

    def record() -> str:
        with CaptureQueriesContext(connection) as queries:
            ModelCall.objects.record_all(
                [ModelCall(provider_name="p", status="failed")]
            )
        return str(queries.captured_queries)

    assert "exchange" not in await sync_to_async(record)()


async def test_bodies_are_cut_at_the_limit(chat, upstream, running, settings):
    settings.EXCHANGE_MAX_SIZE = 100
    noise = base64.b64encode(os.urandom(50_000))
    upstream.mock(return_value=httpx.Response(400, content=noise))
    await answer(chat)
    kept = await sync_to_async(stored)()
    assert kept["response"] == noise[:100].decode()
    assert kept["response_size"] == len(noise)
    assert (kept["request_cut"], kept["response_cut"]) == (True, True)
    row = await ModelExchange.objects.aget()
    assert len(zlib.decompress(bytes(row.content))) < 3_000


async def test_they_are_erased_after_their_days_and_with_a_correction(
    chat, upstream, running, settings
):
    turn, _ = await answer(chat)
    settings.EXCHANGE_RETENTION_DAYS = 7
    await sync_to_async(lambda: list(clean_up()))()
    assert await ModelExchange.objects.aexists()
    await ModelExchange.objects.aupdate(created_at=timezone.now() - timedelta(days=8))
    await sync_to_async(lambda: list(clean_up()))()
    assert not await ModelExchange.objects.aexists()
    assert await ModelCall.objects.aexists()
    await answer(chat)
    assert await ModelExchange.objects.aexists()

    def correct() -> None:
        item = Item.objects.filter(turn=turn).earliest("position")
        item.correct({**item.payload, "content": [{"type": "input_text", "text": ""}]})

    await sync_to_async(correct)()
    assert not await ModelExchange.objects.aexists()


async def test_only_the_permission_shows_them_and_each_visit_is_logged(
    chat, upstream, running
):
    await answer(chat, text=QUESTION)
    call = await ModelCall.objects.aget()
    await sync_to_async(_check_permissions)(call)


def _check_permissions(call: ModelCall) -> None:
    assert Client().get(page_of(call)).status_code == 302
    assert signed_in(a_user("bob")).get(page_of(call)).status_code == 302
    few = staff("few", "inspect_turn", "change_turn", "view_modelcall")
    assert signed_in(few).get(page_of(call)).status_code == 403
    for name in ("conversations_turn_change", "llm_modelcall_change"):
        pk = call.turn_id if "turn" in name else call.pk
        page = signed_in(few).get(reverse(f"admin:{name}", args=[pk]))
        assert page_of(call) not in page.content.decode()
    assert not LogEntry.objects.exists()
    reader = signed_in(staff("reader", "view_modelexchange"))
    page = reader.get(page_of(call))
    assert "planted question" in page.content.decode()
    assert "Authorization: Bearer &#x27;&quot;$API_KEY&quot;" in (
        page.content.decode().replace("authorization", "Authorization")
    )
    assert "k3y" not in page.content.decode()
    assert "no-store" in page["Cache-Control"]
    assert LogEntry.objects.get().user.username == "reader"


async def test_an_error_id_leads_to_the_bytes_in_two_clicks(chat, upstream, running):
    upstream.mock(
        return_value=httpx.Response(
            400, headers={"x-request-id": "up_2"}, content=b'{"error": "odd"}'
        )
    )
    turn, _ = await answer(chat)
    assert turn.status == "failed"
    for shown in (turn.pk, "up_2"):  # the chat shows the first with the error
        await sync_to_async(_find)(shown, await ModelCall.objects.aget())


def _find(shown: str, call: ModelCall) -> None:
    user = staff(f"s{shown[:4]}", "inspect_turn", "view_modelexchange")
    client = signed_in(user)
    found = client.get(reverse("admin:conversations_turn_changelist"), {"q": shown})
    page = client.get(found["Location"])
    assert page_of(call) in page.content.decode()
    assert "odd" in client.get(page_of(call)).content.decode()


async def test_the_inspector_shows_each_attempt_when_it_was_sent(
    chat, upstream, running
):
    """All rows of a step are written together, at the end of the last attempt."""
    patient = {"retry": {"delay": 0.2}}
    await LanguageModel.objects.aupdate(options=patient)
    refused = httpx.Response(503, headers={"retry-after": "0"})
    upstream.mock(side_effect=[refused, refused, upstream.return_value])
    turn, _ = await answer(chat)
    await turn.arefresh_from_db()
    entries = await sync_to_async(timeline)(turn)
    sent = [entry for entry in entries if entry.kind == "model"]
    assert [entry.bad for entry in sent] == [True, True, False]
    for entry, following in pairwise(sent):
        assert entry.at + timedelta(seconds=entry.seconds) <= following.at
    assert turn.started_at <= sent[0].at
    assert sent[-1].at <= turn.finished_at


def test_a_row_of_an_older_version_began_its_latency_before_it_was_written(db):
    row = ModelCall.objects.create(latency=2.0)
    assert row.began_at == row.created_at - timedelta(seconds=2)
