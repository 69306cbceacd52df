"""The chain: append-only rows, links without forks, what verification finds."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from multiprocessing import get_context

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone

from conversations.audit import chain, triggers
from conversations.audit.act import Act, acting
from conversations.audit.chain import FIRST, fingerprint, link_events, log_head, prune
from conversations.audit.models import (
    AppendOnly,
    AuditCheckpoint,
    AuditEvent,
    AuditText,
)
from conversations.audit.record import record_event
from tests.serving import BASE

pytestmark = pytest.mark.django_db(transaction=True)

PROCESSES, EACH = 4, 15


def verify(*heads: str) -> tuple[int, str]:
    """The exit code, and all that the command has written."""
    out, err = StringIO(), StringIO()
    arguments = [part for head in heads for part in ("--head", head)]
    try:
        call_command("verify_audit", *arguments, stdout=out, stderr=err)
    except CommandError as exc:
        return exc.returncode, f"{out.getvalue()}{err.getvalue()}{exc}"
    return 0, out.getvalue()


def test_the_example_of_the_document_records_an_event():
    text = (BASE / "docs/audit.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block, "docs/audit.md", "exec"), {"token": ("token", 7)})
    event = AuditEvent.objects.get(action="budget.raise")
    assert (event.target_type, event.target_id) == ("token", "7")


def record(count: int) -> list[AuditEvent]:
    for number in range(count):
        record_event("test.act", target=("thing", number), after={"number": number})
    return list(AuditEvent.objects.order_by("id"))


def without_triggers(sql: str, *values: object) -> None:
    """As somebody who owns the database."""
    triggers.remove(connection)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute(sql, values)
    triggers.install(connection)


def head() -> str:
    last = AuditEvent.objects.order_by("position").last()
    return f"{last.position}:{last.hash}"


def test_events_are_linked_in_order_and_verify():
    events = record(5)

    assert [event.position for event in events] == [1, 2, 3, 4, 5]
    assert len({event.hash for event in events}) == 5
    code, text = verify(head())
    assert code == 0
    assert "5 events verified, 0 texts erased, 0 not linked" in text


def test_an_event_is_gone_with_the_transaction_of_its_act():
    with suppress(ZeroDivisionError), transaction.atomic():
        record_event("test.act")
        raise ZeroDivisionError

    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.save(),
        lambda row: row.delete(),
        lambda row: type(row).objects.update(pk=5),
        lambda row: type(row).objects.filter(pk=row.pk).delete(),
        lambda row: type(row).objects.bulk_update([row], ["pk"]),
    ],
)
@pytest.mark.parametrize("model", [AuditEvent, AuditText])
def test_django_changes_and_deletes_no_row(model, change):
    record(1)

    with pytest.raises(AppendOnly):
        change(model.objects.get())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_auditevent SET actor = 7",
        "UPDATE audit_auditevent SET position = 9",
        "DELETE FROM audit_auditevent",
        "UPDATE audit_audittext SET details = '{}'",
        "UPDATE audit_audittext SET identity = 'Eve'",
        "DELETE FROM audit_audittext",
        "UPDATE audit_auditcheckpoint SET position = 9",
        "DELETE FROM audit_auditcheckpoint",
    ],
)
def test_the_database_itself_refuses(statement):
    record(3)
    days_ago(AuditEvent.objects.order_by("id").first(), 10)
    assert list(prune(5)) == [1]

    refused = pytest.raises(DatabaseError, match="append-only")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE audit_auditevent SET actor = 7 WHERE position = 2", "Event 2: was"),
        ("UPDATE audit_auditevent SET action = 'x' WHERE position = 1", "Event 1: was"),
        ("UPDATE audit_audittext SET details = '{}' WHERE event_id = {2}", "altered"),
        ("UPDATE audit_audittext SET details = NULL WHERE event_id = {2}", "removed"),
        ("DELETE FROM audit_audittext WHERE event_id = {2}", "its texts were removed"),
    ],
)
def test_verification_finds_what_was_altered(statement, finding):
    events = record(3)

    without_triggers(statement.replace("{2}", str(events[1].pk)))

    code, text = verify()
    assert code == 1
    assert finding in text


@pytest.mark.parametrize(("position", "heads"), [(1, 0), (2, 0), (3, 1)])
def test_verification_finds_what_was_removed(position, heads):
    """The newest event is missed only by a head that was recorded."""
    event = record(3)[position - 1]
    recorded = [head()][:heads]

    without_triggers("DELETE FROM audit_audittext WHERE event_id = %s", event.pk)
    without_triggers("DELETE FROM audit_auditevent WHERE id = %s", event.pk)

    code, text = verify(*recorded)
    assert code == 1
    assert f"Event {position}: " in text


def test_a_chain_that_was_computed_anew_without_the_key_is_found(settings):
    record(3)
    recorded = head()
    own, settings.AUDIT_KEYS = settings.AUDIT_KEYS, ["of the attacker"]
    without_triggers("UPDATE audit_auditevent SET actor = 7, position = NULL")
    link_events()
    settings.AUDIT_KEYS = own

    code, text = verify()

    assert code == 1
    assert "has a key that AUDIT_KEYS lacks" in text
    assert verify(recorded)[0] == 1


def test_a_new_key_signs_and_the_old_one_still_verifies(settings):
    record(2)
    settings.AUDIT_KEYS = ["new", *settings.AUDIT_KEYS]
    record(2)

    assert verify()[0] == 0
    assert AuditEvent.objects.values("key_id").distinct().order_by().count() == 2


def test_missing_triggers_are_found():
    record(1)
    triggers.remove(connection)

    code, text = verify()

    triggers.install(connection)
    assert code == 1
    assert "triggers are missing" in text


def days_ago(event: AuditEvent, days: int) -> None:
    """Rewrite history up to this event, as the clock of that day would have."""
    moment = timezone.now() - timedelta(days=days)
    without_triggers(
        "UPDATE audit_auditevent SET at = %s, position = NULL WHERE id <= %s",
        moment,
        event.pk,
    )
    without_triggers("UPDATE audit_auditevent SET position = NULL")
    link_events()


def test_an_event_that_is_dated_in_the_future_does_not_stop_retention():
    events = record(5)
    days_ago(events[3], 100)
    without_triggers(
        "UPDATE audit_auditevent SET at = %s, position = NULL WHERE id = %s OR id = %s",
        timezone.now() + timedelta(days=365),
        events[1].pk,
        events[4].pk,
    )
    without_triggers("UPDATE audit_auditevent SET position = NULL")
    link_events()

    assert sum(prune(30)) == 4

    assert [event.pk for event in AuditEvent.objects.all()] == [events[4].pk]
    assert verify()[0] == 0


def test_more_events_of_a_fast_clock_than_a_batch_do_not_stop_retention(monkeypatch):
    monkeypatch.setattr(chain, "BATCH", 3)
    events = record(9)
    days_ago(events[7], 100)
    without_triggers(
        "UPDATE audit_auditevent SET at = %s, position = NULL WHERE id <= %s",
        timezone.now() + timedelta(days=365),
        events[6].pk,
    )
    without_triggers("UPDATE audit_auditevent SET position = NULL")
    link_events()

    batches = list(prune(30))

    assert sum(batches) == 8
    assert max(batches) == 3
    assert [event.pk for event in AuditEvent.objects.all()] == [events[8].pk]
    assert verify()[0] == 0


def test_retention_leaves_a_signed_checkpoint():
    events = record(6)
    days_ago(events[3], 100)

    assert sum(prune(30)) == 4

    row = AuditCheckpoint.objects.get()
    assert (row.position, AuditText.objects.count()) == (4, 2)
    assert verify(head(), f"{row.position}:{row.hash}")[0] == 0
    record(1)
    assert verify()[0] == 0

    without_triggers("UPDATE audit_auditcheckpoint SET hash = %s", "0" * 64)
    code, text = verify()
    assert code == 1
    assert "signature" in text


def test_processes_append_at_once_and_the_chain_has_no_fork():
    work = get_context("fork").Process
    connections.close_all()
    children = [work(target=append, args=(n,)) for n in range(PROCESSES)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * PROCESSES

    link_events()
    events = AuditEvent.objects.order_by("position")
    count = 2 * PROCESSES * EACH  # each user, and the act
    assert [event.position for event in events] == list(range(1, count + 1))
    assert verify()[0] == 0


def append(process: int) -> None:
    for number in range(EACH):
        with transaction.atomic():
            User.objects.create_user(f"person-{process}-{number}")
            record_event("test.act", target=("thing", number))
    connections.close_all()


def test_what_a_crash_left_unlinked_is_linked_with_the_next_event(monkeypatch):
    monkeypatch.setattr(
        "conversations.audit.record.link_events", lambda: None
    )  # dies before it
    record(2)
    assert AuditEvent.objects.filter(position=None).count() == 2
    assert "2 not linked yet" in verify()[1]
    monkeypatch.undo()

    record(1)

    assert "3 events verified" in verify()[1]


def test_the_actor_is_named_beside_the_event_and_not_in_it():
    user = User.objects.create_user("ada-of-these-tests")
    with acting(Act(channel="command", actor=user, identity={"command": "x"})):
        event = record_event("test.act", reason="Because", before={"a": 1})

    text = AuditText.objects.get(event=event)
    assert json.loads(text.identity) == {"command": "x", "name": "ada-of-these-tests"}
    assert json.loads(text.details) == {"before": {"a": 1}, "reason": "Because"}
    assert (event.actor, event.channel) == (user.pk, "command")
    assert "ada-of" not in repr(AuditEvent.objects.values().get(pk=event.pk))


def test_the_log_names_the_head(caplog):
    with caplog.at_level("INFO", "conversations.audit"):
        log_head()
        record(1)
        log_head()

    heads = re.findall(r"head (\d+:[0-9a-f]{64})", caplog.text)
    assert heads == [f"0:{FIRST}", head()]
    assert verify(heads[1])[0] == 0


def test_fingerprints_tell_secrets_apart_and_reveal_none():
    assert fingerprint("a") == fingerprint("a") != fingerprint("b")
    assert re.fullmatch("[0-9a-f]{12}", fingerprint("a"))
