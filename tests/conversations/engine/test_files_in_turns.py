"""Files that a message names reach the model, whatever the provider takes."""

from __future__ import annotations

import pytest
from django.core.files.base import ContentFile

from conversations.engine import claim_store
from conversations.engine.loading.turn_loader import load
from conversations.models import Attachment, Conversation
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.scene import a_user

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


@pytest.fixture
def conversation(db, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=a_user(), language_model=model)


def attach(conversation, name, content_type, content):
    row = Attachment(
        conversation=conversation,
        name=name,
        content_type=content_type,
        size=len(content),
    )
    row.file.save(name, ContentFile(content), save=False)
    row.save()
    return row.pk


def sent_parts(conversation, *parts):
    """The parts as the provider is sent them."""
    message = {"type": "message", "role": "user", "content": list(parts)}
    turn = conversation.open_turn([message]).turn
    work = load(claim_store.claim(turn.pk))
    return work.task.prepare(()).items[-1]["content"]


def test_a_picture_goes_as_its_bytes(conversation):
    pk = attach(conversation, "cat.png", "image/png", PNG)
    (part,) = sent_parts(conversation, {"type": "input_image", "file_id": pk})
    assert part["image_url"].startswith("data:image/png;base64,")
    assert "file_id" not in part


def test_a_text_file_goes_as_text_with_its_name(conversation):
    pk = attach(conversation, "notes.txt", "text/plain", b"buy milk")
    (part,) = sent_parts(conversation, {"type": "input_file", "file_id": pk})
    assert "notes.txt" in part["text"]
    assert "buy milk" in part["text"]


def test_a_file_of_another_conversation_is_not_sent(conversation):
    other = Conversation.objects.create(owner=conversation.owner)
    pk = attach(other, "secret.txt", "text/plain", b"hidden")
    (part,) = sent_parts(conversation, {"type": "input_file", "file_id": pk})
    assert "hidden" not in str(part)
