from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client
from cryptography.fernet import Fernet
from django.utils import timezone

from conversations.models import Backup, ProcessStatus
from llm.models import ApiKey, Provider
from project.backups.leftovers import delete_leftovers, protect_folder
from project.diagnosis.diagnosis import Diagnosis
from project.diagnosis.facts import BACKUP_LASTS
from project.diagnosis.findings import diagnose
from project.diagnosis.shared_servers import (
    examine_redis,
    judge_clock,
    judge_connections,
    judge_pg_dump,
)
from tests.programs import need_program
from tests.scaled import REDIS, Database, RedisProcess, need_servers
from tests.serving import BASE, ServerProcess, free_port, manage

SECRET = "planted-secret-0123456789"


def find(name: str) -> Diagnosis:
    return next(each for each in diagnose() if each.name == name)


def run(server: ServerProcess, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        manage("doctor", *options),
        cwd=BASE,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def states(server: ServerProcess) -> dict[str, str]:
    done = run(server, "--json")
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found = {each["name"]: each["state"] for each in json.loads(done.stdout)}
    assert done.returncode == int("error" in found.values())
    return found


@pytest.mark.server
def test_a_healthy_server_has_no_error(start_server: Callable[..., ServerProcess]):
    server = start_server()
    found = states(server)
    assert "error" not in found.values()
    assert found["worker"] == found["encryption keys"] == "ok"
    assert found["backup"] == found["mail"] == "warning"
    done = run(server)
    assert done.returncode == 0
    assert "None was made in the last 30 days." in done.stdout
    assert "Run manage.py backup each day." in done.stdout


@pytest.mark.server
def test_a_folder_without_tables_says_to_start(tmp_path: Path):
    found = states(ServerProcess(tmp_path / "data"))
    assert found["migrations"] == "error"
    assert "worker" not in found


@pytest.mark.server
def test_a_broken_database_file_is_found(tmp_path: Path):
    server = ServerProcess(tmp_path / "data")
    server.data.mkdir(mode=0o700)
    (server.data / "parley.sqlite3").write_bytes(b"no database" * 1000)
    assert states(server)["database"] == "error"


@pytest.mark.server
def test_it_works_while_postgresql_and_redis_are_down(tmp_path: Path):
    nobody = free_port()
    environment = {
        "DATABASE_URL": f"postgres://parley:{SECRET}@127.0.0.1:{nobody}/none",
        "REDIS_URL": f"redis://:{SECRET}@127.0.0.1:{nobody}/0",
    }
    found = states(ServerProcess(tmp_path / "data", environment))
    assert (found["database"], found["redis"]) == ("error", "error")
    assert "migrations" not in found


@pytest.mark.scaled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("redis", "exchange"),
    [(REDIS, "redis"), ("", "notifications")],
    ids=["redis", "postgresql alone"],
)
def test_a_scaled_server_without_a_worker_is_found(
    tmp_path: Path, redis: str, exchange: str
):
    need_servers()
    database = Database()
    environment = {"DATABASE_URL": database.url, "REDIS_URL": redis}
    server = ServerProcess(tmp_path / "data", environment)
    try:
        server.manage("migrate", "--skip-checks", "--verbosity=0")
        found = states(server)
        assert (found["database"], found[exchange]) == ("ok", "ok")
        assert len({"redis", "notifications"} & found.keys()) == 1
        assert (found["clock"], found["worker"]) == ("ok", "error")
        assert {"connections", "pg_dump"} <= found.keys()
    finally:
        database.drop()


@pytest.fixture
def redis(tmp_path: Path, settings: Any) -> Iterator[redis_client.Redis]:
    need_program("redis-server")
    process = RedisProcess(tmp_path).start()
    settings.REDIS_URL = process.url
    with redis_client.Redis.from_url(process.url) as client:
        yield client
    process.kill()


@pytest.mark.server
def test_a_redis_that_takes_writes_and_drops_nothing_is_fine(redis: Any):
    assert examine_redis().state == "ok"
    redis.config_set("maxmemory-policy", "allkeys-lru")  # without a limit of memory
    assert examine_redis().state == "ok"


def _fill(client: redis_client.Redis) -> None:
    client.config_set("maxmemory", 1)


def _demote(client: redis_client.Redis) -> None:
    client.replicaof("127.0.0.1", free_port())


def _forbid(client: redis_client.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "default", "-publish")


@pytest.mark.server
@pytest.mark.parametrize("act", [_fill, _demote, _forbid])
def test_a_redis_that_answers_and_refuses_writes_is_found(act: Any, redis: Any):
    act(redis)
    found = examine_redis()
    assert (found.name, found.state) == ("redis", "warning")
    assert found.text.startswith("Redis refuses writes")


