"""The hash chain over the events: linking, verification, checkpoints.

The hash of an event is an HMAC over the hash before it and the event's columns. Its key
is outside the database (`settings.AUDIT_KEYS`, newest first), so write access to
the database alone is not enough to compute a chain anew.

Events are linked after the commit of their acts, in a transaction of their own that one
process at a time has. So acts never wait for each other, and the chain has no forks.
What a crash leaves unlinked, the next link of any process takes up.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from conversations.audit.models import AuditCheckpoint, AuditEvent, AuditText

FIRST = "0" * 64  # the hash before the first event
BATCH = 500  # events that one transaction links or removes
_LOCK_KEY = 7_262_318  # arbitrary key of the PostgreSQL advisory lock
_COLUMNS = (
    *("id", "action", "channel", "outcome", "actor", "subject"),
    *("target_type", "target_id", "identity_digest", "details_digest"),
)
_LINK = (
    "UPDATE audit_auditevent SET position = %s, key_id = %s, hash = %s WHERE id = %s"
)
#: One line of JSON for each linked event, without its texts; `AUDIT_SYSLOG` sends it.
stream = logging.getLogger("audit.stream")
logger = logging.getLogger(__name__)


def digest_text(salt: str, text: str) -> str:
    return hashlib.sha256(f"{salt}{text}".encode()).hexdigest()


def fingerprint(secret: str) -> str:
    """12 hexadecimal digits that identify a secret without revealing it."""
    return _mac(_keys()[0], f"fingerprint:{secret}")[:12]


def _keys() -> list[str]:
    keys: list[str] = settings.AUDIT_KEYS
    return keys


def _key_id(key: str) -> str:
    return hashlib.sha256(f"parley audit {key}".encode()).hexdigest()[:16]


def _mac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def hash_event(key: str, previous: str, position: int, event: AuditEvent) -> str:
    columns = {name: getattr(event, name) for name in _COLUMNS}
    columns |= {"at": event.at.isoformat(), "previous": previous, "position": position}
    return _mac(key, json.dumps(columns, sort_keys=True))


def link_events() -> int:
    """Link all events that are committed and not linked yet; return their number."""
    linked = 0
    while AuditEvent.objects.filter(position=None).exists():
        if not (count := _link_batch()):
            break
        linked += count
    return linked


@transaction.atomic
def _link_batch() -> int:
    _lock()
    position, previous = find_head()
    key = _keys()[0]
    key_id, lines, links = _key_id(key), [], []
    for event in AuditEvent.objects.filter(position=None).order_by("id")[:BATCH]:
        position += 1
        previous = hash_event(key, previous, position, event)
        links.append((position, key_id, previous, event.pk))
        values = {"position": position, "key_id": key_id, "hash": previous}
        lines.append(describe_event(event) | values)
    with connection.cursor() as cursor:
        cursor.executemany(_LINK, links)
    transaction.on_commit(partial(_send, lines), robust=True)
    return len(lines)


def _send(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        stream.info("%s", json.dumps(line, sort_keys=True))


def describe_event(event: AuditEvent) -> dict[str, Any]:
    """The event without its texts."""
    columns = {name: getattr(event, name) for name in _COLUMNS}
    linked = {"position": event.position, "key_id": event.key_id, "hash": event.hash}
    return {"at": event.at.isoformat(), **columns, **linked}


def _lock() -> None:
    """Until the end of the transaction. On SQLite it has the database's one lock."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])


def find_head() -> tuple[int, str]:
    """Position and hash of the last linked event."""
    linked = AuditEvent.objects.exclude(position=None).order_by("-position")
    if (found := linked.values_list("position", "hash").first()) is not None:
        return found[0] or 0, found[1]
    checkpoint = AuditCheckpoint.objects.order_by("-position").first()
    return (checkpoint.position, checkpoint.hash) if checkpoint else (0, FIRST)


def log_head() -> None:
    """The log is where an operator finds the hash that the chain must still have."""
    position, head = find_head()
    logger.info("audit log: head %d:%s", position, head)


# Retention


def prune(days: int) -> Iterator[int]:
    """Remove events older than `days` days, oldest first; a signed checkpoint stands
    for them. Yields the number of each batch.

    An event dated in the future was recorded while a clock was ahead. It expires with
    its neighbours; otherwise it would stop the removal until that date.
    """
    until = _find_last_expired(timezone.now() - timedelta(days=days))
    while count := _prune_batch(until):
        yield count


