from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from project.backups.interrupted_restore import describe_unfinished, marking
from project.backups.reversible_moves import moving
from tests.integration.clients import Program
from tests.programs import need_program
from tests.scaled import REDIS, Database, WorkerProcess, migrated
from tests.serving import BASE, ServerProcess, manage

KEY = "sk-restored-0123456789abcdef"
WORD = "zanzibar"
REVEAL = """
from llm.models import ApiKey
print(ApiKey.objects.get(label="planted").secret.reveal())
"""
PLANT = f"""
from llm.db.encrypted_field import Secret
from llm.models import ApiKey, Provider
provider = Provider.objects.create(name="Workshop", kind="openai")
key = ApiKey(provider=provider, label="planted")
key.enter("{KEY}", provider.origin)
key.save()
"""


def run(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        manage(*arguments),
        cwd=BASE,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


async def fill(server: ServerProcess) -> str:
    """A conversation with an answer, a file and an encrypted key; returns its id."""
    program = Program(server)
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, f"{WORD} /long 3", wait=False)
    async with program.http() as http:
        while (await http.get(f"/api/turns/{turn}/")).json()["status"] != "completed":
            await http.get(f"/api/turns/{turn}/events/")  # ends with the turn
    run(server, "shell", "-c", PLANT).check_returncode()
    files = server.data / "media" / "files"
    files.mkdir(parents=True)
    (files / "photo.png").write_bytes(b"picture")
    return conversation


async def read(server: ServerProcess, conversation: str) -> tuple[object, object, str]:
    """All its turns, what a search finds, and the decrypted key."""
    async with Program(server).http() as http:
        turns = await http.get(f"/api/conversations/{conversation}/turns/")
        found = await http.get("/api/search/", params={"query": WORD})
    assert (turns.status_code, found.status_code) == (200, 200), found.text
    revealed = run(server, "shell", "-v", "0", "-c", REVEAL).stdout.strip()
    return turns.json()["results"], found.json()["results"], revealed


def back_up(server: ServerProcess, folder: Path, *options: str) -> Path:
    server.manage("backup", *options, str(folder))
    (made,) = folder.iterdir()
    return made


async def assert_same(
    before: tuple[object, object, str], server: ServerProcess, conversation: str
) -> None:
    after = await read(server, conversation)
    assert after == before
    assert WORD in json.dumps(after[1])
    assert after[2] == KEY
    photo = server.data / "media" / "files" / "photo.png"
    assert photo.read_bytes() == b"picture"
    assert "events verified" in server.manage("verify_audit")


@pytest.mark.slow
async def test_a_server_on_sqlite_is_the_same_elsewhere(
    start_server: Callable[[], ServerProcess], tmp_path: Path
):
    server = start_server()
    conversation = await fill(server)
    before = await read(server, conversation)
    made = back_up(server, tmp_path / "backups")
    server.kill()
    elsewhere = ServerProcess(tmp_path / "elsewhere")
    done = run(elsewhere, "restore", str(made))
    assert done.returncode == 0, done.stderr
    assert (elsewhere.data / "encryption_keys").stat().st_mode & 0o777 == 0o600
    elsewhere.start()
    try:
        await assert_same(before, elsewhere, conversation)
    finally:
        elsewhere.kill()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    need_program("pg_dump")
    with migrated(tmp_path_factory.mktemp("template")) as name:
        yield name


@pytest.fixture
def databases(template: str) -> Iterator[tuple[Database, Database]]:
    """One with tables, and an empty one."""
    full, empty = Database(template), Database()
    yield full, empty
    full.drop()
    empty.drop()


class Pair:
    """A web process and a worker over one database."""

    def __init__(self, data: Path, database: Database) -> None:
        there = {"DATABASE_URL": database.url, "REDIS_URL": REDIS, "DRAIN_GRACE": "1"}
        self.web = ServerProcess(data, there)
        self.worker = WorkerProcess(data, {**there, "PORT": str(self.web.port)})

    def start(self) -> ServerProcess:
        self.web.start()
        self.worker.start()
        return self.web

    def kill(self) -> None:
        for process in (self.worker, self.web):
            if process.process:
                process.kill()


