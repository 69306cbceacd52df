"""A server whose uploaded files are in a bucket: its start, its doctor, its backups."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from tests import s3
from tests.conversations import files
from tests.s3 import Bucket, Gate, S3Server
from tests.serving import BASE, PATIENCE, ServerProcess, free_port, manage

pytestmark = pytest.mark.server
SECRET = s3.KEY["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with s3.running() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    made = s3_server.make_bucket()
    yield made
    made.close()


@pytest.fixture
def stopped(tmp_path: Path, migrated_data: Path, bucket: Bucket) -> ServerProcess:
    """A server that does not run, with an empty bucket."""
    data = tmp_path / "data"
    data.mkdir()
    for path in migrated_data.iterdir():
        if path.is_file():
            (data / path.name).write_bytes(path.read_bytes())
    return ServerProcess(data, bucket.environment)


def run(
    server: ServerProcess, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        manage(*arguments),
        cwd=BASE,
        env={**server.environment, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


def find_bucket(server: ServerProcess, **environment: str) -> dict[str, str]:
    found = json.loads(run(server, "doctor", "--json", **environment).stdout)
    return next(each for each in found if each["name"] == "bucket")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"S3_BUCKET": ""}, "S3_BUCKET: it is missing"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "AWS_SECRET_ACCESS_KEY: it is missing"),
        ({"AWS_ACCESS_KEY_ID": ""}, "AWS_ACCESS_KEY_ID: it is missing"),
        ({"S3_BUCKET": "a/b"}, "'a/b' is not a bucket's name"),
        ({"S3_ENDPOINT_URL": "minio:9000"}, "S3_ENDPOINT_URL"),
        ({"S3_PREFIX": "a/../b"}, "S3_PREFIX"),
        ({"S3_ADDRESSING_STYLE": "round"}, "S3_ADDRESSING_STYLE"),
    ],
)
def test_half_a_configuration_stops_the_start_with_one_line(
    stopped: ServerProcess, changed: dict[str, str], words: str
):
    done = run(stopped, "serve", **changed)
    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_the_extra_one_line_names_it(stopped: ServerProcess, tmp_path: Path):
    """A package that hides the installed one has no backend for S3."""
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'storages' else find(n, p)\n"
    )
    done = run(stopped, "serve", PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert "install the extra 's3'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.fixture
def program(stopped: ServerProcess) -> Iterator[Callable[..., httpx.Client]]:
    """`program(S3_ENDPOINT_URL=…)`: a client of the started server."""
    clients: list[httpx.Client] = []

    def start(**environment: str) -> httpx.Client:
        stopped.environment |= environment
        stopped.start()
        headers = {"Authorization": f"Bearer {stopped.create_token()}"}
        clients.append(
            httpx.Client(base_url=stopped.url, headers=headers, timeout=PATIENCE)
        )
        return clients[0]

    yield start
    for client in clients:
        client.close()
    stopped.kill()


def upload(web: httpx.Client) -> httpx.Response:
    conversation = web.post("/api/conversations/", json={}).json()["id"]
    return web.post(
        f"/api/conversations/{conversation}/attachments/",
        files={"file": ("photo.png", files.PNG)},
    )


def test_a_running_server_stores_reads_and_sends_files(
    program: Callable[..., httpx.Client], bucket: Bucket
):
    web = program()
    [row] = upload(web).json()["data"]
    assert list(bucket.files().values()) == [files.PNG]
    assert web.get(f"/api/attachments/{row['id']}/").content == files.PNG
    [conversation] = web.get("/api/conversations/").json()["results"]
    part = {"type": "input_image", "file_id": row["id"]}
    turn = ask(web, conversation["id"], part)
    assert turn.json()["status"] == "completed", turn.text


BO = """
from django.contrib.auth.models import User
User.objects.create_user("bo", password="bo-writes-too-1")
"""


def ask(web: httpx.Client, conversation: str, *parts: dict[str, str]) -> httpx.Response:
    content = [*parts, {"type": "input_text", "text": "/echo seen"}]
    body = {"input": [{"role": "user", "content": content}], "wait": True}
    return web.post(f"/api/conversations/{conversation}/turns/", json=body)


def send_form(page: httpx.Client) -> httpx.Response:
    """A message with a picture, from the page of a new chat."""
    token = page.cookies["csrftoken"]
    fields = {"text": "/echo seen", "csrfmiddlewaretoken": token}
    sent = {"file": ("photo.png", files.PNG)}
    return page.post("/", data=fields, files=sent, headers={"Accept": "text/html"})


def sign_in(server: ServerProcess) -> httpx.Client:
    page = httpx.Client(base_url=server.url, timeout=PATIENCE)
    page.get("/login/")
    fields = {"username": "bo", "password": "bo-writes-too-1"}
    fields["csrfmiddlewaretoken"] = page.cookies["csrftoken"]
    assert page.post("/login/", data=fields).status_code == 302
    return page


def test_a_silent_host_blocks_nobody_else(
    program: Callable[..., httpx.Client], stopped: ServerProcess, bucket: Bucket
):
    """An upload, a turn with a picture and a form wait for it; another person's turn
    ends meanwhile."""
    gate = Gate(bucket.url)
    web = program(S3_ENDPOINT_URL=gate.url)
    stopped.manage("shell", "-c", BO)
    token = {"Authorization": f"Bearer {stopped.create_token('bo')}"}
    bo = httpx.Client(base_url=stopped.url, headers=token, timeout=PATIENCE)
    with (
        closing(gate),
        bo,
        closing(sign_in(stopped)) as page,
        ThreadPoolExecutor() as pool,
    ):
        [row] = upload(web).json()["data"]
        [hers] = web.get("/api/conversations/").json()["results"]
        his = bo.post("/api/conversations/", json={}).json()["id"]
        picture = {"type": "input_image", "file_id": row["id"]}
        gate.shut()
        waiting = [
            pool.submit(upload, web),
            pool.submit(ask, web, hers["id"], picture),
            pool.submit(send_form, page),
        ]
        for _ in waiting:
            gate.await_request()
        assert web.get("/healthz").status_code == 200
        assert ask(bo, his).json()["status"] == "completed"
        assert not any(each.done() for each in waiting)
        uploaded, answered, sent = (each.result() for each in waiting)
    assert uploaded.status_code == 503
    assert uploaded.json()["error"]["code"] == "files_unavailable"
    assert answered.json()["error"]["code"] == "E_FILES_UNAVAILABLE"
    assert sent.status_code == 503
    assert "Stored files cannot be reached" in sent.text


def test_the_doctor_writes_reads_and_deletes(stopped: ServerProcess, bucket: Bucket):
    assert find_bucket(stopped)["state"] == "ok"
    assert bucket.files() == {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"S3_BUCKET": "no-such-bucket"}, "There is no bucket no-such-bucket"),
        ({"S3_ENDPOINT_URL": ""}, "does not answer"),
    ],
)
def test_the_doctor_says_in_words_what_is_wrong(
    stopped: ServerProcess, changed: dict[str, str], words: str
):
    if "S3_ENDPOINT_URL" in changed:
        changed = {"S3_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    found = find_bucket(stopped, **changed)
    assert found["state"] == "error"
    assert words in found["text"]
    assert found["advice"]


def test_a_backup_has_the_files_and_a_restore_brings_them_back(
    stopped: ServerProcess, bucket: Bucket, tmp_path: Path
):
    bucket.put("attachments/2026/11/file_1", b"picture")
    bucket.put("folders/2026/11/file_2", b"%PDF")
    before = bucket.files()
    assert run(stopped, "backup", str(tmp_path / "backups")).returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    assert (made / "media/attachments/2026/11/file_1").read_bytes() == b"picture"
    bucket.put("attachments/2026/12/file_3", b"later")
    refused = run(stopped, "restore", str(made))
    assert refused.returncode != 0
    assert "--replace" in refused.stderr
    done = run(stopped, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    assert bucket.files() == before
    (former,) = stopped.data.glob("replaced-*")
    assert (former / "media/attachments/2026/12/file_3").read_bytes() == b"later"


def test_a_backup_during_an_outage_says_that_it_failed(
    stopped: ServerProcess, tmp_path: Path
):
    url = f"http://127.0.0.1:{free_port()}"
    done = run(stopped, "backup", str(tmp_path / "b"), S3_ENDPOINT_URL=url)
    assert done.returncode != 0
    assert "The backup failed" in done.stderr
    assert list((tmp_path / "b").iterdir()) == []


DATABASE = "parley.sqlite3"
ROWS = """
from conversations.models import *
from django.contrib.auth.models import User
ada = User.objects.create(username="ada")
chat = Conversation.objects.create(owner=ada)
folder = Folder.objects.create(owner=ada, name="Work")
Attachment.objects.create(conversation=chat, name="a", size=3, file="attachments/a")
FolderFile.objects.create(folder=folder, name="b", size=3, file="folders/2026/b")
ConversationImport.objects.create(owner=ada, name="c", size=3, file="imports/c")
"""


@pytest.fixture
def with_files(stopped: ServerProcess) -> ServerProcess:
    """Files on the disk that rows name, and one that was erased."""
    contents = ("one", "two", "and three", "erased")
    names = ("attachments/a", "folders/2026/b", "imports/c", "attachments/erased")
    for name, content in zip(names, contents, strict=True):
        path = stopped.data / "media" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert run(stopped, "shell", "-c", ROWS).returncode == 0
    return stopped


def test_existing_files_move_into_the_bucket(with_files: ServerProcess, bucket: Bucket):
    url = f"http://127.0.0.1:{free_port()}"
    failed = run(with_files, "upload_files", S3_ENDPOINT_URL=url)
    assert failed.returncode != 0
    assert "Run the command again" in failed.stderr
    done = run(with_files, "upload_files").stdout
    assert "Copied 3 files; 0 were" in done
    assert "1 files belong to nothing" in done
    assert bucket.files() == {
        "attachments/a": b"one",
        "folders/2026/b": b"two",
        "imports/c": b"and three",
    }
    assert "Copied 0 files; 3 were" in run(with_files, "upload_files").stdout
    assert (with_files.data / "media/attachments/a").exists()
    refused = run(
        with_files, "upload_files", S3_BUCKET="", S3_ENDPOINT_URL="", S3_REGION=""
    )
    assert "S3_BUCKET is not set" in refused.stderr


def test_a_file_that_is_erased_during_its_copy_is_not_brought_back(
    with_files: ServerProcess, bucket: Bucket, s3_server: S3Server
):
    gate = Gate(s3_server.url)
    try:
        gate.shut("PUT")
        with ThreadPoolExecutor(1) as pool:
            copying = pool.submit(
                run, with_files, "upload_files", S3_ENDPOINT_URL=gate.url
            )
            gate.await_request()
            with closing(sqlite3.connect(with_files.data / DATABASE)) as database:
                database.execute("DELETE FROM conversations_attachment")
                database.commit()
            gate.open()
            assert "Copied 2 files" in copying.result().stdout
    finally:
        gate.close()
    assert sorted(bucket.files()) == ["folders/2026/b", "imports/c"]


def test_a_restore_writes_each_file_whatever_its_size(
    stopped: ServerProcess, bucket: Bucket, tmp_path: Path
):
    bucket.put("attachments/a", b"as it was")
    assert run(stopped, "backup", str(tmp_path / "backups")).returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    bucket.put("attachments/a", b"damaged!!")
    done = run(stopped, "restore", "--replace", str(made))
    assert done.returncode == 0, done.stderr
    assert bucket.files() == {"attachments/a": b"as it was"}


def test_a_restore_that_the_bucket_stops_replaces_nothing(
    stopped: ServerProcess, bucket: Bucket, tmp_path: Path
):
    """Not even the log of SQLite, in which the newest rows may be."""
    bucket.put("attachments/a", b"one")
    assert run(stopped, "backup", str(tmp_path / "backups")).returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    with closing(sqlite3.connect(stopped.data / DATABASE)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE newest (id)")
        database.commit()
        with refusing("PUT", bucket) as url:
            failed = run(
                stopped, "restore", "--replace", str(made), S3_ENDPOINT_URL=url
            )
        assert failed.returncode != 0
        assert "The restore failed" in failed.stderr
        with closing(sqlite3.connect(stopped.data / DATABASE)) as again:
            assert again.execute("SELECT count(*) FROM newest").fetchone() == (0,)
        assert (stopped.data / f"{DATABASE}-wal").exists()
    assert bucket.files() == {"attachments/a": b"one"}


def test_a_restore_without_room_for_the_bucket_s_files_is_refused(
    stopped: ServerProcess, bucket: Bucket, tmp_path: Path
):
    bucket.put("attachments/a", b"one")
    assert run(stopped, "backup", str(tmp_path / "backups")).returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    code = f"""
