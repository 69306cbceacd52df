"""What is done before a server serves, and what of it stays in its memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import BASE, ServerProcess, SpawnedProcess

STARTED = """
import sys, django
django.setup()
import project.server.uvicorn_server, project.asgi, project.urls
from project.startup import memory
from project.startup.preparation import prepare
prepare()
memory.freeze_startup_objects()
print(*sys.modules, sep="\\n")
"""

#: For features that most servers never use, or not at once.
LATER = {
    "conversations.migrations.0001_initial",
    "django.test",
    "drf_spectacular.openapi",
    "genai_prices",
    "jsonschema_rs",
    "markdown_it",
    "mcp",
}


@pytest.fixture
def stopped(tmp_path: Path) -> ServerProcess:
    """A server that has never been started, over a folder that is not there."""
    return SpawnedProcess(tmp_path / "data")


@pytest.mark.server
def test_a_first_start_imports_only_what_it_needs(
    stopped: ServerProcess,
):
    done = subprocess.run(
        [sys.executable, "-c", STARTED],
        cwd=BASE,
        env={**stopped.environment, "DJANGO_SETTINGS_MODULE": "project.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "project.server.uvicorn_server" in loaded
    assert loaded & LATER == set()


@pytest.mark.slow
@pytest.mark.smoke
def test_a_failed_migration_is_reported_and_the_server_does_not_start(
    stopped: ServerProcess,
):
    stopped.data.mkdir(mode=0o700)
    database = sqlite3.connect(stopped.data / "parley.sqlite3")
    database.execute("CREATE TABLE auth_user (id)")
    database.close()
    assert 'table "auth_user" already exists' in stopped.refused()
