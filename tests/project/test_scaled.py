"""What `manage.py serve` and `manage.py worker` say to half a setting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from project.environment.scaled import database
from project.startup.preparation import _check_redis
from tests.scaled import POSTGRES as SERVER
from tests.scaled import REDIS, Database, WorkerProcess, need_servers
from tests.serving import BASE, ServerProcess, free_port, manage

POSTGRES = "postgres://nobody:planted-secret@127.0.0.1:{}/none"
HALF = [
    ("serve", {"REDIS_URL": "redis://localhost"}, "REDIS_URL: Redis goes with Postgr"),
    ("serve", {"DATABASE_URL": POSTGRES}, "REDIS_URL: PostgreSQL goes with Redis; set"),
    ("worker", {}, "REDIS_URL: workers need PostgreSQL and Redis; set REDIS_URL and"),
    (
        "worker",
        {"DATABASE_URL": POSTGRES, "REDIS_URL": "redis://localhost"},
        "DATABASE_URL: cannot reach PostgreSQL there; start it, or mend the address.",
    ),
]


@pytest.mark.parametrize(("command", "half", "line"), HALF)
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


def test_whichever_process_makes_the_admin_tells_the_password(tmp_path: Path):
    need_servers()
    database = Database()
    there = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
    worker = WorkerProcess(tmp_path / "data", {**there, "PARLEY_ADMIN_PASSWORD": ""})
    try:
        told = [worker.start().banner, worker.restart().banner]
    finally:
        worker.stop()
        database.drop()
    assert told[0][0].startswith("Sign in as admin with the password ")
    assert [len(banner) for banner in told] == [2, 1]


def test_a_redis_that_refuses_us_stops_the_start_with_one_line(tmp_path: Path):
    need_servers()
    database, nowhere = Database(), REDIS.rpartition("/")[0] + "/999999"
    there = {"DATABASE_URL": database.url, "REDIS_URL": nowhere}
    try:
        told = ServerProcess(tmp_path / "data", there).refused()
    finally:
        database.drop()
    assert told.startswith("REDIS_URL: Redis refuses us there; mend the password, or")
    assert told.count("\n") == 1


def test_a_redis_that_is_away_is_told_of_and_waited_for(settings, caplog):
    settings.REDIS_URL = f"redis://:planted-secret@127.0.0.1:{free_port()}/0"
    _check_redis()
    assert [record.getMessage()[:34] for record in caplog.records] == [
        "REDIS_URL: cannot reach Redis ther"
    ]
    assert "planted-secret" not in caplog.text


def test_postgresql_ends_what_a_process_that_stands_still_has_locked(settings):
    need_servers()
    of_ours = database(SERVER)
    with psycopg.connect(SERVER, **of_ours["OPTIONS"]) as connection:
        asked = "SELECT setting FROM pg_settings WHERE name = %s"
        name = "idle_in_transaction_session_timeout"  # in milliseconds
        [(limit,)] = connection.execute(asked, [name]).fetchall()
    assert 0 < int(limit) < 1000 * settings.TURN_LEASE


def test_a_migration_has_all_the_time_that_it_takes_whoever_runs_it(tmp_path: Path):
    need_servers()
    empty = Database()
    there = {"DATABASE_URL": empty.url, "REDIS_URL": REDIS}
    try:
        server = ServerProcess(tmp_path / "data", there)
        assert server.manage("shell", "--no-imports", "-c", MIGRATED) == "5s\n0\n"
    finally:
        empty.drop()


MIGRATED = """
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import pre_migrate
def tell(**told):
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        print(cursor.fetchone()[0])
tell()
pre_migrate.connect(tell, sender=apps.get_app_config("contenttypes"))
call_command("migrate", "contenttypes", verbosity=0)
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


def test_commands_say_whether_tables_or_the_database_are_missing(tmp_path: Path):
    need_servers()
    database = Database()
    try:
        servers = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
        alone = ServerProcess(tmp_path / "alone")
        scaled = ServerProcess(tmp_path / "data", servers)
        for each in (alone, scaled):
            assert _refused(each) == NO_TABLES
        database.allow(False)
        told = _refused(scaled)
        assert told.startswith("CommandError: The database does not answer: ")
        assert told.endswith(" is not currently accepting connections.\n")
        assert _refused(scaled, "engine_status") == told
    finally:
        database.drop()


NO_TABLES = "CommandError: There are no tables in the database yet; `make run` first.\n"


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
