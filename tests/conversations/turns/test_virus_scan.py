"""Files pass a scanner first, where one is named; without its word none is stored."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from conversations.models import Attachment, Conversation, Item, Turn
from tests.conversations.scene import a_model, a_user, signed_in
from tests.conversations.transfer.import_scene import imported

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host"),
]

VIRUS = b"virus-of-this-test"


class Clamd:
    """Answers INSTREAM as clamd does."""

    def __init__(self) -> None:
        self.scanned: list[bytes] = []
        self.reply = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                assert stream.read(10) == b"zINSTREAM\0"
                data = b""
                while size := struct.unpack("!I", stream.read(4))[0]:
                    data += stream.read(size)
                self.scanned.append(data)
                found = b"stream: Test.Virus FOUND\0"
                verdict = found if VIRUS in data else b"stream: OK\0"
                connection.sendall(self.reply or verdict)


@pytest.fixture
def clamd(settings: Any, tmp_path: Any) -> Iterator[Clamd]:
    clamd = Clamd()
    settings.CLAMD_ADDRESS = clamd.address
    settings.MEDIA_ROOT = tmp_path
    yield clamd
    clamd.close()


@pytest.fixture
def web(clamd: Clamd) -> Client:
    a_model(is_default=True)
    return signed_in(a_user())


def send(client: Client, name: str, data: bytes) -> Any:
    row = Conversation.objects.create(owner_id=client.session["_auth_user_id"])
    path = f"/api/conversations/{row.pk}/attachments/"
    return client.post(path, {"file": SimpleUploadedFile(name, data)})


def test_a_clean_file_is_stored_after_all_of_it_was_scanned(web: Client, clamd: Clamd):
    text = b"word " * 40_000  # more than one piece
    assert send(web, "a.txt", text).status_code == 201
    assert clamd.scanned == [text]


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (b"", 400, "infected_file"),
        (b"INSTREAM size limit exceeded. ERROR\0", 503, "scanner_unavailable"),
        (b"stream: OKAY\0", 503, "scanner_unavailable"),
        (b"\0", 503, "scanner_unavailable"),
    ],
)
def test_no_other_file_is_stored(
    web: Client, clamd: Clamd, reply: bytes, status: int, code: str
):
    clamd.reply = reply
    refused = send(web, "a.txt", VIRUS)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert not Attachment.objects.exists()


def test_none_is_stored_while_the_scanner_is_away(web: Client, clamd: Clamd, settings):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        settings.CLAMD_ADDRESS = f"127.0.0.1:{unused.getsockname()[1]}"
    refused = send(web, "a.txt", b"harmless")
    assert refused.json()["error"]["code"] == "scanner_unavailable"
    assert not Attachment.objects.exists()


def test_a_page_says_so_and_keeps_the_draft(web: Client):
    sent = SimpleUploadedFile("a.txt", VIRUS)
    page = web.post("/", {"text": "My words", "key": "k", "file": [sent]})
    assert page.status_code == 400
    html = page.content.decode()
    assert "The virus scanner refuses this file." in html
    assert "My words" in html
    assert not Turn.objects.exists()


def test_files_inside_items_are_scanned_decoded(web: Client, clamd: Clamd):
    row = Conversation.objects.create(owner_id=web.session["_auth_user_id"])
    url = "data:text/plain;base64," + base64.b64encode(VIRUS).decode()
    part = {"type": "input_file", "filename": "a.txt", "file_data": url}
    message = {"type": "message", "role": "user", "content": [part]}
    path = f"/api/conversations/{row.pk}/turns/"
    refused = web.post(path, {"input": [message]}, "application/json")
    assert refused.json()["error"]["code"] == "infected_file"
    assert clamd.scanned == [VIRUS]
    assert not Turn.objects.exists()


def document(*data: bytes) -> str:
    """An export with each of these as a file, and as one inside a message."""
    encoded = [base64.b64encode(each).decode() for each in data]
    parts = [
        {"type": "input_file", "file_data": f"data:text/plain;base64,{each}"}
        for each in encoded
    ]
    items = [
        {
            "origin": "input",
            "payload": {"type": "message", "role": "user", "content": [part]},
        }
        for part in parts
    ]
    files = [
        {"id": f"file_{number}", "name": "a.txt", "data": each}
        for number, each in enumerate(encoded)
    ]
    value = {"format": "parley.conversation.v1", "id": "h", "attachments": files}
    return json.dumps({**value, "turns": [{"items": items}]})


def test_files_of_an_import_are_scanned_too(web: Client, clamd: Clamd):
    owner = get_user_model().objects.get()
    row = imported(owner, document(b"fine", VIRUS))
    assert row.imported == 1, row.reasons
    assert "2 files that the virus scanner refuses" in row.reasons[0]["reason"]
    assert Attachment.objects.count() == 1
    assert Item.objects.count() == 1
    assert len(clamd.scanned) == 4


def test_nothing_is_imported_where_the_scanner_is_silent(web: Client, clamd: Clamd):
    clamd.reply = b"stream: INSTREAM size limit exceeded. ERROR\0"
    row = imported(get_user_model().objects.get(), document(b"fine"))
    assert (row.imported, row.skipped) == (0, 1)
    assert "does not answer" in row.reasons[0]["reason"]
    assert not Conversation.objects.exists()


def test_files_inside_messages_of_an_import_count_for_the_quota(
    web: Client, settings: Any
):
    settings.CLAMD_ADDRESS, settings.UPLOAD_QUOTA = "", 1500
    owner = get_user_model().objects.get()
    assert imported(owner, document(b"x" * 300)).imported == 1
    assert Turn.objects.get().inline_bytes > 400
    row = imported(owner, document(b"y" * 600).replace('"id": "h"', '"id": "i"'))
    assert "quota" in row.reasons[0]["reason"]


def test_a_text_that_uploads_refuse_for_its_size_is_not_imported(
    web: Client, settings: Any
):
    settings.CLAMD_ADDRESS, settings.MAX_INPUT_SIZE = "", 1000
    row = imported(get_user_model().objects.get(), document(b"x" * 1001))
    assert "1 file that cannot be read" in row.reasons[0]["reason"]
    assert not Attachment.objects.exists()