def _find_last_expired(before: datetime) -> int:
    """The position of the last event before the first recent one; 0 if none has
    expired."""
    linked = AuditEvent.objects.exclude(position=None)
    recent = linked.filter(at__range=(before, timezone.now())).order_by("position")
    expired = linked.filter(at__lt=before).order_by("-position")
    if (first := recent.values_list("position", flat=True).first()) is not None:
        expired = expired.filter(position__lt=first)
    return expired.values_list("position", flat=True).first() or 0


@transaction.atomic
def _prune_batch(until: int) -> int:
    _lock()
    linked = AuditEvent.objects.filter(position__lte=until)
    expired = list(linked.order_by("position")[:BATCH])
    if not expired:
        return 0
    last, key = expired[-1], _keys()[0]
    row = AuditCheckpoint(position=last.position or 0, hash=last.hash)
    row.created_at, row.key_id = timezone.now(), _key_id(key)
    row.signature = _sign(key, row)
    row.save(force_insert=True)
    pks = [event.pk for event in expired]
    AuditText.chained.filter(pk__in=pks).delete()
    AuditEvent.chained.filter(pk__in=pks).delete()
    return len(expired)


def _sign(key: str, row: AuditCheckpoint) -> str:
    signed = [row.position, row.hash, row.created_at.isoformat()]
    return _mac(key, f"checkpoint:{json.dumps(signed)}")


# Verification


class Verification:
    """Reads the whole log and collects what is wrong with it, as sentences."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.linked = self.erased = 0
        self.unlinked = AuditEvent.objects.filter(position=None).count()
        self._keys = {_key_id(key): key for key in _keys()}
        #: Users whose texts were erased, as events of erasure say.
        erasures = AuditEvent.objects.filter(action="person.erase")
        self._erased_users = set(erasures.values_list("subject", flat=True))

    def run(self, heads: dict[int, str]) -> None:
        """`heads`: hashes by position that the log or another system has recorded."""
        position, previous = self._check_checkpoints(heads)
        rows = AuditEvent.objects.exclude(position=None).order_by("position")
        for event in rows.select_related("text").iterator(chunk_size=BATCH):
            position = self._check_position(position, event)
            self._check_hash(previous, event)
            self._check_texts(event)
            previous = event.hash
            if heads.pop(position, previous) != previous:
                self._find(position, "its hash is not the recorded one")
            self.linked += 1
        for missing in heads:
            self._find(missing, "is missing, but its hash was recorded")

    def _find(self, position: int | None, what: str) -> None:
        self.findings.append(f"Event {position}: {what}.")

    def _check_checkpoints(self, heads: dict[int, str]) -> tuple[int, str]:
        position, previous = 0, FIRST
        for row in AuditCheckpoint.objects.order_by("position"):
            position, previous = row.position, row.hash
            if (key := self._keys.get(row.key_id)) is None:
                self._find(position, "its checkpoint has a key that AUDIT_KEYS lacks")
            elif not hmac.compare_digest(row.signature, _sign(key, row)):
                self._find(position, "the signature of its checkpoint is wrong")
            if heads.get(position, previous) != previous:
                self._find(position, "its hash is not the recorded one")
        for earlier in [each for each in heads if each <= position]:
            del heads[earlier]
        return position, previous

    def _check_position(self, last: int, event: AuditEvent) -> int:
        position = event.position or 0
        if position > last + 1:
            many = f"{last + 1} to {position - 1}"
            is_one = position == last + 2
            self.findings.append(
                f"Event {last + 1}: was removed."
                if is_one
                else f"Events {many}: were removed."
            )
        return position

    def _check_hash(self, previous: str, event: AuditEvent) -> None:
        if (key := self._keys.get(event.key_id)) is None:
            self._find(event.position, "its hash has a key that AUDIT_KEYS lacks")
            return
        position = event.position or 0
        expected = hash_event(key, previous, position, event)
        if not hmac.compare_digest(expected, event.hash):
            self._find(position, "was altered, or follows a removed one")

    def _check_texts(self, event: AuditEvent) -> None:
        text = getattr(event, "text", None)
        if text is None:
            self._find(event.position, "its texts were removed")
            return
        actor = event.subject if event.actor is None else event.actor
        for name, user in (("identity", actor), ("details", event.subject)):
            found = getattr(text, name)
            salt = getattr(text, f"{name}_salt")
            digest = getattr(event, f"{name}_digest")
            if found is not None:
                if digest_text(salt or "", found) != digest:
                    self._find(event.position, f"its {name} was altered")
            elif user in self._erased_users:
                self.erased += 1
            else:
                self._find(event.position, f"its {name} was removed")
