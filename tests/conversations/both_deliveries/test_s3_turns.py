"""Turns whose files are in a bucket: what they wait for, and what does not.

The bucket is moto's, over HTTP, behind a gate that can be shut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction

from conversations import engine
from conversations.forms.folder_uploads import add_folder_file
from conversations.models import Attachment, Conversation, Folder, Turn
from conversations.turns import s3_storage
from conversations.turns.attachments import (
    parts_for,
    save_attachments,
    validate_files,
)
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import message, user_message
from tests import s3
from tests.conversations import files
from tests.s3 import Gate, S3Server
from tests.serving import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.server,
    pytest.mark.usefixtures("running"),
]
ANSWER = [TextDelta(0, "A frog."), FinishDelta("stop")]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with s3.running() as server:
        yield server


@pytest.fixture
def gate(
    s3_server: S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gate]:
    monkeypatch.setattr(s3_storage, "ATTEMPTS", 1)
    monkeypatch.setattr(s3_storage, "READ_TIMEOUT", 60)
    bucket, gate = s3_server.make_bucket(), Gate(s3_server.url)
    settings.STORAGES = s3.storages(gate.url, bucket.name)
    yield gate
    gate.close()
    bucket.close()


def another(conversation: Conversation, **fields: Any) -> Conversation:
    return Conversation.objects.create(
        owner=conversation.owner, language_model=conversation.language_model, **fields
    )


def upload(conversation: Conversation) -> list[Attachment]:
    sent = [SimpleUploadedFile("frog.png", files.PNG)]
    return save_attachments(conversation, validate_files(conversation.owner_id, sent))


@sync_to_async
@transaction.atomic
def send(conversation: Conversation, rows: list[Attachment]) -> Turn:
    question = message("user", "")
    question["content"] = [*parts_for(rows), {"type": "input_text", "text": "What?"}]
    return conversation.open_turn([question]).turn


@sync_to_async
@transaction.atomic
def say_hello(conversation: Conversation) -> Turn:
    return conversation.open_turn([user_message("Hello")]).turn


async def begin(conversation: Conversation, rows: list[Attachment]) -> Turn:
    """A turn with these files. A worker may run it as soon as its row is there."""
    turn = await send(conversation, rows)
    engine.submit(turn.pk, conversation.pk)
    return turn


async def end_of(turn: Turn) -> Turn:
    async for _ in engine.subscribe(turn.pk, None):
        pass
    await turn.arefresh_from_db()
    return turn


async def test_a_turn_gets_the_contents(
    conversation: Conversation, gate: Gate, say: Any
):
    script = say(ANSWER)
    turn = await begin(conversation, await sync_to_async(upload)(conversation))
    assert (await end_of(turn)).status == "completed"
    assert "data:image/png;base64," in str(script.requests[0].items)


async def test_a_turn_gets_the_documents_of_its_folder(
    conversation: Conversation, gate: Gate, say: Any
):
    script = say(ANSWER)
    turn = await sync_to_async(_in_folder)(conversation)
    engine.submit(turn.pk, turn.conversation_id)
    assert (await end_of(turn)).status == "completed"
    assert "data:application/pdf;base64," in str(script.requests[0].items)


def _in_folder(conversation: Conversation) -> Turn:
    folder = Folder.objects.create(owner=conversation.owner, name="Work")
    add_folder_file(folder, SimpleUploadedFile("a.pdf", files.PDF))
    with transaction.atomic():
        within = another(conversation, folder=folder)
        return within.open_turn([user_message("What?")]).turn


async def test_turns_that_wait_for_a_silent_host_stop_no_other(
    conversation: Conversation, gate: Gate, say: Any
):
    """More than turns may start at once, and than there are threads that write."""
    say(*[ANSWER] * 6)
    others = [await sync_to_async(another)(conversation) for _ in range(5)]
    sent = [(each, await sync_to_async(upload)(each)) for each in others]
    gate.shut()
    waiting = [await begin(each, rows) for each, rows in sent]
    for _ in waiting:
        await asyncio.to_thread(gate.await_request)
    free = await say_hello(conversation)
    engine.submit(free.pk, conversation.pk)
    assert (await end_of(free)).status == "completed"
    for turn in waiting:
        await turn.arefresh_from_db()
        assert turn.status == "in_progress"
    gate.open()
    for turn in waiting:
        assert (await end_of(turn)).status == "completed"


async def test_a_stopped_turn_waits_for_no_host(
    conversation: Conversation, gate: Gate, say: Any
):
    script = say()
    rows = await sync_to_async(upload)(conversation)
    gate.shut()
    turn = await begin(conversation, rows)
    await asyncio.to_thread(gate.await_request)
    await sync_to_async(engine.cancel)(turn)
    assert (await end_of(turn)).status == "cancelled"
    assert script.requests == []


async def test_without_its_file_a_turn_ends_with_a_clear_error(
    conversation: Conversation, gate: Gate, settings: Any, say: Any
):
    script = say()
    rows = await sync_to_async(upload)(conversation)
    settings.STORAGES = s3.storages(f"http://127.0.0.1:{free_port()}", "files")
    turn = await begin(conversation, rows)
    assert (await end_of(turn)).status == "failed"
    assert turn.error
    assert turn.error["code"] == "E_FILES_UNAVAILABLE"
    assert script.requests == []
