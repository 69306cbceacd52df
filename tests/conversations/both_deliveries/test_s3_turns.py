"""Turns whose files are in a bucket: what they wait for, and what does not.

The bucket is moto's, over HTTP, behind a gate that can be shut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction

from conversations import engine
from conversations.forms.folder_uploads import add_folder_file
from conversations.models import (
    Attachment,
    Conversation,
    FileDeletion,
    Folder,
    ToolCall,
    Turn,
)
from conversations.turns import s3_storage
from conversations.turns.attachments import (
    parts_for,
    save_attachments,
    save_texts,
    validate_files,
)
from conversations.turns.file_contents import read_content
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import message, user_message
from tests import s3
from tests.conversations import files
from tests.s3 import Gate, S3Server
from tests.serving import free_port
from tools.execute import CallOutcome
from tools.execution.output import MAX_TEXT

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


LONG = "x" * MAX_TEXT + "the end"
CALL = [ToolCallDelta(0, "c1", "dig", "{}"), FinishDelta("tool_calls")]


async def dig(context: Any, arguments: Any) -> str:
    return LONG


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0)


async def test_a_full_output_follows_its_result_into_the_bucket(
    conversation: Conversation, gate: Gate, say: Any, offer: Any
):
    """Neither its turn nor another waits for the host."""
    say(CALL, ANSWER)
    offer(dig, blocking=True)
    gate.shut()
    turn = await begin(conversation, [])
    assert (await end_of(turn)).status == "completed"
    call = await ToolCall.objects.aget(turn=turn)
    assert call.state == "completed"
    assert call.output.startswith("xxx")
    assert not await Attachment.objects.aexists()
    await asyncio.to_thread(gate.await_request)
    gate.open()
    await until(Attachment.objects.aexists)
    row = await Attachment.objects.aget()
    assert (row.conversation_id, row.name) == (conversation.pk, "c1.txt")
    content = await sync_to_async(read_content)(row)
    assert content is not None
    assert content.data.decode() == LONG


async def test_that_of_a_call_in_the_background_does_too(
    conversation: Conversation, gate: Gate, say: Any, offer: Any
):
    say(CALL, ANSWER)
    offer(dig)
    turn = await begin(conversation, [])
    await end_of(turn)
    await until(Attachment.objects.aexists)
    row = await Attachment.objects.aget()
    assert (row.conversation_id, row.name) == (conversation.pk, "c1.txt")
    assert not await ToolCall.objects.in_background().aexists()


async def test_a_result_is_not_lost_with_its_full_text(
    conversation: Conversation,
    gate: Gate,
    settings: Any,
    say: Any,
    offer: Any,
    caplog: pytest.LogCaptureFixture,
):
    script = say(CALL, ANSWER)
    offer(dig, blocking=True)
    settings.STORAGES = s3.storages(f"http://127.0.0.1:{free_port()}", "files")
    turn = await begin(conversation, [])
    assert (await end_of(turn)).status == "completed"
    call = await ToolCall.objects.aget(turn=turn)
    assert call.state == "completed"
    assert "xxx" in str(script.requests[1].items)
    await until(lambda: _is_logged(caplog, "the full output of c1 is not stored"))
    assert not await Attachment.objects.aexists()


async def _is_logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


@pytest.mark.parametrize("is_erased", [True, False])
def test_a_text_without_its_conversation_leaves_no_file(
    conversation: Conversation, gate: Gate, *, is_erased: bool
):
    """It was erased while the text was sent."""
    pk = conversation.pk
    if is_erased:
        conversation.delete()
    outcome = CallOutcome("c1", "completed", "be…", "", 0.0, "begin and end")
    save_texts(pk, [outcome])
    assert Attachment.objects.exists() is not is_erased
    assert FileDeletion.objects.due().exists() is is_erased