@pytest.mark.server
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_drops_keys_is_found(policy: str, redis: Any):
    redis.config_set("maxmemory", "64mb")
    redis.config_set("maxmemory-policy", policy)
    found = examine_redis()
    assert (found.state, policy in found.text) == ("warning", True)


@pytest.mark.parametrize(
    ("used", "state"), [(3, "ok"), (80, "ok"), (81, "warning"), (97, "warning")]
)
def test_connections_suffice_for_one_more_process(used: int, state: str):
    assert judge_connections(97, used).state == state


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("pg_dump (PostgreSQL) 16.4 (Debian 16.4-1.pgdg120+1)", "ok", ""),
        ("pg_dump (PostgreSQL) 17beta1", "ok", ""),
        ("pg_dump (PostgreSQL) 15.8", "warning", "15.8 is older"),
        ("", "warning", "no pg_dump"),
    ],
)
def test_a_pg_dump_is_as_new_as_its_server(version: str, state: str, words: str):
    found = judge_pg_dump(version, 16)
    assert found.state == state
    assert words in found.text


@pytest.mark.server
def test_notifications_are_not_expected_of_a_postgresql_that_is_down(tmp_path: Path):
    address = f"postgres://parley:{SECRET}@127.0.0.1:{free_port()}/none"
    environment = {"DATABASE_URL": address, "REDIS_URL": ""}
    found = states(ServerProcess(tmp_path / "data", environment))
    assert found["database"] == "error"
    assert "notifications" not in found  # it would name a pooler that is not there


@pytest.mark.server
def test_keys_that_decrypt_nothing_are_found(tmp_path: Path, migrated_data: Path):
    shutil.copytree(migrated_data, tmp_path / "data")
    server = ServerProcess(tmp_path / "data", {"OPENAI_API_KEY": "sk-" + SECRET})
    server.start().stop()
    server.environment["ENCRYPTION_KEYS"] = Fernet.generate_key().decode()
    assert states(server)["encryption keys"] == "error"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "setting", "bad", "state"),
    [
        ("secret key", "SECRET_KEY", "a" * 50, "error"),
        ("debug", "DEBUG", True, "error"),
        ("https", "HOST", "0.0.0.0", "warning"),
    ],
)
def test_a_setting_is_judged(
    settings: Any, name: str, setting: str, bad: object, state: str
):
    assert find(name).state == "ok" or name == "secret key"
    setattr(settings, setting, bad)
    found = find(name)
    assert found.state == state
    assert found.advice


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("hosts", "is_behind_proxy", "state"),
    [
        (["localhost", "127.0.0.1", "[::1]"], True, "warning"),
        (["localhost", "127.0.0.1", "[::1]"], False, "ok"),
        (["localhost", "chat.example"], True, "ok"),
    ],
)
def test_a_proxy_whose_host_is_not_allowed_is_found(
    settings: Any, hosts: list[str], is_behind_proxy: bool, state: str
):
    settings.ALLOWED_HOSTS, settings.BEHIND_HTTPS = hosts, is_behind_proxy
    assert find("hosts").state == state


@pytest.mark.django_db
def test_a_secret_that_others_can_read_is_found(settings: Any, tmp_path: Path):
    settings.DATA = tmp_path
    tmp_path.chmod(0o700)
    (tmp_path / "secret_key").write_text(SECRET)
    (tmp_path / "secret_key").chmod(0o644)
    found = find("file modes")
    assert found.state == "error"
    assert str(tmp_path / "secret_key") in found.text
    (tmp_path / "secret_key").chmod(0o600)
    assert str(tmp_path) not in find("file modes").text
    tmp_path.chmod(0o755)
    assert str(tmp_path) in find("file modes").text


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["encryption_keys", "parley.sqlite3"])
def test_an_empty_volume_of_another_user_is_not_judged(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
):
    """As an emptyDir of Kubernetes is: 02777, of root, with secrets in variables."""
    settings.DATA = tmp_path
    tmp_path.chmod(0o2777)
    assert str(tmp_path) in find("file modes").text
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert str(tmp_path) not in find("file modes").text
    (tmp_path / name).touch(0o600)
    assert str(tmp_path) in find("file modes").text


