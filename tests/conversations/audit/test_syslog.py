"""Each linked event is one line of JSON at the syslog server, without texts."""

from __future__ import annotations

import json
import logging
import socket

import pytest
from django.contrib.auth.models import User

from conversations.audit.act import Act, acting
from conversations.audit.models import AuditEvent
from conversations.audit.record import record_event
from conversations.audit.syslog import AuditSysLogHandler

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def syslog():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        yield server


@pytest.fixture
def stream():
    """Adds a handler for an address; removes it after the test."""
    logger, added = logging.getLogger("audit.stream"), []

    def send_to(*address: str) -> None:
        handler = AuditSysLogHandler(address)
        logger.addHandler(handler)
        added.append(handler)

    yield send_to
    for handler in added:
        logger.removeHandler(handler)
        handler.close()


def test_an_event_is_sent_once_it_is_linked(syslog, stream):
    user = User.objects.create_user("ada-of-these-tests")
    stream("udp", "127.0.0.1", str(syslog.getsockname()[1]))

    with acting(Act(actor=user)):
        record_event("test.act", reason="words-of-a-person")

    line = syslog.recv(65536).decode()
    assert line.startswith("<38>parley audit: {")  # facility auth, severity info
    sent = json.loads(line.partition("audit: ")[2])
    event = AuditEvent.objects.get(action="test.act")
    assert (sent["position"], sent["hash"]) == (event.position, event.hash)
    assert (sent["action"], sent["actor"]) == ("test.act", user.pk)
    assert "ada-of" not in line
    assert "words" not in line


def test_a_server_that_is_away_fails_no_act(stream, caplog, tmp_path):
    stream("unix", str(tmp_path / "nobody"))

    record_event("test.act")

    assert AuditEvent.objects.get().position == 1
    assert "AUDIT_SYSLOG: an event was not sent" in caplog.text
