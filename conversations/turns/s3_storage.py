"""Files in an S3 bucket: django-storages, with the errors that a disk would raise.

The settings name this class where S3_BUCKET is set; the extra `s3` installs its
libraries. Only this server reads the bucket: files have no address of their own, since
views check the reader's rights.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from storages.backends.s3 import S3Storage

from conversations.throttled_warning import ThrottledWarning
from conversations.turns.file_storage import FilesUnavailable

CONNECT_TIMEOUT = 2  # seconds
READ_TIMEOUT = 5  # seconds without a byte
ATTEMPTS = 2
#: Seconds for which a host that did not answer is left alone. Each thread would wait
#: for its own timeout, and all of them are needed for other work.
REST = 10.0
IN_MEMORY = 2_500_000  # bytes of a file that is read; the rest is on the disk
_WORD = re.compile(r"[A-Za-z0-9]{1,64}")

_warning = ThrottledWarning(
    logging.getLogger(__name__), "the bucket of files cannot be used: %s"
)


class S3FileStorage(S3Storage):
    """`FilesUnavailable` is raised where the bucket cannot be used, before a caller
    receives the first byte; FileNotFoundError where there is no such file."""

    def __init__(self, *, addressing_style: str = "auto", **options: Any) -> None:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            s3={"addressing_style": addressing_style},
            # Ceph, older MinIO and others refuse AWS's newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        super().__init__(
            client_config=config,
            # Requests run on threads already.
            transfer_config=TransferConfig(use_threads=False),
            max_memory_size=IN_MEMORY,
            # Names are unique, and asking for each first costs a request.
            file_overwrite=True,
            default_acl=None,
            **options,
        )
        self._rests_until = 0.0

    def open(self, name: str, mode: str = "rb") -> File[Any]:
        with self._as_os_errors():
            try:
                file: File[Any] = super().open(name, mode)
                if "r" not in mode:
                    return file
                copy = file.file  # downloads it
                assert copy is not None, "it is open"
                return DownloadedFile(copy, name, self)
            except FileNotFoundError:
                # S3 does not say whether the file or the whole bucket is missing.
                self.connection.meta.client.head_bucket(Bucket=self.bucket_name)
                raise

    def save(
        self, name: str | None, content: Any, max_length: int | None = None
    ) -> str:
        with self._as_os_errors():
            saved: str = super().save(name, content, max_length)
        return saved

    def delete(self, name: str) -> None:
        with self._as_os_errors():
            super().delete(name)

    def exists(self, name: str) -> bool:
        with self._as_os_errors():
            return bool(super().exists(name))

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        with self._as_os_errors():
            folders, files = super().listdir(path)
        return folders, files

    def size(self, name: str) -> int:
        with self._as_os_errors():
            return int(super().size(name))

    def url(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError("Files are read through views, which check rights.")

    @contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        if time.monotonic() < self._rests_until:
            raise FilesUnavailable("resting")
        try:
            yield
        except (BotoCoreError, ClientError, Boto3Error) as exc:
            reason = _describe(exc)
            _warning.log(reason)
            if _is_outage(exc):
                self._rests_until = time.monotonic() + REST
            # Without its cause, whose text quotes what the host has answered.
            raise FilesUnavailable(reason) from None


class DownloadedFile(File):
    """A file of the bucket, copied to this machine. It may be opened again."""

    def __init__(self, file: IO[bytes], name: str, storage: S3FileStorage) -> None:
        super().__init__(file, name)
        self._storage = storage

    def open(self, mode: str | None = None, *_: Any, **__: Any) -> DownloadedFile:
        if self.closed:
            self.file = self._storage.open(self.name or "", mode or "rb").file
        else:
            self.seek(0)
        return self


def _is_outage(exc: Exception) -> bool:
    """Whether the host is down or ill, and has not just refused this request."""
    if not isinstance(exc, ClientError):
        return True
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status) >= 500


def _describe(exc: Exception) -> str:
    """A word: the error code of S3, or the class of the error."""
    code = ""
    if isinstance(exc, ClientError):
        code = str(exc.response.get("Error", {}).get("Code", ""))
    return code if _WORD.fullmatch(code) else type(exc).__name__
