"""Staff say why before they read what others have written, once in a session."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import NoReverseMatch, reverse
from django.utils.http import urlencode

from conversations.audit.models import AuditEvent, AuditText
from conversations.models import AccessToken, Conversation, LoggedRequest, Rating
from project.admin_pages.reading_reasons import PAGES
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db
#: Configuration, figures, ids and states.
WITHOUT_WORDS = {
    *("accesstoken", "announcement", "contextsource", "conversationimport"),
    *("delivery", "idempotencykey", "lastseen", "legalhold", "limitraise"),
    *("participant", "preset", "replayset", "retentionrule", "sharelink"),
    *("sharerule", "tag", "termsversion", "usagelimit", "webhookendpoint"),
}


@pytest.fixture(autouse=True)
def asking(settings):
    settings.READING_NEEDS_REASON = True


@pytest.fixture
def turn():
    row = Conversation.objects.create(owner=a_user("ada"))
    return a_finished_turn(row, "words-of-ada")


@pytest.fixture
def reader() -> Client:
    return signed_in(staff("reader", "inspect_turn", "view_turn"))


def page_of(turn: Any) -> str:
    return reverse("admin:conversations_turn_change", args=[turn.pk])


def events_of(turn: Any) -> str:
    return reverse("admin:conversations_turn_events", args=[turn.pk])


def reads() -> list[dict[str, Any]]:
    events = AuditEvent.objects.filter(action="content.read").order_by("id")
    texts = AuditText.objects.in_bulk([event.pk for event in events])
    return [json.loads(texts[event.pk].details or "{}") for event in events]


def test_the_reason_is_asked_first_and_once(reader, turn):
    asked = reader.get(page_of(turn))
    assert asked.status_code == 302
    assert "words-of-ada" not in asked.content.decode()
    reason_page = asked["Location"]
    assert "Why do you read this?" in reader.get(reason_page).content.decode()
    assert reads() == []

    data = {"reason": "Ticket 4711", "next": page_of(turn)}
    assert reader.post(reason_page, data)["Location"] == page_of(turn)
    for _ in range(2):
        assert "words-of-ada" in reader.get(page_of(turn)).content.decode()

    assert reads() == [{"reason": "Ticket 4711"}] * 2
    event = AuditEvent.objects.filter(action="content.read").first()
    assert (event.target_id, event.subject) == (turn.pk, turn.conversation.owner_id)


@pytest.mark.parametrize("rights", [["view_tool"], ["view_turn"]])
def test_who_may_not_read_is_refused_before_being_asked(turn, rights):
    client = signed_in(staff("curious", *rights))
    for page in (page_of(turn), events_of(turn)):
        answer = client.get(page)
        assert "reason" not in answer.get("Location", "")
        assert answer.status_code in (302, 403, 404)
    assert reads() == []


def test_the_look_before_the_question_leaves_no_record(reader, turn):
    before = AuditEvent.objects.count(), LogEntry.objects.count()
    assert "reason" in reader.get(page_of(turn))["Location"]
    assert (AuditEvent.objects.count(), LogEntry.objects.count()) == before


def test_the_addresses_of_lists_ask_as_well(reader, turn):
    """They quote the underscore of an id, as the admin does."""
    quoted = page_of(turn).replace("resp_", "resp_5F")
    listed = reader.get(reverse("admin:conversations_turn_changelist"))
    assert quoted in listed.content.decode()

    assert reader.get(quoted)["Location"].startswith(reverse("admin:reading_reason"))
    assert reads() == []
    reader.post(reverse("admin:reading_reason"), {"reason": "Ticket 4711"})
    assert "words-of-ada" in reader.get(quoted).content.decode()
    assert reads() == [{"reason": "Ticket 4711"}]


def test_a_refused_change_does_not_show_the_page_without_a_reason(turn):
    """A form with a mistake is shown again, with the rows beside it."""
    item = turn.items.latest("position")
    client = signed_in(a_user("root", is_staff=True, is_superuser=True))
    address = reverse("admin:conversations_item_change", args=[item.pk])

    answer = client.post(address, {"payload": "no JSON"})

    assert answer["Location"].startswith(reverse("admin:reading_reason"))
    assert "words-of-ada" not in answer.content.decode()


def test_another_session_is_asked_again(reader, turn):
    reader.post(reverse("admin:reading_reason"), {"reason": "Ticket 4711"})
    assert reader.get(page_of(turn)).status_code == 200

    again = signed_in(turn.conversation.owner.__class__.objects.get(username="reader"))

    assert again.get(page_of(turn)).status_code == 302


@pytest.mark.parametrize("reason", ["", "   ", "abc", "x" * 501])
def test_a_reason_is_more_than_a_word(reader, turn, reason):
    data = {"reason": reason, "next": page_of(turn)}
    assert reader.post(reverse("admin:reading_reason"), data).status_code == 200
    assert reader.get(page_of(turn)).status_code == 302


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "x:y"]
)
def test_the_reason_leads_to_no_other_site(reader, elsewhere):
    data = {"reason": "Ticket 4711", "next": elsewhere}
    answer = reader.post(reverse("admin:reading_reason"), data)
    assert answer["Location"] == reverse("admin:index")


def test_what_is_ones_own_needs_no_reason(turn):
    owner = turn.conversation.owner
    owner.is_staff = owner.is_superuser = True
    owner.save()

    assert signed_in(owner).get(page_of(turn)).status_code == 200
    assert reads() == []


def test_who_may_not_read_is_refused_and_nothing_is_recorded(turn):
    clerk = signed_in(staff("clerk", "view_user"))
    clerk.post(reverse("admin:reading_reason"), {"reason": "Ticket 4711"})

    assert clerk.get(page_of(turn)).status_code in (302, 403)
    assert reads() == []


def test_an_export_needs_a_reason(turn):
    client = signed_in(a_user("root", is_staff=True, is_superuser=True))
    address = reverse("admin:conversations_conversation_changelist")
    data = {"action": "export", "_selected_action": [turn.conversation_id]}

    # Of several actions, Django runs that of the index.
    for posted in (data, {**data, "action": ["export", ""], "action_index": 0}):
        asked = client.post(address, posted)
        query = urlencode({"next": address})
        assert asked["Location"] == f"{reverse('admin:reading_reason')}?{query}"
    client.post(asked["Location"], {"reason": "Ticket 4711", "next": address})
    assert client.post(address, data)["Content-Type"] == "application/zip"


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_export_of_ratings_needs_a_reason_and_is_one_event(turn, kind):
    ada = turn.conversation.owner
    rows = [
        Rating.objects.create(turn=turn, user=user, value="bad", comment="words-of-ada")
        for user in (ada, a_user("bob"))
    ]
    client = signed_in(staff("ida", "view_rating", "export_ratings", "inspect_turn"))
    address = reverse("admin:conversations_rating_changelist")
    data = {"action": f"export_as_{kind}", "_selected_action": [r.pk for r in rows]}

    asked = client.post(address, data)

    assert asked["Location"].startswith(reverse("admin:reading_reason"))
    client.post(asked["Location"], {"reason": "Ticket 4711", "next": address})
    assert client.post(address, data).getvalue().count(b"words-of-ada") == 2
    event = AuditEvent.objects.get(action="content.export")
    details = json.loads(AuditText.objects.get(pk=event.pk).details or "")
    assert details == {"count": 2, "comments": True, "reason": "Ticket 4711"}


def test_the_stored_request_of_a_program_needs_a_reason_and_is_recorded():
    ada = a_user("ada")
    token, _secret = AccessToken.issue(ada, "ci")
    row = LoggedRequest.objects.create(
        token=token, seconds=1, request_body=zlib.compress(b"words-of-ada")
    )
    page = reverse("admin:conversations_loggedrequest_change", args=[row.pk])
    client = signed_in(staff("reader", "view_loggedrequest"))

    asked = client.get(page)

    assert asked["Location"].startswith(reverse("admin:reading_reason"))
    client.post(asked["Location"], {"reason": "Ticket 4711", "next": page})
    assert "words-of-ada" in client.get(page).text
    event = AuditEvent.objects.get(action="content.read")
    assert (event.target_id, event.subject) == (str(row.pk), ada.pk)


def test_each_page_of_a_row_is_read_with_a_reason_or_has_no_words():
    """Name the page of a new kind of row in `PAGES` if it shows what people wrote."""
    kinds = {
        model._meta.model_name
        for model in apps.get_app_config("conversations").get_models()
        if site.is_registered(model)
    }
    read = {name.split("_")[1] for name in PAGES if name.startswith("conversations")}
    assert kinds - read == WITHOUT_WORDS


@pytest.mark.parametrize("name", PAGES)
def test_each_page_exists_and_its_owner_can_be_looked_up(name):
    label, owner_of, argument = PAGES[name]
    model = apps.get_model(label if "." in label else f"conversations.{label}")
    list(model._base_manager.values_list(owner_of)[:1])
    arguments = {argument: 1} | ({"pk": 1} if argument == "row" else {})
    try:
        reverse(f"admin:{name}", kwargs=arguments)
    except NoReverseMatch:
        pytest.fail(f"no page {name}")


# Tools that are called as another user


def run_recall(client: Client, as_user: str) -> Any:
    tool = Tool.objects.get(name="recall")
    data = {"username": as_user, "arguments": "{}"}
    return client.post(reverse("admin:tools_tool_dry_run", args=[tool.pk]), data)


def test_who_may_not_read_others_tries_tools_only_as_oneself():
    a_user("ada")
    author = signed_in(staff("author", "view_tool", "dry_run_tool"))
    refused = run_recall(author, "ada").content.decode()
    assert "completed" not in refused
    assert "You may try tools only as yourself." in refused
    assert "completed" in run_recall(author, "author").content.decode()
    assert reads() == []


def test_a_tool_that_is_called_as_another_needs_a_reason_and_is_recorded():
    ada = a_user("ada")
    reader = signed_in(staff("reader", "view_tool", "dry_run_tool", "inspect_turn"))
    asked = run_recall(reader, "ada")
    assert asked.status_code == 302
    reader.post(asked["Location"], {"reason": "Ticket 4711"})
    assert "completed" in run_recall(reader, "ada").content.decode()
    assert reads() == [{"reason": "Ticket 4711"}]
    event = AuditEvent.objects.get(action="content.read")
    assert event.subject == ada.pk
