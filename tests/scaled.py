"""Web and worker processes over a PostgreSQL database of their own, and Redis or not.

`Cluster` is what the `cluster` fixture gives. Beside the web processes that tests kill
there is one that stays: it serves the demo provider to the workers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import redis

from tests.programs import need_program
from tests.serving import PATIENCE, ServerProcess, free_port

POSTGRES = os.environ.get("TEST_POSTGRES_URL", "postgres://127.0.0.1:5432/postgres")

_redis = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/0")
_worker = os.environ.get("PYTEST_XDIST_WORKER", "gw9").removeprefix("gw")
#: Each process of a test run has a Redis database of its own.
REDIS = f"{_redis.rpartition('/')[0]}/{1 + int(_worker) % 15}"
OWNER = "postgres"  # of a PostgreSQL that root starts


def absent() -> str:
    """What of PostgreSQL and Redis is not there; "" where both are."""
    try:
        psycopg.connect(POSTGRES, connect_timeout=3).close()
    except psycopg.OperationalError as exc:
        return f"no PostgreSQL for the tests: {exc}"
    try:
        with redis.Redis.from_url(REDIS, socket_connect_timeout=3) as client:
            client.ping()
    except redis.RedisError as exc:
        return f"no Redis for the tests: {exc}"
    return ""


def need_servers() -> None:
    """Skips without them; fails under CI=true."""
    if reason := absent():
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)


class Database:
    """A database for one test, removed by `drop`; its tables are those of
    `template`."""

    def __init__(self, template: str = "template1", server: str = POSTGRES) -> None:
        self._server = server
        self.name = f"parley_test_{uuid.uuid4().hex[:12]}"
        self.url = server.rpartition("/")[0] + f"/{self.name}"
        self._execute(f'CREATE DATABASE "{self.name}" TEMPLATE "{template}"')

    def drop(self) -> None:
        self._execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')

    def end_connections(self) -> None:
        """As a restart of PostgreSQL does."""
        self._execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{self.name}'"
        )

    def allow(self, connections: bool) -> None:
        """Or refuse them, as PostgreSQL does while it starts."""
        word = "true" if connections else "false"
        self._execute(f'ALTER DATABASE "{self.name}" ALLOW_CONNECTIONS {word}')

    def _execute(self, sql: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql)


class PostgresProcess:
    """A PostgreSQL of the test's own, to be crashed and started at will."""

    def __init__(self) -> None:
        self._bin = Path(need_program("initdb")).parent
        self._folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
        self.port = free_port()
        self.url = f"postgres://parley@127.0.0.1:{self.port}/postgres"
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self._folder, OWNER)
        self._run("initdb", "-U", "parley", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> PostgresProcess:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1"
        options += " -c unix_socket_directories='' -c max_connections=200"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-s", "-w", "-l", log, "-o", options, "start")
        return self

    def crash(self) -> None:
        """What was committed is there when it starts again."""
        self._run("pg_ctl", "-s", "-m", "immediate", "stop")

    def end(self) -> None:
        with suppress(subprocess.CalledProcessError):
            self.crash()
        shutil.rmtree(self._folder)

    def _run(self, name: str, *arguments: str) -> None:
        data = str(self._folder / "data")
        command = [str(self._bin / name), "-D", data, *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", OWNER, "--", *command]
        subprocess.run(
            command, cwd="/", check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL
        )


class RedisProcess:
    """A Redis for one test, which stores nothing on disk."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisProcess:
        arguments = ["--port", str(self.port), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", *arguments, "--dir", str(self._folder)],
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout
        with self._process.stdout as output:
            if any(b"Ready to accept connections" in line for line in output):
                return self
        raise AssertionError("Redis did not start")

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


class WorkerProcess(ServerProcess):
    command = "worker"
    last_line = "The worker is running"


class Cluster:
    """`webs[0]` is not to be killed: it is the provider of all. `redis`: None for
    PostgreSQL alone."""

    def __init__(
        self,
        folder: Path,
        template: str,
        *,
        webs: int,
        workers: int,
        redis: str | None = REDIS,
        postgres: str = POSTGRES,
        **environment: str,
    ) -> None:
        self.database = Database(template, postgres)
        self._environment = {
            "DATABASE_URL": self.database.url,
            "REDIS_URL": redis or "",
            "DRAIN_GRACE": "1",
            **environment,
        }
        data = folder / "data"
        self.webs = [ServerProcess(data, self._environment) for _ in range(webs)]
        there = {**self._environment, "PORT": str(self.webs[0].port)}
        self.workers = [WorkerProcess(data, there) for _ in range(workers)]

    def start(self) -> Cluster:
        for process in [*self.webs, *self.workers]:
            process.start()
        return self

    def end(self) -> None:
        for process in [*self.workers, *self.webs]:
            if process.process:
                process.kill()
        self.database.drop()

    def log(self) -> str:
        return self.webs[0].log()


@contextmanager
def migrated(folder: Path, postgres: str = POSTGRES) -> Iterator[str]:
    """The name of a database with tables, to be copied: making them takes a while."""
    need_servers()
    database = Database(server=postgres)
    try:
        environment = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
        server = ServerProcess(folder / "data", environment)
        server.manage("migrate", "--skip-checks", "--verbosity=0")
        yield database.name
    finally:
        database.drop()