Usage = namedtuple("Usage", "total used free")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("free", "state"), [(1000, "error"), (10**9, "warning"), (10**10, "ok")]
)
def test_free_room_is_judged(monkeypatch: pytest.MonkeyPatch, free: int, state: str):
    usage = Usage(2 * 10**10, 2 * 10**10 - free, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert find("disk").state == state


@pytest.mark.server
def test_a_low_limit_of_open_files_is_found(tmp_path: Path):
    server = ServerProcess(tmp_path / "data")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -n 512; exec "$@"', "-", *manage("doctor")],
        cwd=BASE,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "A process may open 512 files only" in done.stdout


@pytest.mark.parametrize(("seconds", "state"), [(-9, "warning"), (1, "ok")])
def test_clocks_that_differ_are_found(seconds: int, state: str):
    here = datetime(2026, 1, 1, tzinfo=UTC)
    assert judge_clock(here + timedelta(seconds=seconds), here).state == state


@pytest.mark.django_db
def test_a_process_that_was_not_heard_is_no_worker():
    now = timezone.now()
    process = ProcessStatus.objects.create(
        id="p1", runs_turns=True, started_at=now, heard_at=now
    )
    assert find("worker").state == "ok"
    process.heard_at = now - timedelta(minutes=5)
    process.save()
    assert find("worker").state == "error"


@pytest.mark.django_db
def test_an_old_backup_is_none():
    backup = Backup.objects.create()
    assert find("backup").state == "ok"
    backup.finished_at = timezone.now() - BACKUP_LASTS
    backup.save()
    assert find("backup").state == "warning"


@pytest.mark.django_db
def test_what_killed_backups_and_restores_left_is_named(settings: Any, tmp_path: Path):
    settings.DATA, settings.MEDIA_ROOT = tmp_path / "data", tmp_path / "data/media"
    folders = {
        name: tmp_path / name
        for name in ("data/restoring-1", "data/restoring-2", "b/parley-1.partial")
    }
    for folder in folders.values():
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    os.utime(folders["data/restoring-2"])  # it was begun just now
    Backup.objects.create(folder=str(tmp_path / "b/parley-0"))
    found = find("left over")
    assert found.state == "warning"
    assert str(folders["data/restoring-1"]) in found.text
    assert str(folders["b/parley-1.partial"]) in found.text
    assert "restoring-2" not in found.text
    with protect_folder(folders["b/parley-1.partial"]):
        assert "partial" not in find("left over").text
    assert delete_leftovers(tmp_path / "b", "parley-*.partial")
    assert not folders["b/parley-1.partial"].exists()


@pytest.mark.django_db
def test_keys_that_rest_or_were_refused_are_named():
    provider = Provider.objects.create(name="Workshop", kind="openai")
    for label in ("tired", "refused"):
        key = ApiKey(provider=provider, label=label)
        key.enter(SECRET, provider.origin)
        key.save()
    assert find("provider keys").state == "ok"
    now = timezone.now()
    ApiKey.objects.filter(label="tired").rest(now + timedelta(hours=1), "429", now)
    ApiKey.objects.filter(label="refused").disable("401", now)
    found = find("provider keys")
    assert found.state == "warning"
    assert "Workshop/tired (resting)" in found.text
    assert "Workshop/refused (disabled)" in found.text


@pytest.mark.django_db
def test_a_provider_whose_host_is_not_listed_is_found(settings: Any):
    Provider.objects.create(name="Workshop", kind="openai")
    assert find("outbound hosts").state == "ok"
    settings.OUTBOUND_HOSTS = ["api.example.org"]
    assert "api.openai.com" in find("outbound hosts").text


class RefusingMailServer(socketserver.StreamRequestHandler):
    """Knows no password."""

    def handle(self) -> None:
        self.wfile.write(b"220 mail\r\n")
        for line in self.rfile:
            word = line.split()[0].upper()
            answers = {
                b"EHLO": b"250-mail\r\n250 AUTH PLAIN\r\n",
                b"AUTH": f"535 {SECRET}\r\n".encode(),
                b"QUIT": b"221 bye\r\n",
            }
            self.wfile.write(answers.get(word, b"250 fine\r\n"))


@pytest.fixture
def mail_port() -> Iterator[int]:
    with socketserver.TCPServer(("127.0.0.1", 0), RefusingMailServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.django_db
@pytest.mark.parametrize("password", ["", SECRET])
def test_the_mail_server_is_tried(settings: Any, mail_port: int, password: str):
    settings.SENDS_MAIL = True
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mail_port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.EMAIL_HOST_USER = "parley" if password else ""
    settings.EMAIL_HOST_PASSWORD = password
    found = find("mail")
    assert found.state == ("error" if password else "ok")
    assert ("refuses MAIL_USER" in found.text) == bool(password)
    assert SECRET not in found.text
    settings.EMAIL_PORT = free_port()
    assert "cannot be reached" in find("mail").text


@pytest.mark.django_db
def test_a_system_without_sandbox_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tools.python.sandbox.is_available", lambda: False)
    assert find("sandbox").state == "warning"


@pytest.mark.django_db
def test_a_sandbox_that_is_demanded_and_missing_stops_calls(
    monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.ISOLATED_REQUIRE_SANDBOX = True
    monkeypatch.setattr("tools.python.sandbox.is_available", lambda: False)
    assert find("sandbox").text.startswith("Calls of isolated tools fail")
