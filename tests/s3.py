"""A server that speaks S3, in a process of its own: moto's."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
