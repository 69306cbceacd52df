"""A data folder made by commit 6ea5d93, before modules moved, is migrated and served.

`data_folder_6ea5d93/parley.sql` is the dump of its database: two turns of a chat with
the demo, one stored response of the gateway, and an encrypted key of OpenAI.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.serving import ServerProcess, SpawnedProcess

FOLDER = Path(__file__).with_name("data_folder_6ea5d93")
KEY = "sk-test-planted-0123456789"
READ_KEY = """
from llm.models import ApiKey
print(ApiKey.objects.get(provider__kind="openai").secret.reveal())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    for name in ("encryption_keys", "secret_key"):
        shutil.copy(FOLDER / name, data / name)
        (data / name).chmod(0o600)
    with closing(sqlite3.connect(data / "parley.sqlite3")) as database:
        database.executescript((FOLDER / "parley.sql").read_text())
    server = SpawnedProcess(data)
    yield server
    if server.process:
        server.kill()


def read_schema(data: Path) -> dict[str, list[str]]:
    """Parts of each object's SQL by its name. Columns may be in another order."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    with closing(sqlite3.connect(data / "parley.sqlite3")) as database:
        found = dict(database.execute(query))
    return {name: sorted(_split_parts(sql)) for name, sql in found.items()}


def _split_parts(sql: str) -> list[str]:
    head, bracket, body = sql.partition("(")
    return [head, *body.removesuffix(")").split(", ")] if bracket else [head]


@pytest.mark.slow
@pytest.mark.server
def test_data_of_an_old_version_is_migrated_and_usable(
    server: ServerProcess, migrated_data: Path
):
    server.start()
    token = server.create_token()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as http:
        chats = http.get("/api/conversations/").json()["results"]
        (paris,) = [chat for chat in chats if chat["title"] == "Paris"]
        turns = http.get(f"/api/conversations/{paris['id']}/turns/").json()["results"]
        assert [turn["status"] for turn in turns] == ["completed"] * 2
        body = {"input": "What is the weather in Oslo?", "wait": True}
        path = f"/api/conversations/{paris['id']}/turns/"
        assert http.post(path, json=body).json()["status"] == "completed"
    assert server.manage("shell", "-c", READ_KEY).splitlines()[-1] == KEY
    assert read_schema(server.data) == read_schema(migrated_data)
