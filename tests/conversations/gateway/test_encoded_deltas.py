"""Deltas of a stored response are sent as the event log has encoded them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async

from conversations.engine.packed_events import Entry
from conversations.gateway import loop_resources
from conversations.models import Conversation
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.sse import SSEDecoder
from project.server.application import application
from tests.conversations.scene import bearer

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = [f"word {number} " for number in range(20)]


async def test_the_deltas_of_a_stored_response_are_not_decoded(
    conversation: Conversation, say: Any, running: None, monkeypatch: pytest.MonkeyPatch
):
    say([*(TextDelta(0, word) for word in WORDS), FinishDelta("stop")])
    decoded: list[str] = []
    decode = Entry.event.fget
    assert decode

    def note(entry: Entry) -> Any:
        decoded.append(entry.type)
        return decode(entry)

    monkeypatch.setattr(Entry, "event", property(note))
    model = conversation.language_model
    assert model
    body = {"model": model.public_name, "input": "Hi", "stream": True}
    headers = await sync_to_async(bearer)(conversation.owner)
    transport = httpx.ASGITransport(app=application)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as http:
            answer = await http.post("/v1/responses", json=body)
    finally:
        await loop_resources.close()
    events = [frame.json() for frame in SSEDecoder().feed(answer.content)[:-1]]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(events)))
    deltas = [each for each in events if each["type"] == "response.output_text.delta"]
    assert "".join(each["delta"] for each in deltas) == "".join(WORDS)
    assert "response.created" in decoded
    assert "response.output_text.delta" not in decoded
