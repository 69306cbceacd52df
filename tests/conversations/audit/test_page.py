"""The admin's page of the audit log: filters, search, export, and who sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.urls import reverse

from conversations.admin.audit.action_labels import label_action
from conversations.audit.act import Act, acting
from conversations.audit.models import AuditEvent
from conversations.audit.record import record_event
from tests.conversations.scene import a_user, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:audit_auditevent_changelist"


@pytest.fixture
def events():
    ada, bob = a_user("ada"), a_user("bob")
    with acting(Act(actor=ada)):
        record_event("thing.add", target=("thing", "t-1"), after={"name": "<b>x</b>"})
    with acting(Act(actor=bob, channel="rest")):
        record_event("thing.delete", target=("thing", "t-2"), subject=ada)
    return AuditEvent.objects.filter(target_type="thing").order_by("id")


@pytest.fixture
def auditor():
    return signed_in(staff("auditor", "view_auditevent", "export_auditevent"))


def shown(client, **query):
    page = client.get(reverse(LIST), query)
    assert page.status_code == 200
    rows = page.context["cl"].result_list
    return [event.action for event in rows if event.action.startswith("thing")]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"action": "thing.add"}, ["thing.add"]),
        ({"target_type": "thing"}, ["thing.delete", "thing.add"]),
        ({"channel__exact": "rest"}, ["thing.delete"]),
        ({"outcome__exact": "refused"}, []),
        ({"q": "bob"}, ["thing.delete"]),
        ({"q": "ada"}, ["thing.delete", "thing.add"]),
        ({"q": "t-1"}, ["thing.add"]),
        ({"q": "thing.del"}, ["thing.delete"]),
        ({"q": "nobody"}, []),
        ({"at__year": "1999"}, []),
    ],
)
def test_events_are_found(auditor, events, query, found):
    assert shown(auditor, **query) == found


def test_acts_have_names_in_words(auditor, events):
    with acting(Act(channel="rest")):
        record_event("key.change", target=("llm.apikey", "1"))
    page = auditor.get(reverse(LIST)).content.decode()
    assert "API key: changed" in page
    assert ">thing.add<" in page  # of later releases
    filters = auditor.get(reverse(LIST), {"action": "key.change"})
    assert "API key: changed" in filters.content.decode()


def test_every_documented_act_has_a_name():
    text = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    codes = re.findall(
        r"`([a-z_]+(?:\.[a-z_]+)?)`", " ".join(r.split("|")[1] for r in rows)
    )
    assert len(codes) > 40
    assert [code for code in codes if label_action(code) == code] == []


def test_the_page_of_an_event_shows_its_texts_escaped(auditor, events):
    address = reverse("admin:audit_auditevent_change", args=[events[0].pk])
    page = auditor.get(address).content.decode()
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page
    assert "ada" in page


def test_the_export_has_the_filtered_events_as_lines_of_json(auditor, events):
    address = reverse("admin:audit_auditevent_export")
    answer = auditor.get(address, {"target_type": "thing"})
    lines = [json.loads(line) for line in b"".join(answer).splitlines()]
    assert [line["action"] for line in lines] == ["thing.add", "thing.delete"]
    assert lines[0]["identity"]["name"] == "ada"
    assert lines[0]["details"] == {"after": {"name": "<b>x</b>"}}
    assert lines[0]["hash"] == events[0].hash
    assert AuditEvent.objects.filter(action="log.export").count() == 1


def test_only_who_may_export_does(events):
    reader = signed_in(staff("reader", "view_auditevent"))
    address = reverse("admin:audit_auditevent_export")
    assert reader.get(address).status_code == 403
    assert address not in reader.get(reverse(LIST)).content.decode()
    clerk = signed_in(staff("clerk", "view_user"))
    assert clerk.get(reverse(LIST)).status_code == 403


def test_nobody_changes_or_deletes_an_event_in_the_admin(events):
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    address = reverse("admin:audit_auditevent_change", args=[events[0].pk])
    assert root.post(address, {"action": "x"}).status_code == 403
    delete = reverse("admin:audit_auditevent_delete", args=[events[0].pk])
    assert root.post(delete, {"post": "yes"}).status_code == 403
    assert root.get(reverse("admin:audit_auditevent_add")).status_code == 403
    assert events.count() == 2
