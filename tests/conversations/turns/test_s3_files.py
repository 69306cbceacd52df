"""Files in a bucket: what people upload, read, export and delete, and what they learn
while the bucket is away. The bucket is moto's, over HTTP."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile

from conversations import engine
from conversations.engine.claim_store import claim
from conversations.engine.loading.turn_loader import load as load_turn
from conversations.engine.maintenance.erasure import erase_user
from conversations.forms.folder_uploads import add_folder_file
from conversations.models import (
    Attachment,
    Conversation,
    ConversationImport,
    FileDeletion,
    Folder,
    FolderFile,
)
from conversations.transfer.export import load, write_json
from conversations.transfer.imports import accept, run_import
from conversations.turns import s3_storage
from conversations.turns.attachments import save_attachments, validate_files
from conversations.turns.file_contents import read_content
from conversations.turns.file_deletion import delete_noted
from conversations.turns.file_storage import FilesUnavailable
from tests import s3
from tests.conversations import files
from tests.conversations.scene import a_model, a_user, program, signed_in
from tests.s3 import Bucket, S3Server
from tests.serving import free_port

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.server,
    pytest.mark.usefixtures("scripted_host"),
]
SECRET = s3.KEY["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with s3.running() as server:
        yield server


@pytest.fixture(autouse=True)
def bucket(
    s3_server: S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    monkeypatch.setattr(engine, "cancel", lambda *_: None)
    monkeypatch.setattr(s3_storage, "ATTEMPTS", 1)
    made = s3_server.make_bucket()
    settings.STORAGES = s3.storages(made.url, made.name)
    yield made
    made.close()


@pytest.fixture
def ada() -> Any:
    a_model(is_default=True)
    return a_user("ada")


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    return Conversation.objects.create(owner=ada)


def keep(conversation: Conversation, name: str, data: bytes) -> Attachment:
    sent = validate_files(conversation.owner_id, [SimpleUploadedFile(name, data)])
    (row,) = save_attachments(conversation, sent)
    return row


@contextmanager
def silent_host() -> Iterator[str]:
    """Takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def refusing_host(status: int, code: str) -> Iterator[tuple[str, list[str]]]:
    """Answers every request with the error, and notes its methods."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            seen.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            text = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>"
            body = b"" if self.command == "HEAD" else text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def trickling_host() -> Iterator[str]:
    """Answers each request with a byte now and then, and never reaches the end."""
    is_over = Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            with suppress(OSError):
                self.end_headers()
                while not is_over.wait(0.05):
                    self.wfile.write(b"x" if self.command == "GET" else b"")
            self.close_connection = True

        def trickle_headers(self) -> None:
            with suppress(OSError):
                while not is_over.wait(0.05):
                    self.wfile.write(b"H")

        do_GET = answer
        do_PUT = do_DELETE = trickle_headers

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def lose(settings: Any, url: str = "") -> None:
    """From now on the bucket is at a host that is dead, or at `url`."""
    settings.STORAGES = s3.storages(url or f"http://127.0.0.1:{free_port()}", "files")


# While the bucket works


def test_a_file_goes_to_the_bucket_and_comes_back(
    conversation: Conversation, bucket: Bucket
):
    row = keep(conversation, "photo.png", files.PNG)
    assert bucket.files() == {row.file.name: files.PNG}
    content = read_content(Attachment.objects.get())
    assert content is not None
    assert content.data == files.PNG
    with row.file.open() as file:  # and once more, of the row that was saved
        assert file.read() == files.PNG
    with row.file.open() as file:
        assert file.read(4) == files.PNG[:4]


def test_a_large_file_arrives_whole(conversation: Conversation, bucket: Bucket):
    """Larger than a part of an upload in parts, and than what is read into memory."""
    data = b"%PDF-1.7\n" + bytes(range(256)) * 40_000
    row = keep(conversation, "report.pdf", data)
    assert bucket.files()[row.file.name] == data
    content = read_content(Attachment.objects.get())
    assert content is not None
    assert content.data == data


def test_views_check_rights_and_send_the_bytes_themselves(
    conversation: Conversation, ada: Any
):
    row = keep(conversation, "photo.png", files.PNG)
    url = f"/api/attachments/{row.pk}/"
    answer = program(ada).get(url)
    assert answer.status_code == 200
    assert answer.content == files.PNG
    assert program(a_user("bo")).get(url).status_code == 404
    with pytest.raises(NotImplementedError):
        row.file.url  # noqa: B018


def test_a_model_reads_it(conversation: Conversation):
    row = keep(conversation, "notes.txt", b"buy milk")
    part = {"type": "input_file", "file_id": row.pk}
    message = {"type": "message", "role": "user", "content": [part]}
    turn = conversation.open_turn([message]).turn
    work = load_turn(claim(turn.pk))
    assert work.load_files is not None
    work.load_files()
    assert "buy milk" in str(work.task.prepare(()).items)


def test_a_file_of_a_folder_is_stored_and_deleted(ada: Any, bucket: Bucket):
    folder = Folder.objects.create(owner=ada, name="Work")
    sent = SimpleUploadedFile("a.pdf", files.PDF)
    row = add_folder_file(folder, sent)
    assert list(bucket.files().values()) == [files.PDF]
    row.delete()
    list(delete_noted())
    assert bucket.files() == {}


def test_an_erased_user_leaves_no_file(conversation: Conversation, bucket: Bucket):
    ada = conversation.owner
    keep(conversation, "photo.png", files.PNG)
    sent = SimpleUploadedFile("a.pdf", files.PDF)
    add_folder_file(Folder.objects.create(owner=ada, name="Work"), sent)
    accept(ada, ContentFile(b"[]", "export.json"))
    assert len(bucket.files()) == 3
    list(erase_user(ada, reason="she wants it"))
    list(delete_noted())
    assert bucket.files() == {}
    assert not FileDeletion.objects.due().exists()


def test_a_copied_conversation_retains_its_files(
    conversation: Conversation, bucket: Bucket
):
    row = keep(conversation, "photo.png", files.PNG)
    copy = Conversation.objects.create(owner=conversation.owner)
    Attachment.objects.create(
        conversation=copy, name="photo.png", size=1, file=row.file.name
    )
    row.delete()
    list(delete_noted())
    assert len(bucket.files()) == 1
    Attachment.objects.get().delete()
    list(delete_noted())
    assert bucket.files() == {}


def test_an_export_has_the_files_and_can_be_imported(
    conversation: Conversation, ada: Any, bucket: Bucket
):
    keep(conversation, "photo.png", files.PNG)
    loaded = load(Conversation.objects.all())
    assert loaded
    data = b"".join(write_json(loaded))
    row = accept(a_user("bo"), ContentFile(data, "export.json"))
    run_import(row.pk)
    row.refresh_from_db()
    assert (row.state, row.imported) == ("completed", 1)
    list(delete_noted())
    assert list(bucket.files().values()) == [files.PNG, files.PNG]


def test_imports_of_one_person_do_not_overwrite_each_other(ada: Any, bucket: Bucket):
    for data in (b"[1]", b"[2]"):
        accept(ada, ContentFile(data, "export.json"))
    assert sorted(bucket.files().values()) == [b"[1]", b"[2]"]


def test_a_prefix_keeps_to_itself(settings: Any, bucket: Bucket):
    settings.STORAGES = s3.storages(bucket.url, bucket.name, location="parley/chat")
    bucket.put("other/secret", b"x")
    default_storage.save("attachments/a", ContentFile(b"mine"))
    assert bucket.files()["parley/chat/attachments/a"] == b"mine"
    assert default_storage.listdir("") == (["attachments"], [])
    assert not default_storage.exists("other/secret")


@pytest.mark.parametrize("name", ["../other/secret", "..", ".", "/etc/passwd"])
def test_no_name_leads_out_of_the_folder(
    name: str, settings: Any, bucket: Bucket
) -> None:
    bucket.put("other/secret", b"of others")
    settings.STORAGES = s3.storages(bucket.url, bucket.name, location="parley/chat")
    for act in (default_storage.size, default_storage.delete, default_storage.exists):
        with pytest.raises(SuspiciousFileOperation):
            act(name)
    assert bucket.files() == {"other/secret": b"of others"}


def test_a_missing_file_is_missing_and_a_missing_bucket_an_outage(
    settings: Any, bucket: Bucket
):
    with pytest.raises(FileNotFoundError):
        default_storage.open("attachments/none")
    settings.STORAGES = s3.storages(bucket.url, "no-such-bucket")
    with pytest.raises(FilesUnavailable):
        default_storage.open("attachments/none")
    for ask in (default_storage.exists, default_storage.size, default_storage.delete):
        with pytest.raises(FilesUnavailable):
            ask("attachments/none")


def test_a_missing_file_is_no_outage(bucket: Bucket):
    assert not default_storage.exists("attachments/none")
    default_storage.delete("attachments/none")
    with pytest.raises(FileNotFoundError):
        default_storage.size("attachments/none")
    bucket.put("attachments/a", b"abc")
    assert default_storage.exists("attachments/a")
    assert default_storage.size("attachments/a") == 3


# While it does not


@pytest.fixture
def outage(
    request: pytest.FixtureRequest,
    settings: Any,
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Attachment]:
    """A bucket that has failed, and a file that was stored before."""
    row = keep(conversation, "photo.png", files.PNG)
    monkeypatch.setattr(s3_storage, "READ_TIMEOUT", 0.2)
    match getattr(request, "param", "dead"):
        case "dead":
            lose(settings)
            yield row
        case "silent":
            with silent_host() as url:
                lose(settings, url)
                yield row
        case "refusing":
            with refusing_host(403, "AccessDenied") as (url, _):
                lose(settings, url)
                yield row
        case "ill":
            with refusing_host(503, "SlowDown") as (url, _):
                lose(settings, url)
                yield row


@pytest.mark.parametrize("outage", ["dead", "silent", "refusing", "ill"], indirect=True)
def test_rest_answers_one_clear_error(
    outage: Attachment, ada: Any, caplog: pytest.LogCaptureFixture
):
    web = program(ada)
    sent = {"file": SimpleUploadedFile("a.png", files.PNG)}
    answers = [
        web.get(f"/api/attachments/{outage.pk}/"),
        web.post(f"/api/conversations/{outage.conversation_id}/attachments/", sent),
    ]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "files_unavailable"
        assert "nothing was lost" in answer.json()["error"]["message"]
        assert int(answer["Retry-After"]) > 0
        assert SECRET not in answer.content.decode() + caplog.text
    assert Attachment.objects.get() == outage  # no half upload, and none lost


def test_a_page_says_so_in_words(outage: Attachment, ada: Any):
    web = signed_in(ada)
    web.raise_request_exception = False
    data = {
        "text": "look",
        "key": "k-1",
        "file": SimpleUploadedFile("a.png", files.PNG),
    }
    url = f"/chat/{outage.conversation_id}/"
    answer = web.post(url, data, headers={"accept": "text/html"})
    assert answer.status_code == 503
    assert "Stored files cannot be reached" in answer.content.decode()
    assert outage.conversation.turns.count() == 0


def test_an_export_breaks_off_rather_than_lack_a_file(outage: Attachment):
    loaded = load(Conversation.objects.all())
    assert loaded
    with pytest.raises(FilesUnavailable):
        b"".join(write_json(loaded))


def test_an_upload_to_a_folder_and_an_import_are_refused(outage: Attachment, ada: Any):
    folder = Folder.objects.create(owner=ada, name="Work")
    with pytest.raises(FilesUnavailable):
        add_folder_file(folder, SimpleUploadedFile("a.pdf", files.PDF))
    with pytest.raises(FilesUnavailable):
        accept(ada, ContentFile(b"[]", "export.json"))
    assert not FolderFile.objects.exists()
    assert not ConversationImport.objects.exists()


def test_deletion_is_made_up_for_after_the_outage(
    outage: Attachment, settings: Any, bucket: Bucket
):
    outage.delete()  # the person is not bothered
    list(delete_noted())
    assert len(bucket.files()) == 1
    settings.STORAGES = s3.storages(bucket.url, bucket.name)
    list(delete_noted())
    assert bucket.files() == {}
    assert not FileDeletion.objects.due().exists()


def test_one_file_that_is_refused_stops_no_other(
    settings: Any, caplog: pytest.LogCaptureFixture
):
    """Its bucket may have a lock on it."""
    FileDeletion.objects.bulk_create(FileDeletion(name=f"f/{n}") for n in range(3))
    with refusing_host(403, "AccessDenied") as (url, seen):
        lose(settings, url)
        list(delete_noted())
    assert seen == ["DELETE"] * 3
    assert FileDeletion.objects.count() == 3
    assert "could not be deleted now: 3 (AccessDenied)" in caplog.text


def test_a_host_that_is_ill_is_sent_no_more_deletions(settings: Any):
    FileDeletion.objects.bulk_create(FileDeletion(name=f"f/{n}") for n in range(3))
    with refusing_host(503, "SlowDown") as (url, seen):
        lose(settings, url)
        list(delete_noted())
    assert seen == ["DELETE"]
    assert FileDeletion.objects.count() == 3


def test_an_import_waits_for_the_end_of_the_outage(
    ada: Any, settings: Any, bucket: Bucket
):
    row = accept(ada, ContentFile(json.dumps([{"a": 1}]).encode(), "export.json"))
    lose(settings)
    run_import(row.pk)
    row.refresh_from_db()
    assert not row.is_finished
    settings.STORAGES = s3.storages(bucket.url, bucket.name)
    ConversationImport.objects.update(state="queued", seen_at=None)
    run_import(row.pk)
    row.refresh_from_db()
    assert row.is_finished


def test_a_host_that_is_ill_is_left_alone_for_a_while(settings: Any):
    """Each thread would wait for it; a refusal comes at once and is no illness."""
    for status, code, tries in ((503, "SlowDown", 1), (403, "AccessDenied", 3)):
        with refusing_host(status, code) as (url, seen):
            lose(settings, url)
            for _ in range(3):
                with pytest.raises(FilesUnavailable):
                    default_storage.exists("attachments/a")
            assert len(seen) == tries


@pytest.mark.parametrize(
    "ask",
    [
        lambda name: default_storage.open(name),
        lambda name: default_storage.delete(name),
        lambda name: default_storage.save(name, ContentFile(b"x")),
    ],
    ids=["open", "delete", "save"],
)
def test_a_host_that_trickles_has_a_deadline(
    settings: Any, monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], Any]
):
    """Each byte begins the timeout anew."""
    monkeypatch.setattr(s3_storage, "REQUEST_DEADLINE", 0.5)
    monkeypatch.setattr(s3_storage, "TRANSFER_DEADLINE", 0.5)
    with trickling_host() as url:
        lose(settings, url)
        with pytest.raises(FilesUnavailable) as caught:
            ask("attachments/a")
    assert caught.value.reason == "TransferTooSlow"


def test_the_log_has_a_word_for_staff_and_no_secret(
    settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with caplog.at_level(logging.DEBUG), refusing_host(403, "AccessDenied") as (url, _):
        lose(settings, url)
        with pytest.raises(FilesUnavailable) as caught:
            default_storage.save("attachments/a", ContentFile(b"x"))
    assert caught.value.reason == "AccessDenied"
    own = [each.getMessage() for each in caplog.records if "botocore" not in each.name]
    assert SECRET not in " ".join(own) + repr(caught.value)