@pytest.mark.slow
@pytest.mark.scaled
async def test_a_server_on_postgresql_is_the_same_in_another_database(
    databases: tuple[Database, Database], tmp_path: Path
):
    full, empty = databases
    here = Pair(tmp_path / "here", full)
    there = Pair(tmp_path / "there", empty)
    try:
        server = here.start()
        conversation = await fill(server)
        before = await read(server, conversation)
        made = back_up(server, tmp_path / "backups")
        here.kill()
        done = run(there.web, "restore", str(made))
        assert done.returncode == 0, done.stderr
        await assert_same(before, there.start(), conversation)
        refused = run(there.web, "restore", "--replace", str(made))
        assert "stop all web processes and workers" in refused.stderr
        there.kill()
        again = run(there.web, "restore", str(made))
        assert again.stderr.count("\n") == 1
        assert "there is a database already" in again.stderr
        with psycopg.connect(empty.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE leftover (id int)")
            connection.execute("DELETE FROM llm_apikey")
        replaced = run(there.web, "restore", "--replace", str(made))
        assert replaced.returncode == 0, replaced.stderr
        await assert_same(before, there.start(), conversation)
        with psycopg.connect(empty.url) as connection:
            (left,) = connection.execute(
                "SELECT count(*) FROM pg_tables WHERE tablename = 'leftover'"
            ).fetchone() or (None,)
        assert left == 0
    finally:
        here.kill()
        there.kill()


@pytest.mark.slow
@pytest.mark.scaled
def test_a_dump_that_fails_leaves_the_tables_that_were_there(
    databases: tuple[Database, Database], tmp_path: Path
):
    full, _ = databases
    here = Pair(tmp_path / "here", full).web
    here.manage("migrate")  # creates the keys, which a backup must find
    made = back_up(here, tmp_path / "backups")
    broken = made / "parley.dump"
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    reseal(here, made)
    done = run(here, "restore", "--replace", str(made))
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: Nothing was restored")
    here.manage("verify_audit")


SET_ASIDE = """
import os
from project.backups import postgresql
with postgresql.setting_tables_aside():
    os._exit(9)
"""


@pytest.mark.slow
@pytest.mark.scaled
def test_a_restore_that_is_killed_is_no_empty_server_on_postgresql(
    databases: tuple[Database, Database], tmp_path: Path
):
    full, _ = databases
    here = Pair(tmp_path / "here", full).web
    here.manage("migrate")  # creates the keys, which a backup must find
    made = back_up(here, tmp_path / "backups")
    assert run(here, "shell", "-c", SET_ASIDE).returncode == 9
    for command in (("migrate",), ("serve",), ("restore", str(made))):
        done = run(here, *command)
        assert done.returncode == 1
        assert "RENAME TO public" in done.stderr
    assert "restore was interrupted" in run(here, "doctor").stdout
    done = run(here, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    here.manage("verify_audit")
    assert "interrupted" not in run(here, "doctor").stdout


SEAL = """
import sys
from pathlib import Path
from django.conf import settings
from project.backups.manifest import describe
folder = Path({!r})
describe(folder).write(folder, settings.ENCRYPTION_KEYS)
"""


def reseal(server: ServerProcess, folder: Path) -> None:
    """As somebody who has the keys could."""
    run(server, "shell", "-c", SEAL.format(str(folder))).check_returncode()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, migrated_data: Path) -> Path:
    """A backup to be copied, and harmed."""
    folder = tmp_path_factory.mktemp("sound")
    shutil.copytree(migrated_data, folder / "data")
    (folder / "data" / "media").mkdir(exist_ok=True)
    (folder / "data" / "media" / "note.txt").write_text("note")
    return back_up(ServerProcess(folder / "data"), folder / "backups")


@pytest.fixture
def stopped(tmp_path: Path, migrated_data: Path) -> ServerProcess:
    """Not running, with tables and a file."""
    shutil.copytree(migrated_data, tmp_path / "data")
    (tmp_path / "data" / "media").mkdir(exist_ok=True)
    (tmp_path / "data" / "media" / "note.txt").write_text("note")
    return ServerProcess(tmp_path / "data")


def change_manifest(made: Path, **changes: object) -> None:
    path = made / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rename_in_manifest(made: Path, name: str) -> None:
    files = json.loads((made / "manifest.json").read_text())["files"]
    files[name] = files.pop("media/note.txt")
    change_manifest(made, files=files)


def link(made: Path) -> None:
    (made / "media" / "note.txt").unlink()
    (made / "media" / "note.txt").symlink_to("/etc/passwd")


def link_folder(made: Path) -> None:
    shutil.rmtree(made / "media")
    (made / "media").symlink_to("/etc")


def cut(made: Path) -> None:
    path = made / "parley.sqlite3"
    path.write_bytes(path.read_bytes()[:5000])


def flip(made: Path) -> None:
    path = made / "parley.sqlite3"
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)


def claim_much(made: Path) -> None:
    files = json.loads((made / "manifest.json").read_text())["files"]
    files["media/note.txt"]["size"] = 10**18
    with (made / "media" / "note.txt").open("r+b") as sparse:
        sparse.truncate(10**12)
    change_manifest(made, files=files)


