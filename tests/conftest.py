from __future__ import annotations

import asyncio
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hypothesis
import pytest
import pytest_django
from django.db.backends.signals import connection_created
from django.utils import translation

from tests import (
    forking,
    mocked_transport,  # noqa: F401 - respx knows it then
    thread_connections,
)
from tests.migrated import copy_migrated_data
from tests.programs import need_program
from tests.recording import Recording, recording_server
from tests.scaled import REDIS, need_servers
from tests.serving import ServerProcess
from tests.short_runs import costs
from tests.short_runs.rows import rows_within, thin_tables

# No deadline: a loaded machine is slow, not wrong. CI takes the same examples each
# time; developers' machines and the nightly run look for new ones.
IS_CI = os.environ.get("CI", "").lower() == "true"
hypothesis.settings.register_profile(
    "quick", deadline=None, max_examples=10, derandomize=IS_CI
)
hypothesis.settings.register_profile(
    "parley", deadline=None, max_examples=30, derandomize=IS_CI
)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=400)
hypothesis.settings.load_profile("parley")  # --hypothesis-profile overrides it

StartServer = Callable[..., ServerProcess]
#: Fixtures whose tests need a server, which `make test-fast` leaves out.
SERVERS = {
    "server",
    "shared_server",
    "start_server",
    "start_module_server",
    "redis_url",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rows", type=int, metavar="N", help="at most N rows of each test's table"
    )
    parser.addoption(
        "--row-budget",
        type=float,
        metavar="SECONDS",
        help="of each test's table as many rows as cost so much, at least two",
    )
    parser.addoption(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="no test that costs more, except the cheapest of its file",
    )
    parser.addoption(
        "--write-costs", action="store_true", help=f"write {costs.FILE.name} anew"
    )


def pytest_configure(config: pytest.Config) -> None:
    ServerProcess.is_forked = True
    connection_created.connect(thread_connections.note)
    config.pluginmanager.register(costs.Meter(), "costs")
    gc.disable()  # until the tests are collected, which makes millions of objects
    config.addinivalue_line(
        "markers", "needs_program(name): skipped without it, failed under CI=true"
    )


def pytest_unconfigure() -> None:
    forking.kill_all()


@pytest.hookimpl(tryfirst=True)  # before the summary is printed
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # the process that xdist started
        return
    if session.config.option.write_costs:
        costs.write_costs(session.config.pluginmanager.get_plugin("costs").costs)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if dear := _list_dear(config):
        terminalreporter.section(
            "too dear for this run: make them cheap, or `make costs`"
        )
        for name, cost in dear.items():
            terminalreporter.line(f"{cost:.2f} s of CPU  {name}")


def _list_dear(config: pytest.Config) -> dict[str, float]:
    """The tests of a run with a budget that cost far more, by name."""
    if not config.option.budget:
        return {}
    limit = max(costs.LIMIT, 2 * config.option.budget)
    measured, known = config.pluginmanager.get_plugin("costs").costs, costs.read_costs()
    return {
        name: cost
        for name, cost in measured.items()
        if cost > limit and cost > 2 * known.get(name, 0.0)
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    translation.deactivate()  # of a request of the test before
    _forget_terms()
    for mark in item.iter_markers("needs_program"):
        need_program(*mark.args)


def _forget_terms() -> None:
    """An engine that ends with a test may have read its terms after the test forgot
    them; all later tests would be asked to accept them."""
    from conversations.access.policy import terms

    if terms.state.number:
        terms.forget()


@pytest.hookimpl(trylast=True)  # after the teardown of the fixtures and the event loop
def pytest_runtest_teardown() -> None:
    thread_connections.close_all()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before `-m` reads the markers
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    for item in items:
        if SERVERS & set(_fixtures_of(item)):
            item.add_marker("server")
    # A long module that begins last would delay the end of the run.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    yield
    if rows := config.option.rows:  # of what `-m` has left
        _keep(config, items, thin_tables((item.nodeid for item in items), rows))
    if budget := config.option.row_budget:
        rows_by_test = rows_within(budget, costs.read_costs())
        names = (item.nodeid for item in items)
        _keep(config, items, thin_tables(names, rows_by_test))
    if budget := config.option.budget:
        names = (item.nodeid for item in items)
        _keep(config, items, costs.choose_cheap(names, budget, costs.read_costs()))


def _keep(config: pytest.Config, items: list[pytest.Item], names: set[str]) -> None:
    out = [item for item in items if item.nodeid not in names]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item.nodeid in names]


def pytest_collection_finish() -> None:
    gc.freeze()  # or each full collection of a test takes a second
    gc.enable()


def _fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.fixture(scope="session")
def django_db_keepdb(
    django_db_modify_db_settings: None, request: pytest.FixtureRequest
) -> bool:
    """Whether the database has its tables already, as each SQLite has, from a copy."""
    from django.db import connection

    if connection.vendor != "sqlite":
        return False
    copied = connection.settings_dict["TEST"]["NAME"]
    migrated: Path = request.getfixturevalue("migrated_data")
    shutil.copy(migrated / "parley.sqlite3", copied)
    return True


@pytest.fixture(scope="session")
def django_db_setup(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """PostgreSQL drops no database that a thread of ours is still connected to."""
    yield
    from django.db import connection

    from conversations.access import rate_limits

    if connection.vendor == "sqlite":  # which pytest-django keeps
        connection.close()
        Path(connection.settings_dict["NAME"]).unlink()
    if connection.vendor == "postgresql":
        asyncio.run(rate_limits.aclose())
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
def full_chromium() -> str:
    """As `chromium`, with what a headless shell lacks, such as speech recognition."""
    return need_program("full_chromium")


@pytest.fixture(scope="session")
def migrated_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after its first start, to be copied."""
    data = tmp_path_factory.mktemp("migrated") / "data"
    copy_migrated_data(data)
    return data


@pytest.fixture
def start_server(tmp_path: Path, migrated_data: Path) -> Iterator[StartServer]:
    """`start_server(ENABLE_DEMO="false", ...)`: a server of the test's own."""
    with _servers(tmp_path, migrated_data) as start:
        yield start


@pytest.fixture(scope="module")
def start_module_server(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> Iterator[StartServer]:
    """As `start_server`: a server for all tests of a module, which make their own
    rows and leave it running."""
    with _servers(tmp_path_factory.mktemp("module"), migrated_data) as start:
        yield start


@contextmanager
def _servers(folder: Path, migrated_data: Path) -> Iterator[StartServer]:
    servers: list[ServerProcess] = []

    def start(**environment: str) -> ServerProcess:
        data = folder / f"data{len(servers)}"
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
def redis_url() -> str:
    """A running Redis; without one the test is skipped, under CI=true fails."""
    need_servers()
    return REDIS


@pytest.fixture
def thief() -> Iterator[Recording]:
    """A server that records all bytes that it receives."""
    with recording_server() as recording:
        yield recording
