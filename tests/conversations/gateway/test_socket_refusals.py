"""What a WebSocket refuses before it reads a message names that message."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator

from conversations.access import overload
from conversations.gateway import loop_resources
from conversations.gateway.websocket import ResponsesConsumer
from conversations.models import AccessToken, Conversation
from conversations.models.access_token import Scope

pytestmark = pytest.mark.django_db(transaction=True)


def _refuse_all() -> None:
    raise overload.note_refusal("MAX_LAG")


@pytest.mark.parametrize(
    ("id", "address"),
    [("lane", {"stream_id": "lane"}), (7, {}), (None, {}), ("x" * 300, {})],
)
async def test_a_refusal_repeats_the_stream_id_of_a_message_it_did_not_read(
    id: Any,
    address: dict[str, str],
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
):
    owner = await sync_to_async(lambda: conversation.owner)()
    _token, secret = await sync_to_async(AccessToken.issue)(
        owner, "t", scopes=Scope.values
    )
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    app = ResponsesConsumer.as_asgi()
    socket = WebsocketCommunicator(app, "/v1/responses", headers)
    connected, _ = await socket.connect(timeout=30)
    assert connected
    monkeypatch.setattr(overload, "check_room", _refuse_all)
    await socket.send_json_to({"type": "response.create", "stream_id": id})
    refusal = await socket.receive_json_from(timeout=30)
    assert refusal["status"] == 503
    assert {n: v for n, v in refusal.items() if n == "stream_id"} == address
    for unread in ("no JSON", "[]"):
        await socket.send_to(text_data=unread)
        refusal = await socket.receive_json_from(timeout=30)
        assert "stream_id" not in refusal
    await socket.disconnect(timeout=30)
    await loop_resources.close()
