from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import pytest_django

from tests.programs import need_program
from tests.recording import Recording, recording_server
from tests.serving import ServerProcess

# A loaded machine is slow, not wrong.
hypothesis.settings.register_profile("parley", deadline=None)
hypothesis.settings.load_profile("parley")

StartServer = Callable[..., ServerProcess]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs_program(name): skipped without it, failed under CI=true"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs_program"):
        need_program(*mark.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"server", "shared_server", "start_server"} & set(_fixtures_of(item)):
            item.add_marker("server")


def _fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """PostgreSQL drops no database that a thread of ours is still connected to."""
    yield
    from django.db import connection

    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser; without one the test is skipped, under CI=true fails."""
    return need_program("chromium")


@pytest.fixture(scope="session")
def migrated_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after its first start, to be copied: tables take a second."""
    data = tmp_path_factory.mktemp("migrated") / "data"
    ServerProcess(data).manage("migrate", "--skip-checks", "--verbosity=0")
    return data


@pytest.fixture
def start_server(tmp_path: Path, migrated_data: Path) -> Iterator[StartServer]:
    """`start_server(ENABLE_DEMO="false", ...)`: a server of the test's own."""
    servers: list[ServerProcess] = []

    def start(**environment: str) -> ServerProcess:
        data = tmp_path / f"data{len(servers)}"
        shutil.copytree(migrated_data, data)
        servers.append(server := ServerProcess(data, environment))
        return server.start()

    yield start
    _end_all(servers)


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """A server of the test's own, to be killed and started again at will."""
    return start_server()


@pytest.fixture(scope="session")
def shared_server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[ServerProcess]:
    """One server for all tests that leave it running and make their own rows."""
    data = tmp_path_factory.mktemp("shared") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    yield server
    _end_all([server])


def _end_all(servers: list[ServerProcess]) -> None:
    for server in servers:
        if server.process:
            server.kill()


@pytest.fixture
def thief() -> Iterator[Recording]:
    """A server that keeps all that it is sent."""
    with recording_server() as recording:
        yield recording