from conversations.turns.s3_storage import S3FileStorage
from django.core.files.storage import default_storage
from django.core.management import call_command
assert default_storage.total_size() == 3
S3FileStorage.total_size = lambda self: 10**15
call_command("restore", {str(made)!r}, "--replace")
"""
    done = run(stopped, "shell", "-c", code)
    assert done.returncode != 0
    assert f"the disk of {stopped.data} needs" in done.stderr
    assert bucket.files() == {"attachments/a": b"one"}
    assert not [*stopped.data.glob("replaced-*")]


def test_a_restore_says_what_the_bucket_did_not_delete(
    stopped: ServerProcess, bucket: Bucket, tmp_path: Path
):
    bucket.put("attachments/a", b"one")
    assert run(stopped, "backup", str(tmp_path / "backups")).returncode == 0
    (made,) = (tmp_path / "backups").iterdir()
    bucket.put("attachments/later", b"two")
    with refusing("DELETE", bucket) as url:
        done = run(stopped, "restore", "--replace", str(made), S3_ENDPOINT_URL=url)
    assert done.returncode == 0, done.stderr
    assert "still has 1 files" in done.stderr
    assert run(stopped, "restore", "--replace", str(made)).returncode == 0
    assert bucket.files() == {"attachments/a": b"one"}


@contextmanager
def refusing(method: str, bucket: Bucket) -> Iterator[str]:
    """The way to the bucket of a key that lacks a right."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == method:
                error = b"<Error><Code>AccessDenied</Code></Error>"
                self._send(403, httpx.Headers(), error)
                return
            # Without "Host" of this server, and with the bytes as they were signed for.
            found = httpx.request(
                self.command,
                bucket.url + self.path,
                headers=dict(self.headers),
                content=body,
            )
            self._send(found.status_code, found.headers, found.content)

        def _send(self, status: int, headers: httpx.Headers, body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "server", "date"):
                    self.send_header(name, value)
            if "content-length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
