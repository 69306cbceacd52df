"""Files inside messages: how large they may be, and whose room they take."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from conversations.engine.maintenance.retention import clean_up
from conversations.models import Conversation, Turn
from tests.conversations import files
from tests.conversations.scene import a_model, a_user, program, signed_in
from tests.integration.gateway.programs import Gateway
from tests.serving import ServerProcess

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host"),
]

JSON = "application/json"


def picture(size: int) -> dict[str, Any]:
    url = "data:image/png;base64,".ljust(size, "A")
    return {"type": "input_image", "image_url": url}


@pytest.fixture
def conversation(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    from conversations import engine

    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    a_model(is_default=True)
    return Conversation.objects.create(owner=a_user("ada"))


def say(client: Client, conversation: Conversation, *parts: Any) -> Any:
    content = [*parts, {"type": "input_text", "text": "What is it?"}]
    return client.post(
        f"/api/conversations/{conversation.pk}/turns/",
        {"input": [{"role": "user", "content": content}]},
        content_type=JSON,
    )


@pytest.mark.parametrize("client_of", [program, signed_in])
def test_they_count_toward_the_quota(
    client_of: Any, conversation: Conversation, settings: Any
):
    settings.UPLOAD_QUOTA = 1000
    client = client_of(conversation.owner)
    assert say(client, conversation, picture(600)).status_code == 202
    refused = say(client, conversation, picture(600))
    assert refused.status_code == 413
    assert refused.json()["error"]["code"] == "quota_exceeded"
    assert say(client, conversation).status_code == 202
    assert Turn.objects.count() == 2


def test_uploads_and_they_share_the_quota(conversation: Conversation, settings: Any):
    settings.UPLOAD_QUOTA = 600 + len(files.PNG) - 1
    client = program(conversation.owner)
    assert say(client, conversation, picture(600)).status_code == 202
    url = f"/api/conversations/{conversation.pk}/attachments/"
    refused = client.post(url, {"file": SimpleUploadedFile("a.png", files.PNG)})
    assert refused.json()["error"]["code"] == "quota_exceeded"
    Turn.objects.all().delete()
    assert (
        client.post(url, {"file": SimpleUploadedFile("a.png", files.PNG)}).status_code
        == 201
    )
    assert say(client, conversation, picture(600)).status_code == 413


def test_erased_conversations_give_their_room_back(
    conversation: Conversation, settings: Any
):
    settings.UPLOAD_QUOTA = 1000
    client = program(conversation.owner)
    assert say(client, conversation, picture(600)).status_code == 202
    conversation.delete_softly()
    Conversation.objects.update(deleted_at="2020-01-01T00:00:00Z")
    list(clean_up())
    other = Conversation.objects.create(owner=User.objects.get())
    assert say(client, other, picture(600)).status_code == 202


# Over the gateway


BIG = "data:image/png;base64," + "A" * 4000
WORDS = "What is it?"
MESSAGES = {
    "/chat/completions": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": WORDS},
                    {"type": "image_url", "image_url": {"url": BIG}},
                ],
            }
        ]
    },
    "/messages": {
        "max_tokens": 50,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": WORDS},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "A" * 4000,
                        },
                    },
                ],
            }
        ],
    },
    "/responses": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": WORDS},
                    {"type": "input_image", "image_url": BIG},
                ],
            }
        ]
    },
}


def test_they_count_at_every_api_of_the_gateway(start_server: Any):
    server: ServerProcess = start_server(MAX_INPUT_SIZE="3000", UPLOAD_QUOTA="6000")
    gateway = Gateway(server)
    headers = {"Authorization": f"Bearer {server.create_token()}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as http:
        for path, body in MESSAGES.items():
            refused = http.post(path, json={"model": "demo", **body})
            assert refused.status_code == 413, refused.text
            assert "4" in refused.json()["error"]["message"]
    server.stop()
    server.environment["MAX_INPUT_SIZE"] = "5000"
    server.start()
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as http:
        body = {"model": "demo", **MESSAGES["/responses"]}
        answers = [http.post("/responses", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 413]
        assert answers[1].json()["error"]["code"] == "quota_exceeded"
        unkept = http.post("/responses", json={**body, "store": False})
        assert unkept.status_code == 200
