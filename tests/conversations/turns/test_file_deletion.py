"""Files on a disk after the rows that named them: each is deleted in the end, and none
that another row names."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.files.base import ContentFile
from django.db import transaction
from django.db.models import FileField
from django.utils import timezone

from conversations.models import (
    Attachment,
    Conversation,
    ConversationImport,
    FileDeletion,
    Folder,
    FolderFile,
)
from conversations.turns.attachments import StoredRow, discard, store
from conversations.turns.file_deletion import delete_later, delete_noted
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Path) -> Path:
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


def files(media: Path) -> list[Path]:
    return [path for path in media.rglob("*") if path.is_file()]


def a_file(name: str = "a.txt") -> Attachment:
    """A row that is not saved, whose file is stored."""
    owner = a_user(f"owner-of-{name}")
    conversation = Conversation.objects.create(owner=owner)
    row = Attachment(conversation=conversation, name=name, size=1)
    row.file.save(name, ContentFile(b"x"), save=False)
    return row


def a_copy(row: Attachment) -> Attachment:
    return Attachment.objects.create(
        conversation=row.conversation, name="copy", size=1, file=row.file.name
    )


def obstruct(media: Path, name: str) -> None:
    """A file that the storage cannot delete: to the disk it is a full folder."""
    (media / name).mkdir(parents=True)
    (media / name / "inside").write_text("x")


def test_a_file_goes_with_its_row(media: Path):
    row = a_file()
    row.save()
    row.delete()
    assert files(media) == []
    assert not FileDeletion.objects.exists()


def test_a_rolled_back_deletion_leaves_the_file(media: Path):
    row = a_file()
    row.save()
    with transaction.atomic():
        row.delete()
        transaction.set_rollback(True)
    assert len(files(media)) == 1


def test_two_deletions_at_once_do_not_leave_it_to_each_other(media: Path):
    """Each transaction still sees the other's row, so both must note the file."""
    row = a_file()
    row.save()
    copied = a_copy(row)
    with transaction.atomic():
        copied.delete()
        assert FileDeletion.objects.filter(name=row.file.name).exists()
    assert len(files(media)) == 1
    row.delete()
    assert files(media) == []


def test_one_that_cannot_be_deleted_stops_no_other(
    media: Path, caplog: pytest.LogCaptureFixture
):
    obstruct(media, "attachments/full")
    row = a_file()
    with caplog.at_level(logging.WARNING):
        delete_later(["attachments/full", row.file.name])
    assert [each.name for each in FileDeletion.objects.all()] == ["attachments/full"]
    assert not (media / row.file.name).exists()
    assert "files that could not be deleted now: 1 (OSError)" in caplog.text
    later = a_file("b.txt")
    FileDeletion.objects.create(name=later.file.name)
    caplog.clear()
    list(delete_noted())
    assert not (media / later.file.name).exists()
    assert len(caplog.records) == 1
    (media / "attachments/full/inside").unlink()
    list(delete_noted())
    assert not FileDeletion.objects.exists()


def test_a_discarded_file_goes_unless_its_row_was_committed(media: Path):
    """A commit whose answer was lost has had effect."""
    lost, known = a_file("a.txt"), a_file("b.txt")
    known.save()
    discard([lost, known])
    assert files(media) == [media / known.file.name]


def test_what_cannot_be_discarded_is_noted(media: Path):
    obstruct(media, "attachments/full")
    discard([Attachment(file="attachments/full")])
    assert [each.name for each in FileDeletion.objects.all()] == ["attachments/full"]


def test_what_cannot_be_noted_is_named_in_the_log(
    media: Path, caplog: pytest.LogCaptureFixture
):
    row = a_file()
    with transaction.atomic():
        transaction.set_rollback(True)  # as after a statement that failed
        discard([row])
    assert f"the file {row.file.name} is left over" in caplog.text


def let_grace_end() -> None:
    FileDeletion.objects.update(due_at=timezone.now())


def test_a_file_whose_process_died_before_its_row_goes_later(media: Path):
    owner = a_user("ada")
    conversation = Conversation.objects.create(owner=owner)
    row = Attachment(conversation=conversation, name="a.txt", size=1)
    store(row, row.pk, ContentFile(b"x"))
    list(delete_noted())  # its row may still be committed
    assert len(files(media)) == 1
    let_grace_end()
    list(delete_noted())
    assert files(media) == []
    assert not FileDeletion.objects.exists()


def rows_of(owner: Any) -> list[StoredRow]:
    """A row of each model that names a stored file."""
    conversation = Conversation.objects.create(owner=owner)
    folder = Folder.objects.create(owner=owner, name="Plans")
    return [
        Attachment(conversation=conversation, name="a.png", size=1),
        FolderFile(folder=folder, name="a.png", content_type="image/png", size=1),
        ConversationImport(owner=owner, name="a.zip", size=1),
    ]


def test_a_file_that_a_row_names_stays(media: Path):
    rows = rows_of(a_user("ada"))
    for row in rows:
        store(row, f"{type(row).__name__}.bin", ContentFile(b"x"))
        row.save()
    let_grace_end()
    list(delete_noted())
    assert len(files(media)) == len(rows)
    assert not FileDeletion.objects.exists()


def test_files_of_a_batch_are_looked_up_together(
    media: Path, django_assert_max_num_queries: Any
):
    conversation = Conversation.objects.create(owner=a_user("ada"))
    for number in range(30):
        row = Attachment(conversation=conversation, name="a.png", size=1)
        store(row, f"{number}.png", ContentFile(b"x"))
        row.save()
    let_grace_end()
    with django_assert_max_num_queries(10):
        list(delete_noted())
    assert len(files(media)) == 30


def test_every_model_with_a_file_is_looked_at():
    """A row that is not looked for would lose its file."""
    with_files = {
        model
        for model in apps.get_models()
        for field in model._meta.fields
        if isinstance(field, FileField)
    }
    assert {type(row) for row in rows_of(a_user("ada"))} == with_files


def test_an_upload_goes_on_where_it_cannot_be_noted(
    media: Path, caplog: pytest.LogCaptureFixture
):
    row = rows_of(a_user("ada"))[0]
    with transaction.atomic():
        transaction.set_rollback(True)  # as after a statement that failed
        store(row, "a.png", ContentFile(b"x"))
    assert len(files(media)) == 1
    assert f"the upload {row.file.name} is not noted" in caplog.text
