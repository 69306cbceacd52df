"""A server that speaks S3, in a process of its own: moto's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Semaphore, Thread
from typing import Any
from urllib.parse import urlsplit

import boto3

from tests.serving import free_port

KEY = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "planted-secret-9876"}


class S3Server:
    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p"]
        self._process = subprocess.Popen(
            [*command, str(port)],
            env={**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "40000000"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        while "Running on" not in (line := self._process.stderr.readline()):
            assert line, "moto's server has ended"

    def make_bucket(self) -> Bucket:
        return Bucket(self.url)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Bucket:
    """An empty bucket, as another program sees it."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, f"files-{uuid.uuid4().hex[:12]}"
        self._client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=KEY["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEY["AWS_SECRET_ACCESS_KEY"],
        )
        self._client.create_bucket(Bucket=self.name)

    @property
    def environment(self) -> dict[str, str]:
        """Of a server that keeps its files here."""
        return {
            "S3_BUCKET": self.name,
            "S3_ENDPOINT_URL": self.url,
            "S3_REGION": "us-east-1",
            "S3_ADDRESSING_STYLE": "path",
            **KEY,
        }

    def files(self) -> dict[str, bytes]:
        found = self._client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return {each["Key"]: self._read(each["Key"]) for each in found}

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=name, Body=content)

    def _read(self, name: str) -> bytes:
        found = self._client.get_object(Bucket=self.name, Key=name)
        with found["Body"] as body:
            content: bytes = body.read()
        return content

    def close(self) -> None:
        self._client.close()


class Gate:
    """A way to a server that can be shut: then it takes requests, and answers them when
    it is opened again."""

    def __init__(self, url: str) -> None:
        self._target = ("127.0.0.1", urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._is_open = Event()
        self._is_open.set()
        self._method = b""
        self._waiting = Semaphore(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        Thread(target=self._accept, daemon=True).start()

    def shut(self, method: str = "") -> None:
        """For requests with this method only, if one is named."""
        self._method = method.encode()
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    def await_request(self) -> None:
        """Return once a request waits for the gate."""
        assert self._waiting.acquire(timeout=20), "nobody has asked"

    def close(self) -> None:
        self.open()
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for pump in ((client, server), (server, client)):
                    Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._is_open.is_set() and data.startswith(self._method):
                    self._waiting.release()
                    self._is_open.wait()
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)


def storages(url: str, bucket: str, **options: Any) -> dict[str, Any]:
    """The setting STORAGES, as `project.environment.file_storage` makes it."""
    return {
        "default": {
            "BACKEND": "conversations.turns.s3_storage.S3FileStorage",
            "OPTIONS": {
                "bucket_name": bucket,
                "endpoint_url": url,
                "region_name": "us-east-1",
                "addressing_style": "path",
                "access_key": KEY["AWS_ACCESS_KEY_ID"],
                "secret_key": KEY["AWS_SECRET_ACCESS_KEY"],
                **options,
            },
        },
        "staticfiles": {
            "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        },
    }


@contextmanager
def running() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.end()
