"""The findings of the command `doctor`, each with what is wrong and what to do.

Texts name hosts, files and labels, never a secret, nor another program's message, which
may quote one. What needs the database is left out while it is down.
"""

from __future__ import annotations

import os
import resource
import shutil
import smtplib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.mail import get_connection
from django.db import DatabaseError, connection
from django.utils import timezone
from django.utils.text import capfirst

from conversations.engine.database import disk_space
from conversations.turns.file_storage import FilesUnavailable
from llm.checks import check_secrets
from llm.http.outbound_hosts import is_listed
from llm.models import ApiKey, Provider
from project.backups.interrupted_restore import describe_unfinished
from project.diagnosis import facts
from project.diagnosis.diagnosis import PATIENCE, Diagnosis, judge
from project.diagnosis.shared_servers import (
    examine_notifications,
    examine_postgresql,
    examine_redis,
)
from project.startup.preparation import has_pending_migrations
from tools.python import sandbox

_FEWEST_FILES = 4096  # a stream takes two
_LEAST_FREE = 0.1  # of the disk
_MAX_ROWS = 20


def diagnose() -> Iterator[Diagnosis]:
    yield from _examine_machine()
    database, *others = _examine_database()
    yield from (database, *others)
    if settings.REDIS_URL:
        yield examine_redis()
    elif settings.IS_SCALED and database.state == "ok":
        yield examine_notifications()
    yield _examine_mail()
    if settings.STORAGES["default"].get("OPTIONS"):
        yield _examine_bucket()


def _examine_machine() -> Iterator[Diagnosis]:
    yield judge(
        "secret key",
        facts.is_secret_strong(),
        "SECRET_KEY can be guessed.",
        "Leave SECRET_KEY unset, or set one made by `openssl rand -hex 32`.",
    )
    yield judge(
        "debug",
        not settings.DEBUG,
        "DEBUG is on: error pages show the server's settings.",
        "Set DEBUG=false.",
    )
    is_safe = settings.BEHIND_HTTPS or settings.HOST in facts.LOOPBACK
    yield judge(
        "https",
        is_safe,
        f"HOST={settings.HOST} lets others connect, in the clear.",
        "Put a proxy with a certificate in front, and set BEHIND_HTTPS=true.",
        "warning",
    )
    is_named = not facts.LOOPBACK_HOSTS.issuperset(settings.ALLOWED_HOSTS)
    yield judge(
        "hosts",
        is_named or not settings.BEHIND_HTTPS,
        "ALLOWED_HOSTS names this machine only: behind a proxy, requests get 400.",
        "Set ALLOWED_HOSTS to the host name in the address that people open.",
        "warning",
    )
    yield _examine_modes()
    yield _examine_disk()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield judge(
        "open files",
        hard == resource.RLIM_INFINITY or hard >= _FEWEST_FILES,
        f"A process may open {hard} files only; each stream takes two.",
        "Raise it: LimitNOFILE= of systemd, or `ulimit -Hn`.",
        "warning",
    )
    yield judge(
        "sandbox",
        sandbox.is_available(),
        "Calls of isolated tools fail: this system does not start the sandbox that"
        " ISOLATED_REQUIRE_SANDBOX demands."
        if settings.ISOLATED_REQUIRE_SANDBOX
        else "Isolated tools run without a sandbox: this system has none for them.",
        "See “A process of its own” in docs/tools.md.",
        "warning",
    )


def _examine_modes() -> Diagnosis:
    secrets = [settings.DATA / name for name in ("encryption_keys", "secret_key")]
    paths = [*secrets, settings.LOCATIONS.base / ".env"]
    # Else it is a volume of the cluster, for the files of which alone we answer.
    is_own = settings.DATA.exists() and settings.DATA.stat().st_uid == os.geteuid()
    stored = [*secrets, settings.DATA / "parley.sqlite3"]
    if is_own or any(path.exists() for path in stored):
        paths.append(settings.DATA)
    loose = [str(path) for path in paths if _is_open_to_others(path)]
    return judge(
        "file modes",
        not loose,
        f"Other users of this machine can read: {', '.join(loose)}.",
        "Take their rights away with `chmod go= FILE`.",
    )


def _is_open_to_others(path: Path) -> bool:
    return path.exists() and bool(path.stat().st_mode & 0o077)


def _examine_disk() -> Diagnosis:
    folders = (settings.DATA, *settings.DATA.parents)
    usage = shutil.disk_usage(next(each for each in folders if each.exists()))
    advice = f"Make room on the disk of {settings.DATA}."
    if usage.free < disk_space.ROOM:
        return Diagnosis("disk", "error", "It is full: nothing can be saved.", advice)
    is_roomy = usage.free >= usage.total * _LEAST_FREE
    text = f"{usage.free // 1_000_000:,} MB are free, less than a tenth."
    return judge("disk", is_roomy, text, advice, "warning")


def _examine_database() -> Iterator[Diagnosis]:
    try:
        connection.ensure_connection()
        is_pending = has_pending_migrations()
    except DatabaseError:
        yield Diagnosis(
            "database",
            "error",
            f"The {connection.vendor} database cannot be used.",
            "Start it, and check DATABASE_URL, its password and its version.",
        )
        return
    yield Diagnosis("database", "ok", f"{connection.display_name} can be used.")
    unfinished = describe_unfinished()
    yield judge("restore", not unfinished, capfirst(unfinished), "")
    yield judge(
        "migrations",
        not is_pending,
        "Tables are missing or of an older version.",
        f"Start the server once, or run {settings.LOCATIONS.command} migrate.",
    )
    if not is_pending:
        yield from _examine_rows()


