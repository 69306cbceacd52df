"""A disk that is full: refused in order everywhere, and all is well with room again."""

from __future__ import annotations

import errno
import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.db import DatabaseError, OperationalError, connection
from django.test import Client

from conversations.engine.database import disk_space
from tests.integration.clients import Program, Screen, sign_in, socket
from tests.integration.following import read, whole
from tests.integration.stopping import MODEL, teach, until
from tests.integration.upstream import SPOKEN_TEXT, Upstream
from tests.serving import ServerProcess, free_port

LARGE = "x" * 900_000
SIZE = 48  # MB of the disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one of the test's own; root alone may make one."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "none", str(path)]
    if os.getuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def server(disk: Path, migrated_data: Path) -> Iterator[ServerProcess]:
    shutil.copytree(migrated_data, disk / "data")
    data = disk.with_name("data")  # its log is beside it, on a disk with space
    data.symlink_to(disk / "data")
    server = ServerProcess(data)
    yield server.start()
    if server.process:
        server.kill()


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


async def ready(program: Program) -> tuple[int, str]:
    async with program.http() as http:
        answer = await http.get("/readyz")
    return answer.status_code, answer.json()["checks"]["storage"]


async def test_a_full_disk_is_refused_at_every_boundary(
    server: ServerProcess, disk: Path
):
    port = free_port()
    teach(server, port)
    program, screen = Program(server), Screen()
    cookie = await sign_in(server, "admin")
    conversation = await program.conversation()
    async with Upstream(port):
        turn = await program.create_turn(conversation, "in text", model=MODEL)
        await read(program.follow(turn), screen, length=len(SPOKEN_TEXT))
        assert await ready(program) == (200, "ok")
        filler = fill(disk)
        async with program.http() as http:
            await refused_by(http, conversation)
        await refused_over_sockets(server, program, cookie)
        refused_page(server, conversation, cookie)
        assert await ready(program) == (503, "full")
        assert "Traceback" not in server.log()

        filler.unlink()

        async def is_ready() -> bool:
            return (await ready(program))[0] == 200

        await until(is_ready)
        await program.cancel(turn)
        await whole(program, turn, screen)
    assert screen.text == SPOKEN_TEXT
    assert (await program.turn(turn))["status"] == "cancelled"
    after = await program.create_turn(conversation, "/echo Here again", model="demo")
    assert (await whole(program, after)).text == "Here again"


async def refused_by(http: httpx.AsyncClient, conversation: str) -> None:
    url = f"/api/conversations/{conversation}/turns/"
    body = {"model": "demo", "input": LARGE}
    answers = [
        # What has room in the space that SQLite holds already is taken.
        await last_of(lambda: http.post(url, json={"input": LARGE})),
        await last_of(lambda: http.post("/v1/responses", json=body)),
        await http.post(
            f"/api/conversations/{conversation}/attachments/",
            files={"file": ("a.pdf", b"%PDF-1.4\n" + b"y" * 5_000_000)},
        ),
    ]
    for answer in answers:
        assert answer.status_code == 507, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.json()["error"]["code"] == "storage_full"


async def last_of(post: Any) -> httpx.Response:
    for _ in range(20):
        answer: httpx.Response = await post()
        if answer.status_code >= 500:
            break
    return answer


async def refused_over_sockets(
    server: ServerProcess, program: Program, cookie: str
) -> None:
    from websockets.asyncio.client import connect

    async with program.http() as http:
        found = (await http.get("/api/conversations/")).json()["results"]
        token = http.headers["Authorization"]
    async with socket(server, found[0]["id"], cookie) as connection:
        await connection.send(json.dumps({"type": "turn.create", "input": LARGE}))
        error = json.loads(await connection.recv())["error"]
        assert error["code"] == "storage_full", error
    url = f"{server.ws_url}/v1/responses"
    async with connect(url, additional_headers={"Authorization": token}) as connection:
        body = {"type": "response.create", "model": "demo", "input": LARGE}
        await connection.send(json.dumps(body))
        event = json.loads(await connection.recv())
        assert (event["type"], event["status"]) == ("error", 507), event


def refused_page(server: ServerProcess, conversation: str, cookie: str) -> None:
    url, headers = f"/chat/{conversation}/", {"Cookie": cookie, "Accept": "text/html"}
    with httpx.Client(base_url=server.url, timeout=60, headers=headers) as http:
        page = http.get(url)
        assert page.status_code == 200, "what is there can be read"
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert found, page.text
        csrf = http.cookies["csrftoken"]
        fields = {"text": LARGE, "csrfmiddlewaretoken": found[1]}
        answer = http.post(
            url, data=fields, headers={"Cookie": f"{cookie}; csrftoken={csrf}"}
        )
    assert answer.status_code == 507, answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Content-Type"].startswith("text/html")
    assert disk_space.MESSAGE in html.unescape(answer.text)


@pytest.mark.parametrize(
    ("exc", "cause", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), None, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), None, True),
        (OSError(errno.EPIPE, "Broken pipe"), None, False),
        (OperationalError("no"), psycopg.errors.DiskFull(), True),
        (OperationalError("no"), psycopg.errors.AdminShutdown(), False),
        (OperationalError("database or disk is full"), None, False),
        (ValueError("x"), None, False),
    ],
)
def test_errors_of_a_full_disk_are_recognised(
    exc: Exception, cause: Exception | None, expected: bool
):
    exc.__cause__ = cause
    assert disk_space.is_full(exc) is expected


@pytest.fixture
def full_database(transactional_db: None) -> Iterator[None]:
    """No page more than there are."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has a limit of pages")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        (pages,) = cursor.fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
        yield
        cursor.execute("PRAGMA max_page_count = 1073741823")


def test_sqlite_reports_a_full_disk_and_readiness_checks_it(
    full_database: None, client: Client
):
    from django.contrib.auth.models import User
    from django.db import transaction

    with pytest.raises(DatabaseError) as raised, transaction.atomic():
        User.objects.create(username="ada", password="x", email="y" * 10_000_000)
    assert disk_space.report_full(raised.value)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["storage"] == "full"
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA max_page_count = 1073741823")
    assert client.get("/readyz").status_code == 200
