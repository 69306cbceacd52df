"""Web and worker processes over a PostgreSQL database of their own, and Redis.

`Cluster` is what the `cluster` fixture gives. Beside the web processes that tests kill
there is one that stays: there the demo provider is, for workers to ask.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.serving import PATIENCE, ServerProcess, free_port

POSTGRES = os.environ.get("TEST_POSTGRES_URL", "postgres://127.0.0.1:5432/postgres")
REDIS = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/0")


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
    """One of the test's own, gone with `drop`; its tables are those of `template`."""

    def __init__(self, template: str = "template1") -> None:
        self.name = f"parley_test_{uuid.uuid4().hex[:12]}"
        self.url = POSTGRES.rpartition("/")[0] + f"/{self.name}"
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

    @staticmethod
    def _execute(sql: str) -> None:
        with psycopg.connect(POSTGRES, autocommit=True) as connection:
            connection.execute(sql)  # type: ignore[arg-type]


class RedisProcess:
    """A Redis of the test's own, that keeps nothing when it is killed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> RedisProcess:
        arguments = ["--port", str(self.port), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", *arguments, "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + PATIENCE
        with redis.Redis(port=self.port) as client:
            while time.monotonic() < until:
                try:
                    client.ping()
                    return self
                except redis.ConnectionError:
                    time.sleep(0.05)
        raise AssertionError("Redis did not start")

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


class WorkerProcess(ServerProcess):
    command = "worker"
    last_line = "Parley works"


class Cluster:
    """`webs[0]` is not to be killed: it is the provider of all."""

    def __init__(
        self,
        folder: Path,
        template: str,
        *,
        webs: int,
        workers: int,
        redis: str = "",
        **environment: str,
    ) -> None:
        self.database = Database(template)
        self._environment = {
            "DATABASE_URL": self.database.url,
            "REDIS_URL": redis or REDIS,
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
def migrated(folder: Path) -> Iterator[str]:
    """The name of a database with tables, to be copied: making them takes a while."""
    need_servers()
    database = Database()
    try:
        environment = {"DATABASE_URL": database.url, "REDIS_URL": REDIS}
        server = ServerProcess(folder / "data", environment)
        server.manage("migrate", "--skip-checks", "--verbosity=0")
        yield database.name
    finally:
        database.drop()
