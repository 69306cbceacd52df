"""Office files that people send: their text is stored, shown, and sent to models."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from conversations.forms.folder_uploads import add_folder_file
from conversations.models import Folder
from conversations.turns.attachments import UploadRefused, validate_files
from tests.conversations.scene import a_user
from tests.llm.office.made import docx, package, paragraph, xlsx

pytestmark = pytest.mark.django_db


def validate(name: str, data: bytes) -> Any:
    return validate_files(a_user().pk, [SimpleUploadedFile(name, data)])[0]


def test_the_text_is_stored_in_place_of_the_file():
    stored = validate("Übersicht.docx", docx(paragraph("Grüße")))
    assert (stored.name, stored.content_type) == ("Übersicht.docx.txt", "text/plain")
    stored.file.seek(0)
    assert stored.file.read().decode() == "Grüße\n"
    assert stored.size == len("Grüße\n".encode())


def test_a_long_text_is_cut_at_the_limit_of_text_files(settings):
    settings.MAX_INPUT_SIZE = 1_000
    stored = validate("a.xlsx", xlsx("<row><c><v>1</v></c></row>" * 1_000))
    stored.file.seek(0)
    assert b"only its beginning stands here" in stored.file.read()


def test_a_folder_gives_models_the_text():
    folder = Folder.objects.create(owner=a_user(), name="Work")
    sent = SimpleUploadedFile("a.docx", docx(paragraph("Hello")))
    row = add_folder_file(folder, sent)
    assert (row.name, row.text) == ("a.docx.txt", "Hello\n")


@pytest.mark.parametrize("start", ["%PDF-1.7", "GIF89a", "RIFF....WEBP"])
def test_a_text_that_begins_as_another_kind_of_file_is_a_text(start: str):
    data = docx(paragraph(f"{start} is how such a file begins"))
    stored = validate("a.docx", data)
    assert (stored.name, stored.content_type) == ("a.docx.txt", "text/plain")
    folder = Folder.objects.create(owner=a_user("grace"), name="Work")
    row = add_folder_file(folder, SimpleUploadedFile("a.docx", data))
    assert (row.content_type, row.file.name) == ("text/plain", "")
    assert row.text.startswith(start)


@pytest.mark.parametrize(
    ("data", "words", "status"),
    [
        (docx(paragraph("Hello"))[:-40], "is damaged", 415),
        (docx(paragraph("")), "contains no text", 415),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "has a password or an old format", 415),
        (package("a.xml", {"a.xml": "<a/>"}), "has a type that models", 415),
        (docx(" " * 50_000_001), "is too large when it is unpacked", 413),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(data, words, status):
    with pytest.raises(UploadRefused, match=f"“a.docx” {words}") as caught:
        validate("a.docx", data)
    assert caught.value.status == status