def _examine_rows() -> Iterator[Diagnosis]:
    if connection.vendor == "postgresql":
        yield from examine_postgresql()
    lost = [each for each in check_secrets(None, ["default"]) if each.id == "llm.W001"]
    yield judge(
        "encryption keys",
        not lost,
        " ".join(str(each.msg) for each in lost),
        "Restore the missing key to ENCRYPTION_KEYS, or enter the secrets again.",
    )
    command = "worker" if settings.IS_SCALED else "serve"
    yield judge(
        "worker",
        facts.has_live_worker(),
        "No process answers messages, so they wait.",
        f"Start {settings.LOCATIONS.command} {command}.",
    )
    yield judge(
        "backup",
        facts.is_recent(facts.find_newest_backup()),
        f"None was made in the last {facts.BACKUP_LASTS.days} days.",
        f"Run {settings.LOCATIONS.command} backup each day.",
        "warning",
    )
    left = ", ".join(map(str, facts.find_leftovers_of_backups()))
    yield judge(
        "left over",
        not left,
        f"A killed backup or restore left copies of the database and keys: {left}.",
        "Delete them, or run the command again, which does.",
        "warning",
    )
    yield _examine_keys()
    yield _examine_hosts()


def _examine_keys() -> Diagnosis:
    State = ApiKey.State
    rows = ApiKey.objects.of_staff().select_related("provider").order_by("pk")
    resting = rows.filter(state=State.RESTING, rest_until__gt=timezone.now())
    unused = [*rows.auto_disabled()[:_MAX_ROWS], *resting[:_MAX_ROWS]]
    names = ", ".join(
        f"{row.provider.name}/{row.label} ({row.state})" for row in unused
    )
    return judge(
        "provider keys",
        not unused,
        f"No call uses: {names}.",
        "The admin's list of API keys has the reasons; replace or enable them there.",
        "warning",
    )


def _examine_hosts() -> Diagnosis:
    rows = Provider.objects.filter(enabled=True).order_by("pk")
    hosts = {urlsplit(row.origin).hostname or "" for row in rows}
    unlisted = sorted(host for host in hosts if host and not is_listed(host))
    return judge(
        "outbound hosts",
        not unlisted,
        f"OUTBOUND_HOSTS does not name hosts of providers: {', '.join(unlisted)}.",
        "Add them, or disable these providers.",
        "warning",
    )


def _examine_mail() -> Diagnosis:
    if not settings.SENDS_MAIL:
        return Diagnosis(
            "mail",
            "warning",
            "No mail server is set, so nobody can reset a forgotten password.",
            "Set MAIL_HOST.",
        )
    server = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    try:
        with get_connection(timeout=PATIENCE):
            pass
    except smtplib.SMTPAuthenticationError:
        text = f"The mail server {server} refuses MAIL_USER or MAIL_PASSWORD."
        return Diagnosis("mail", "error", text, "Correct them.")
    except (OSError, smtplib.SMTPException):
        text = f"The mail server {server} cannot be reached."
        advice = "Check MAIL_HOST, MAIL_PORT and MAIL_SECURITY, and the firewall."
        return Diagnosis("mail", "error", text, advice)
    return Diagnosis("mail", "ok", "Fine.")


def _examine_bucket() -> Diagnosis:
    """Writes, reads and deletes a small file."""
    name, content = f"doctor/{uuid4().hex}", b"written by parley doctor"
    act, bucket = "write", settings.STORAGES["default"]["OPTIONS"]["bucket_name"]
    try:
        default_storage.save(name, ContentFile(content))
        act = "read"
        with default_storage.open(name) as file:
            is_same = file.read() == content
        act = "list"
        default_storage.listdir("doctor")
        act = "delete"
        default_storage.delete(name)
        is_consistent = is_same and not default_storage.exists(name)
    except (FilesUnavailable, FileNotFoundError) as exc:
        return Diagnosis("bucket", "error", *_explain_bucket(exc, act, bucket))
    return judge(
        "bucket",
        is_consistent,
        f"The bucket {bucket} returns other bytes than were written, or deleted files.",
        "Use a storage that reads what was last written.",
    )


_REFUSED_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "NoCredentialsError")


def _explain_bucket(exc: OSError, act: str, bucket: str) -> tuple[str, str]:
    """What is wrong, and what to do."""
    reason = getattr(exc, "reason", "not found")
    if reason == "NoSuchBucket":
        return f"There is no bucket {bucket}.", "Create it, or correct S3_BUCKET."
    if reason in _REFUSED_KEYS:
        text = f"The host of the bucket {bucket} refuses the key, or there is none."
        return text, "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    if reason in ("AccessDenied", "403"):
        text = f"The key may not {act} files in the bucket {bucket}."
        return text, "Allow s3:PutObject, GetObject, DeleteObject and ListBucket."
    if reason.endswith("Error"):  # a class, and no answer of the host
        text = f"The host of the bucket {bucket} does not answer ({reason})."
        return text, "Check S3_ENDPOINT_URL, its certificate and the firewall."
    text = f"The bucket {bucket} fails to {act} files ({reason})."
    return text, "Check the S3_ variables and the host's own log."
