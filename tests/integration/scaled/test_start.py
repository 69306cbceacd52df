"""Errors of `serve` and `worker` for an incomplete configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from project.environment.scaled import database
from project.startup.preparation import _check_redis
from tests.scaled import POSTGRES as SERVER
from tests.scaled import REDIS, Database, WorkerProcess, need_servers
from tests.serving import BASE, ServerProcess, SpawnedProcess, free_port, manage

pytestmark = pytest.mark.slow

POSTGRES = "postgres://nobody:planted-secret@127.0.0.1:{}/none"
HALF = [
    ("serve", {"REDIS_URL": "redis://localhost"}, "REDIS_URL: Redis needs Postgr"),
    ("serve", {"DATABASE_URL": POSTGRES}, "DATABASE_URL: cannot reach PostgreSQL; s"),
    (
        "serve",
        {"DATABASE_URL": POSTGRES, "GATEWAY_WORKERS": "2"},
        "GATEWAY_WORKERS: this is for SQLite; with PostgreSQL start `serve` several",
    ),
    ("worker", {}, "DATABASE_URL: workers need PostgreSQL; set DATABASE_URL=postgre"),
    (
        "worker",
        {"DATABASE_URL": POSTGRES, "REDIS_URL": "redis://localhost"},
        "DATABASE_URL: cannot reach PostgreSQL; start it, or correct the address.",
    ),
]


@pytest.mark.parametrize(("command", "half", "line"), HALF)
@pytest.mark.smoke
def test_half_a_setting_stops_the_start_with_one_line(
    tmp_path: Path, command: str, half: dict[str, str], line: str
):
    nobody = free_port()
    half = {name: value.format(nobody) for name, value in half.items()}
    done = subprocess.run(
        manage(command),
        cwd=BASE,
        env=ServerProcess(tmp_path / "data", half).environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
    assert "planted-secret" not in done.stderr


def test_the_process_that_creates_the_admin_prints_the_password(tmp_path: Path):
    need_servers()
    database = Database()
    there = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
    worker = WorkerProcess(tmp_path / "data", {**there, "PARLEY_ADMIN_PASSWORD": ""})
    try:
        banners = [worker.start().banner, worker.restart().banner]
    finally:
        worker.stop()
        database.drop()
    assert banners[0][0].startswith("Sign in as admin with the password ")
    assert [len(banner) for banner in banners] == [2, 1]


def test_a_redis_that_refuses_us_stops_the_start_with_one_line(tmp_path: Path):
    need_servers()
    database, nowhere = Database(), REDIS.rpartition("/")[0] + "/999999"
    there = {"DATABASE_URL": database.url, "REDIS_URL": nowhere}
    try:
        message = ServerProcess(tmp_path / "data", there).refused()
    finally:
        database.drop()
    assert message.startswith(
        "REDIS_URL: Redis refused the connection; correct the password or"
    )
    assert message.count("\n") == 1


def test_an_unreachable_redis_is_reported_and_awaited(settings, caplog):
    settings.REDIS_URL = f"redis://:planted-secret@127.0.0.1:{free_port()}/0"
    _check_redis()
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "REDIS_URL: cannot reach Redis"
    ]
    assert "planted-secret" not in caplog.text


def test_postgresql_ends_the_transactions_of_a_suspended_process(settings):
    need_servers()
    of_ours = database(SERVER)
    with psycopg.connect(SERVER, **of_ours["OPTIONS"]) as connection:
        query = "SELECT setting FROM pg_settings WHERE name = %s"
        name = "idle_in_transaction_session_timeout"  # in milliseconds
        [(limit,)] = connection.execute(query, [name]).fetchall()
    assert 0 < int(limit) < 1000 * settings.TURN_LEASE


def test_a_migration_has_no_time_limit_and_the_first_start_a_long_one(tmp_path: Path):
    need_servers()
    empty = Database()
    there = {"DATABASE_URL": empty.url, "REDIS_URL": REDIS}
    try:
        server = SpawnedProcess(tmp_path / "data", there)
        limits = server.manage("shell", "--no-imports", "-c", MIGRATED).split()
        assert limits == ["5s", "0", "5s", "1min"]
    finally:
        empty.drop()


MIGRATED = """
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import post_save, pre_migrate
from project.startup.first_start import first_start
def tell(**told):
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        print(cursor.fetchone()[0])
tell()
pre_migrate.connect(tell, sender=apps.get_app_config("contenttypes"))
call_command("migrate", verbosity=0)
tell()
post_save.connect(tell, sender=User)
connection.close()
first_start()
"""


def test_processes_that_start_at_once_make_the_tables_one_after_another(tmp_path: Path):
    need_servers()
    empty = Database()
    there = {"DATABASE_URL": empty.url, "REDIS_URL": REDIS}
    try:
        starting = [
            subprocess.Popen(
                manage(
                    "shell",
                    "-c",
                    "from project.startup.preparation import *; prepare()",
                ),
                cwd=BASE,
                env=ServerProcess(tmp_path / "data", there).environment,
            )
            for _ in range(3)
        ]
        assert [process.wait(timeout=120) for process in starting] == [0, 0, 0]
    finally:
        empty.drop()


def test_commands_report_missing_tables_or_a_missing_database(tmp_path: Path):
    need_servers()
    database = Database()
    try:
        servers = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
        alone = SpawnedProcess(tmp_path / "alone")
        scaled = SpawnedProcess(tmp_path / "data", servers)
        for each in (alone, scaled):
            assert _refused(each) == NO_TABLES
        database.allow(False)
        message = _refused(scaled)
        assert message.startswith("CommandError: The database does not respond: ")
        assert message.endswith(" is not currently accepting connections.\n")
        assert _refused(scaled, "engine_status") == message
    finally:
        database.drop()


NO_TABLES = (
    "CommandError: There are no tables in the database yet; start the server once with"
    " `make run`.\n"
)


def _refused(server: ServerProcess, *command: str) -> str:
    done = subprocess.run(
        manage(*(command or ("create_token", "admin"))),
        cwd=BASE,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr
