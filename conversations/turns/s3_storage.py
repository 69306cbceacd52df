"""Files in an S3 bucket: django-storages, with the errors that a disk would raise.

The settings name this class where S3_BUCKET is set; the extra `s3` installs its
libraries. Only this server reads the bucket: files have no address of their own, since
views check the reader's rights.
"""

from __future__ import annotations

import logging
import posixpath
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import IO, Any, TypeVar

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import File
from storages.backends.s3 import S3Storage

from conversations.throttled_warning import ThrottledWarning
from conversations.turns.file_storage import RESTING, FilesUnavailable

CONNECT_TIMEOUT = 2  # seconds
READ_TIMEOUT = 5  # seconds without a byte
ATTEMPTS = 2
#: Seconds that a request may take in all, with its second attempt. The timeouts above
#: begin anew with each byte, so a host that trickles would never reach them.
REQUEST_DEADLINE = 20.0
TRANSFER_DEADLINE = 30.0  # of a small file
MIN_RATE = 500_000  # bytes a second: what larger files have beside it
#: Seconds for which a host that did not answer is left alone. Each thread would wait
#: for its own timeout, and all of them are needed for other work.
REST = 10.0
IN_MEMORY = 2_500_000  # bytes of a file that is read; the rest is on the disk
T = TypeVar("T")
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
                file: File[Any] = call_within(
                    REQUEST_DEADLINE, partial(super().open, name, mode)
                )
            except FileNotFoundError:
                self._check_bucket()
                raise
            if "r" not in mode:
                return file
            with _closed_if_slow(file):
                copy = call_within(_transfer_time(file), lambda: file.file)
            assert copy is not None, "it is downloaded"
            return DownloadedFile(copy, name, self)

    def save(
        self, name: str | None, content: Any, max_length: int | None = None
    ) -> str:
        save = partial(super().save, name, content, max_length)
        with self._as_os_errors(), _closed_if_slow(content):
            saved: str = call_within(_transfer_time(content), save)
        return saved

    def delete(self, name: str) -> None:
        with self._as_os_errors():
            try:
                call_within(REQUEST_DEADLINE, self._object(name).delete)
            except ClientError as exc:
                # A missing bucket is no deletion: its host may have lost it for now.
                if _code_of(exc) != "NoSuchKey":
                    raise

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        stored = self._object(name)
        with self._as_os_errors():
            try:
                call_within(REQUEST_DEADLINE, stored.load)
            except ClientError as exc:
                if _status_of(exc) != 404:
                    raise
                self._check_bucket()
                raise FileNotFoundError(name) from None
        return int(stored.content_length)

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        with self._as_os_errors():
            folders, files = super().listdir(path)
        return folders, files

    def total_size(self) -> int:
        """Bytes of all files, by the listing: a request for each would take hours."""
        folder = posixpath.normpath(posixpath.join("/", self.location)).strip("/")
        with self._as_os_errors():
            stored = self.bucket.objects.filter(Prefix=f"{folder}/" if folder else "")
            return sum(int(each.size) for each in stored)

    def url(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError("Files are read through views, which check rights.")

    def _object(self, name: str) -> Any:
        folder = posixpath.normpath(posixpath.join("/", self.location))
        key = posixpath.normpath(posixpath.join(folder, name))
        if posixpath.commonpath([folder, key]) != folder or key == folder:
            raise SuspiciousFileOperation(
                "A file's name leads out of the bucket's folder."
            )
        return self.bucket.Object(key.lstrip("/"))

    def _check_bucket(self) -> None:
        """Raises ClientError if there is no bucket: an answer to HEAD does not say
        whether the file or the whole bucket is missing."""
        head = self.bucket.meta.client.head_bucket
        call_within(REQUEST_DEADLINE, lambda: head(Bucket=self.bucket_name))

    @contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        if time.monotonic() < self._rests_until:
            raise FilesUnavailable(RESTING)
        try:
            yield
        except (BotoCoreError, ClientError, Boto3Error, TransferTooSlow) as exc:
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


class TransferTooSlow(Exception):
    """The host has sent or taken too little in the time it had."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """What the function returns. Raises TransferTooSlow after `seconds`, and leaves its
    thread to end by itself: botocore can end no request from outside."""
    result: Future[T] = Future()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as exc:
            result.set_exception(exc)

    run = copy_context().run  # for lines of the log
    Thread(target=run, args=(call,), name="parley-s3", daemon=True).start()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():
            raise  # its own
        raise TransferTooSlow from None


@contextmanager
def _closed_if_slow(file: Any) -> Iterator[None]:
    """So that the thread which still transfers it ends."""
    try:
        yield
    except TransferTooSlow:
        file.close()
        raise


def _transfer_time(file: Any) -> float:
    return TRANSFER_DEADLINE + int(file.size or 0) / MIN_RATE


def _is_outage(exc: Exception) -> bool:
    """Whether the host is down or ill, and has not just refused this request."""
    return not isinstance(exc, ClientError) or _status_of(exc) >= 500


def _status_of(exc: ClientError) -> int:
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code_of(exc: ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


def _describe(exc: Exception) -> str:
    """A word: the error code of S3, or the class of the error."""
    code = _code_of(exc) if isinstance(exc, ClientError) else ""
    return code if _WORD.fullmatch(code) else type(exc).__name__
