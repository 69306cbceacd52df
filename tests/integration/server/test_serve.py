"""`manage.py serve` as its user meets it."""

from __future__ import annotations

import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.conftest import StartServer
from tests.serving import BASE, PASSWORD, ServerProcess, SpawnedProcess, manage

pytestmark = pytest.mark.slow


@pytest.fixture
def stopped(tmp_path: Path) -> ServerProcess:
    """A server that has never been started, over a folder that is not there."""
    return SpawnedProcess(tmp_path / "new" / "data")


def refusal(server: ServerProcess, *arguments: str, **environment: str) -> str:
    """The one line with which it leaves."""
    message = server.refused(*arguments, **environment)
    assert message.count("\n") == 1
    return message.rstrip("\n")


@pytest.mark.server
@pytest.mark.smoke
def test_a_first_start_prints_address_login_and_one_next_step(stopped: ServerProcess):
    stopped.environment["PARLEY_ADMIN_PASSWORD"] = ""
    stopped.log_path.parent.mkdir()
    server = stopped.start()
    server.stop()
    address, login, next_thing = server.banner
    assert address == f"Parley is running at {server.url}"
    assert re.fullmatch(
        r"Sign in as admin with the password [a-z2-9-]{19} \(shown once\)\.", login
    )
    assert next_thing.startswith("Next: open it, sign in and ask: What is the weather")
    assert not server.faults()


@pytest.mark.server
@pytest.mark.smoke
def test_a_second_start_prints_no_password_and_changes_nothing(server: ServerProcess):
    server.stop()
    before = server.manage("dumpdata", "auth", "llm", "tools")
    server.start()
    assert server.banner[1].startswith("Sign in as admin. (Forgotten?")
    assert server.stop() == 0
    assert server.manage("dumpdata", "auth", "llm", "tools") == before


@pytest.mark.server
def test_a_given_password_is_printed_nowhere(server: ServerProcess):
    server.stop()
    assert PASSWORD not in " ".join(server.banner)
    assert PASSWORD not in server.log()


@pytest.mark.server
def test_files_of_the_data_folder_are_private(stopped: ServerProcess):
    stopped.log_path.parent.mkdir()
    server = stopped.start()
    httpx.get(f"{server.url}/readyz")
    modes = {
        path.relative_to(server.data).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in [server.data, *server.data.rglob("*")]
    }
    server.stop()
    assert modes.pop(".") == 0o700
    assert {"secret_key", "encryption_keys", "lock", "parley.sqlite3"} <= set(modes)
    assert {mode & 0o077 for mode in modes.values()} == {0}


@pytest.mark.server
@pytest.mark.smoke
def test_a_second_server_prints_which_process_locks_the_folder(server: ServerProcess):
    assert server.process
    assert refusal(server) == (
        f"PARLEY_DATA: {server.data} is in use by process {server.process.pid};"
        " stop that process or use another folder."
    )


@pytest.mark.server
def test_a_port_in_use_is_reported_before_a_password_is_created(
    server: ServerProcess, stopped: ServerProcess, migrated_data: Path
):
    shutil.copytree(migrated_data, stopped.data)
    line = refusal(stopped, PORT=str(server.port))
    assert line == f"PORT: {server.port} is in use; set another one or --port."
    assert "password of PARLEY_ADMIN_PASSWORD" in stopped.start().banner[1]
    stopped.stop()


@pytest.mark.server
@pytest.mark.smoke
def test_a_killed_server_leaves_no_lock(server: ServerProcess):
    assert server.kill() == -signal.SIGKILL
    server.start()
    assert httpx.get(f"{server.url}/healthz").status_code == 200


@pytest.mark.server
def test_options_come_before_the_environment(stopped: ServerProcess):
    assert refusal(stopped, "--host", "192.0.2.1").startswith("HOST: cannot listen on")


@pytest.mark.server
def test_without_a_model_the_next_thing_is_to_add_one(start_server: StartServer):
    server = start_server(ENABLE_DEMO="false")
    assert server.banner[2] == (
        f"Next: add a provider, its key and a model at {server.url}/admin/"
    )


@pytest.mark.server
def test_pages_are_served_with_their_style(server: ServerProcess):
    page = httpx.get(f"{server.url}/admin/login/")
    styles = re.findall(r'href="(/static/[^"]+\.css)"', page.text)
    assert styles
    for style in styles:
        assert (
            httpx.get(server.url + style).headers["Content-Type"].startswith("text/css")
        )
    assert not server.faults()


@pytest.mark.server
def test_an_access_log_contains_no_query(start_server: StartServer):
    server = start_server(ACCESS_LOG="true")
    httpx.get(f"{server.url}/healthz?token=planted")
    server.stop()
    assert "project.access GET /healthz 200" in server.log()
    assert "planted" not in server.log()


@pytest.mark.parametrize("command", ["serve", "check", "migrate"])
@pytest.mark.smoke
def test_a_wrong_value_stops_any_command_with_one_line(
    stopped: ServerProcess, command: str
):
    done = subprocess.run(
        manage(command),
        cwd=BASE,
        env={**stopped.environment, "PORT": "eighty"},
        capture_output=True,
        text=True,
        check=False,
    )
    line = "PORT: 'eighty' is not a whole number above 0.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)


def test_a_weak_password_stops_the_start(stopped: ServerProcess, migrated_data: Path):
    shutil.copytree(migrated_data, stopped.data)
    line = refusal(stopped, PARLEY_ADMIN_PASSWORD="hunter2")
    assert line.startswith("PARLEY_ADMIN_PASSWORD: This password is too short.")


def test_a_file_that_is_no_database_stops_the_start(
    stopped: ServerProcess, tmp_path: Path
):
    path = tmp_path / "letter.txt"
    path.write_text("Dear database, " * 100)
    line = refusal(stopped, DATABASE_URL=f"sqlite:///{path}")
    assert line.startswith(f"DATABASE_URL: cannot use {path} (file is not a database)")


def test_a_dotenv_file_is_read_unless_disabled(tmp_path: Path):
    (tmp_path / ".env").write_text("PORT=1234\nHOST='::1'\n")
    program = (
        "import sys; from pathlib import Path;"
        "from project.environment.variables import Environment;"
        "env = Environment(Path(sys.argv[1]));"
        "print(env.port('PORT', 8000), env.text('HOST', ''))"
    )
    run = ["-c", program, str(tmp_path)]
    environment = ServerProcess(tmp_path / "data").environment
    del environment["PORT"]

    def output(**more: str) -> str:
        python = manage()[0]
        return subprocess.run(
            [python, *run],
            cwd=BASE,
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    assert output(PARLEY_READ_DOTENV="true") == "1234 ::1"
    assert output(PARLEY_READ_DOTENV="true", PORT="99") == "99 ::1"
    assert output(PARLEY_READ_DOTENV="false") == "8000"
