"""While a bucket is slow no transaction is open: SQLite has one writer, and PostgreSQL
ends a session that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections

from conversations import engine
from conversations.models import (
    Attachment,
    Conversation,
    ConversationImport,
    IdempotencyKey,
    Tag,
    Turn,
)
from conversations.transfer.export import load, write_json
from conversations.transfer.imports import accept, run_import
from conversations.turns import s3_storage
from conversations.turns.attachments import save_attachments, validate_files
from conversations.turns.file_deletion import delete_noted
from tests import s3
from tests.conversations import files
from tests.conversations.scene import a_model, a_user, signed_in
from tests.s3 import Bucket, Gate, S3Server
from tests.serving import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.server,
    pytest.mark.usefixtures("scripted_host"),
]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with s3.running() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    made = s3_server.make_bucket()
    yield made
    made.close()


@pytest.fixture
def gate(
    bucket: Bucket, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gate]:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    monkeypatch.setattr(s3_storage, "ATTEMPTS", 1)
    monkeypatch.setattr(s3_storage, "READ_TIMEOUT", 60)
    gate = Gate(bucket.url)
    settings.STORAGES = s3.storages(gate.url, bucket.name)
    yield gate
    gate.close()


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[Any]]]:
    """Call a function on another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit
        pool.submit(connections.close_all)


@pytest.fixture
def ada() -> Any:
    a_model(is_default=True)
    return a_user("ada")


def post(user: Any, data: bytes = files.PNG, key: str = "k-1") -> Any:
    sent = {"text": "look", "key": key, "file": SimpleUploadedFile("a.png", data)}
    web = signed_in(user)
    web.raise_request_exception = False
    return web.post("/", sent, headers={"accept": "text/html"})


def write_meanwhile(gate: Gate) -> None:
    gate.await_request()
    Tag.objects.create(owner=a_user("bo"), name="bo goes on")


def test_a_message_with_a_file_locks_nothing(
    ada: Any, gate: Gate, beside: Callable[..., Future[Any]]
):
    gate.shut("PUT")
    posting = beside(post, ada)
    write_meanwhile(gate)
    assert not posting.done()
    gate.open()
    assert posting.result().status_code == 302
    row = Attachment.objects.get()
    assert row.conversation == Turn.objects.get().conversation
    assert row.uploaded_by is None


def test_an_import_locks_nothing(
    ada: Any, gate: Gate, beside: Callable[..., Future[Any]], bucket: Bucket
):
    conversation = Conversation.objects.create(owner=ada)
    sent = validate_files(ada.pk, [SimpleUploadedFile("a.png", files.PNG)])
    save_attachments(conversation, sent)
    loaded = load(Conversation.objects.all())
    assert loaded
    document = b"".join(write_json(loaded))
    row = accept(a_user("eve"), ContentFile(document, "export.json"))
    gate.shut("PUT")
    importing = beside(run_import, row.pk)
    write_meanwhile(gate)
    gate.open()
    assert importing.result()
    row.refresh_from_db()
    assert (row.state, row.imported) == ("completed", 1)
    list(delete_noted())
    assert list(bucket.files().values()) == [files.PNG, files.PNG]


def test_an_import_that_cannot_store_a_file_goes_on_later(
    ada: Any, gate: Gate, settings: Any, bucket: Bucket
):
    """With its first conversation, of which nothing was written."""
    conversation = Conversation.objects.create(owner=ada)
    sent = validate_files(ada.pk, [SimpleUploadedFile("a.png", files.PNG)])
    save_attachments(conversation, sent)
    loaded = load(Conversation.objects.all())
    assert loaded
    eve = a_user("eve")
    row = accept(eve, ContentFile(b"".join(write_json(loaded)), "export.json"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(s3_storage.S3FileStorage, "save", _refuse)
        run_import(row.pk)
    row.refresh_from_db()
    assert not row.is_finished
    assert not Conversation.objects.filter(owner=eve).exists()
    ConversationImport.objects.update(state="queued", seen_at=None)
    run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.imported) == ("completed", 1)


def _refuse(*_: Any, **__: Any) -> str:
    raise s3_storage.FilesUnavailable("SlowDown")


def test_a_message_that_is_sent_twice_stores_its_file_once(
    ada: Any, gate: Gate, bucket: Bucket
):
    first, again = post(ada), post(ada)
    assert first["Location"] == again["Location"]
    assert Turn.objects.count() == Attachment.objects.count() == 1
    assert list(bucket.files().values()) == [files.PNG]


def test_of_two_at_once_one_file_stays(
    ada: Any, gate: Gate, bucket: Bucket, beside: Callable[..., Future[Any]]
):
    gate.shut("PUT")
    posting = beside(post, ada)
    gate.await_request()
    gate.shut("none")  # only what came before waits
    first = post(ada)
    gate.open()
    assert posting.result()["Location"] == first["Location"]
    assert Turn.objects.count() == Attachment.objects.count() == 1
    list(delete_noted())
    assert len(bucket.files()) == 1
    assert IdempotencyKey.objects.count() == 1


def test_a_message_that_is_refused_after_its_upload_leaves_no_file(
    ada: Any, gate: Gate, bucket: Bucket, settings: Any, beside: Callable[..., Any]
):
    """Another upload has used up the quota meanwhile."""
    settings.UPLOAD_QUOTA = len(files.PNG)
    gate.shut("PUT")
    posting = beside(post, ada)
    gate.await_request()
    gate.shut("none")  # only what came before waits
    conversation = Conversation.objects.create(owner=ada)
    sent = validate_files(ada.pk, [SimpleUploadedFile("b.png", files.PNG)])
    save_attachments(conversation, sent)
    gate.open()
    assert posting.result().status_code != 302
    assert not Turn.objects.exists()
    list(delete_noted())
    assert len(bucket.files()) == Attachment.objects.count() == 1


def test_an_outage_opens_no_turn(ada: Any, gate: Gate, settings: Any):
    settings.STORAGES = s3.storages(f"http://127.0.0.1:{free_port()}", "files")
    assert post(ada).status_code == 503
    assert not Turn.objects.exists()
    assert not Conversation.objects.exists()
    assert not IdempotencyKey.objects.exists()