HOSTILE: list[tuple[Callable[[Path], object], str]] = [
    (lambda made: rename_in_manifest(made, "media/../../x"), "is no path of a backup"),
    (lambda made: rename_in_manifest(made, "/etc/x"), "is no path of a backup"),
    (lambda made: rename_in_manifest(made, ".env"), "is no path of a backup"),
    (link, "is a link or a device"),
    (link_folder, "is a link or a device"),
    (lambda made: os.mkfifo(made / "media" / "pipe"), "is a link or a device"),
    (cut, "has another size"),
    (flip, "its checksum is another"),
    (claim_much, "has another size"),
    (lambda made: (made / "media" / "more").write_text("x"), "is not in its manifest"),
    (lambda made: (made / "parley.sqlite3").unlink(), "is missing"),
    (lambda made: (made / "manifest.json").unlink(), "is not a backup"),
    (lambda made: (made / "manifest.json").write_text("[" * 10**5), "is damaged"),
    (lambda made: change_manifest(made, format=2), "a newer version made it"),
    (lambda made: change_manifest(made, migrations=[]), "its manifest was altered"),
    (lambda made: change_manifest(made, database="postgresql"), "DATABASE_URL names"),
    (lambda made: change_manifest(made, files={}), "is not in its manifest"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("harm", "why"), HOSTILE)
def test_a_harmed_backup_changes_nothing(
    sound: Path,
    tmp_path: Path,
    harm: Callable[[Path], object],
    why: str,
):
    made = tmp_path / "made"
    shutil.copytree(sound, made)
    harm(made)
    elsewhere = ServerProcess(tmp_path / "elsewhere")
    done = run(elsewhere, "restore", str(made))
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: Not restored: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    left = {path.name for path in elsewhere.data.iterdir() if path.stat().st_size}
    assert left <= {"encryption_keys", "secret_key", "lock"}


@pytest.mark.slow
def test_a_backup_with_migrations_of_a_newer_version_is_refused(
    stopped: ServerProcess, tmp_path: Path
):
    made = back_up(stopped, tmp_path / "backups")
    content = json.loads((made / "manifest.json").read_text())
    change_manifest(made, migrations=[*content["migrations"], "llm.9999_of_tomorrow"])
    sign = SEAL.replace("describe(folder)", "read_manifest(folder)").replace(
        "import describe", "import read_manifest"
    )
    run(stopped, "shell", "-c", sign.format(str(made))).check_returncode()
    done = run(ServerProcess(tmp_path / "elsewhere"), "restore", str(made))
    assert "llm.9999_of_tomorrow, which this version lacks" in done.stderr


@pytest.mark.slow
def test_without_its_keys_a_backup_is_refused_and_with_them_restored(
    stopped: ServerProcess, tmp_path: Path
):
    made = back_up(stopped, tmp_path / "backups", "--without-secrets")
    elsewhere = ServerProcess(tmp_path / "elsewhere")
    done = run(elsewhere, "restore", str(made))
    assert "the encryption keys are not those of the backup" in done.stderr
    shutil.copy(stopped.data / "encryption_keys", elsewhere.data)
    assert run(elsewhere, "restore", str(made)).returncode == 0


@pytest.mark.slow
def test_what_is_there_is_refused_and_with_replace_set_aside(
    stopped: ServerProcess, tmp_path: Path
):
    made = back_up(stopped, tmp_path / "backups")
    (stopped.data / "media" / "later.txt").write_text("later")
    done = run(stopped, "restore", str(made))
    assert done.stderr.count("\n") == 1
    assert "there is a database already" in done.stderr
    done = run(stopped, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (stopped.data / "media").iterdir()] == ["note.txt"]
    (former,) = stopped.data.glob("replaced-*")
    assert (former / "media" / "later.txt").read_text() == "later"
    with closing(sqlite3.connect(former / "parley.sqlite3")) as database:
        assert database.execute("SELECT COUNT(*) FROM conversations_backup").fetchone()


KILLED = """
import os
from django.core.management import call_command
from project.management.commands import restore
restore._exchange_files = lambda *_: os._exit(9)
call_command("restore", {!r}, "--replace")
"""


@pytest.mark.slow
def test_a_restore_that_is_killed_is_refused_until_it_is_repeated(
    stopped: ServerProcess, tmp_path: Path
):
    made = back_up(stopped, tmp_path / "backups")
    assert run(stopped, "shell", "-c", KILLED.format(str(made))).returncode == 9
    for command in (("migrate",), ("serve",), ("restore", str(made))):
        done = run(stopped, *command)
        assert done.returncode == 1
        assert "a restore was interrupted" in done.stderr
    done = run(stopped, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    assert run(stopped, "migrate").returncode == 0


@pytest.mark.slow
def test_files_on_a_volume_are_exchanged_within_it(
    stopped: ServerProcess, tmp_path: Path, volume: Path
):
    """Its disk alone needs room for them."""
    made = back_up(stopped, tmp_path / "backups")
    shutil.rmtree(stopped.data / "media")
    (stopped.data / "media").symlink_to(volume)
    (volume / "later.txt").write_text("later")
    done = run(stopped, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    (former,) = volume.glob("replaced-*")
    assert (former / "media" / "later.txt").read_text() == "later"
    assert {path.name for path in volume.iterdir()} == {"note.txt", former.name}
    again = run(stopped, "restore", "--replace", str(made))
    assert again.returncode == 0, again.stderr
    assert former.exists()


@pytest.fixture
def volume() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.slow
def test_secrets_of_the_environment_are_not_put_into_the_data_folder(
    stopped: ServerProcess, tmp_path: Path
):
    made = back_up(stopped, tmp_path / "backups")
    there = {
        "SECRET_KEY": "s" * 50,
        "ENCRYPTION_KEYS": (stopped.data / "encryption_keys").read_text(),
    }
    elsewhere = ServerProcess(tmp_path / "elsewhere", there)
    done = run(elsewhere, "restore", str(made))
    assert done.returncode == 0, done.stderr
    names = {path.name for path in elsewhere.data.iterdir()}
    assert "parley.sqlite3" in names
    assert names.isdisjoint({"encryption_keys", "secret_key"})


def test_a_move_that_fails_brings_back_all_that_were_made(tmp_path: Path):
    former = tmp_path / "former"
    for name in ("new_a", "new_b", "a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(OSError, match="full"), moving() as moves:  # noqa: PT012
        for name in ("a", "b", "none"):
            moves.exchange(tmp_path / f"new_{name}", tmp_path / name, former)
        assert (tmp_path / "a").read_text() == "new_a"
        assert (former / "b").read_text() == "b"
        raise OSError("the disk is full")
    for name in ("new_a", "new_b", "a", "b"):
        assert (tmp_path / name).read_text() == name
    assert list(former.iterdir()) == []


def _restore_and_fail() -> None:
    with pytest.raises(OSError, match="full"), marking():
        raise OSError(errno.ENOSPC, "the disk is full")


@pytest.mark.django_db
def test_a_restore_that_fails_after_a_killed_one_leaves_its_mark(
    tmp_path: Path, settings: Any
):
    """Its own moves are undone, and what is there is mixed as before."""
    settings.DATA = tmp_path
    _restore_and_fail()
    assert [*tmp_path.iterdir()] == []
    with marking():  # what a killed process leaves
        (mark,) = tmp_path.iterdir()
    mark.touch()
    _restore_and_fail()
    assert "of two servers" in describe_unfinished()
    with marking():
        pass
    assert describe_unfinished() == ""


def test_a_folder_that_is_moved_in_part_is_not_in_the_way_of_the_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    former, media, new = (tmp_path / name for name in ("replaced", "media", "new"))
    for folder in (media, new):
        folder.mkdir()
        (folder / "photo.png").write_text(folder.name)
    os.mkfifo(new / "pipe")  # is not copied
    other_disk = OSError(errno.EXDEV, "another disk")
    monkeypatch.setattr(Path, "rename", Mock(side_effect=other_disk))
    with pytest.raises(shutil.Error, match="pipe"), moving() as moves:
        moves.exchange(new, media, former)
    assert [path.name for path in media.iterdir()] == ["photo.png"]
    assert (media / "photo.png").read_text() == "media"
    assert {path.name for path in new.iterdir()} == {"photo.png", "pipe"}


def test_a_folder_that_cannot_be_deleted_is_brought_back_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    media = tmp_path / "media"
    media.mkdir()
    for name in ("a", "b"):
        (media / name).write_text(name)
    other_disk = OSError(errno.EXDEV, "another disk")
    monkeypatch.setattr(Path, "rename", Mock(side_effect=other_disk))
    delete = shutil.rmtree

    def delete_one(path: Path) -> None:
        monkeypatch.setattr(shutil, "rmtree", delete)
        (path / "a").unlink()
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(shutil, "rmtree", delete_one)
    with pytest.raises(OSError, match="broken"), moving() as moves:
        moves.set_aside(media, tmp_path / "replaced")
    assert {path.read_text() for path in media.iterdir()} == {"a", "b"}


def test_a_running_server_is_not_replaced(
    start_server: Callable[[], ServerProcess], tmp_path: Path
):
    server = start_server()
    made = back_up(server, tmp_path / "backups")
    done = run(server, "restore", "--replace", str(made))
    assert done.returncode == 1
    assert "is in use by process" in done.stderr
    assert done.stderr.count("\n") == 1
