from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from conversations.models import Backup
from project.backups.manifest import BadBackup, read_manifest, refuse_unknown
from tests.conftest import StartServer
from tests.serving import ServerProcess


def made_in(folder: Path) -> Path:
    (made,) = folder.iterdir()
    return made


def test_a_backup_of_a_running_server_starts_as_a_server(
    start_server: StartServer, tmp_path: Path
):
    server = start_server()
    media = server.data / "media" / "files"
    media.mkdir(parents=True)
    (media / "photo.png").write_bytes(b"picture")
    server.manage("backup", str(tmp_path / "backups"))
    made = made_in(tmp_path / "backups")
    assert made.stat().st_mode & 0o777 == 0o700
    assert (made / "media/files/photo.png").read_bytes() == b"picture"
    for name in ("encryption_keys", "secret_key"):
        assert (made / name).read_text() == (server.data / name).read_text()
    restored = ServerProcess(made).start()
    try:
        assert any("Sign in as admin" in line for line in restored.banner)
    finally:
        restored.kill()


def test_secrets_can_be_left_out(start_server: StartServer, tmp_path: Path):
    server = start_server()
    server.manage("backup", "--without-secrets", str(tmp_path / "backups"))
    made = made_in(tmp_path / "backups")
    names = sorted(path.name for path in made.iterdir())
    assert names == ["manifest.json", "parley.sqlite3"]
    with closing(sqlite3.connect(made / "parley.sqlite3")) as copy:
        (users,) = copy.execute("SELECT COUNT(*) FROM auth_user").fetchone()
    assert users == 1


@pytest.mark.django_db
def test_backups_within_one_second_have_folders_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    for _ in range(3):
        call_command("backup", tmp_path)
    name = f"parley-{now:%Y%m%d-%H%M%S}"
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [name, f"{name}-2", f"{name}-3"]
    assert sorted(Backup.objects.values_list("folder", flat=True)) == [
        str(tmp_path / folder) for folder in found
    ]


@pytest.mark.django_db
def test_a_backup_of_another_program_is_noted():
    call_command("backup", noted=True)
    assert Backup.objects.get().folder == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "Name a folder"),
        (["/tmp/x", "--noted"], "Name a folder"),
        (["/proc/none"], "The backup failed"),
    ],
)
def test_what_cannot_be_backed_up_is_not_noted(arguments: list[str], why: str):
    with pytest.raises(CommandError, match=why):
        call_command("backup", *arguments)
    assert not Backup.objects.exists()


@pytest.mark.django_db
def test_a_backup_notes_what_a_newer_version_has_migrated(tmp_path: Path):
    for app in ("conversations", "removed_app"):
        MigrationRecorder.Migration.objects.create(app=app, name="9999_of_tomorrow")
    call_command("backup", tmp_path)
    noted = read_manifest(made_in(tmp_path)).migrations
    assert {name for name in noted if "9999" in name} == {
        "conversations.9999_of_tomorrow"
    }
    with pytest.raises(BadBackup, match="which this version lacks"):
        refuse_unknown(noted)


@pytest.mark.django_db
def test_an_app_whose_migrations_are_a_module_has_none(settings: Any, tmp_path: Path):
    settings.MIGRATION_MODULES = {"sessions": "tests.serving"}
    call_command("backup", tmp_path)
    assert (made_in(tmp_path) / "manifest.json").exists()


@pytest.mark.django_db
def test_a_folder_among_the_uploaded_files_is_refused(settings: Any, tmp_path: Path):
    settings.MEDIA_ROOT = tmp_path
    with pytest.raises(CommandError, match="uploaded files"):
        call_command("backup", tmp_path / "backups")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db
def test_files_that_are_deleted_meanwhile_are_left_out(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    settings.MEDIA_ROOT = tmp_path / "media"
    settings.MEDIA_ROOT.mkdir()
    for name in ("erased", "there"):
        (settings.MEDIA_ROOT / name).write_text(name)
    former = settings.MEDIA_ROOT / "replaced-20261130-x"  # of a restore, not uploaded
    former.mkdir()
    copy = shutil.copy2

    def copy_late(source: str, target: str) -> None:
        (settings.MEDIA_ROOT / "erased").unlink(missing_ok=True)
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", copy_late)
    call_command("backup", tmp_path / "backups", "--without-secrets")
    copied = made_in(tmp_path / "backups") / "media"
    assert [path.name for path in copied.iterdir()] == ["there"]


@pytest.mark.django_db
def test_a_backup_that_fails_leaves_nothing(settings: Any, tmp_path: Path):
    settings.MEDIA_ROOT = tmp_path / "media"
    settings.MEDIA_ROOT.mkdir()
    os.mkfifo(settings.MEDIA_ROOT / "pipe")  # which nothing can copy
    with pytest.raises(CommandError, match=r"The backup failed: .*pipe"):
        call_command("backup", tmp_path / "backups")
    assert list((tmp_path / "backups").iterdir()) == []
