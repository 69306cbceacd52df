"""Webhooks on the settings page, by REST and in the admin."""

from __future__ import annotations

import re

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from conversations.forms.webhook_forms import StaffWebhookForm, WebhookChangeForm
from conversations.models import Delivery, EventType, WebhookEndpoint
from tests.conversations.scene import a_user, bearer, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

URL = "https://hooks.example.org/parley"
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]{40,}")


def form(**fields):
    return {"name": "Mine", "url": URL, "events": ["response.completed"], **fields}


@pytest.fixture
def ada():
    return a_user("ada")


def test_the_secret_is_shown_once_and_stored_encrypted(ada):
    client = signed_in(ada)
    page = client.post("/settings/webhooks/", form()).content.decode()
    (secret,) = set(SECRET.findall(page))
    row = WebhookEndpoint.objects.get()
    assert row.owner == ada
    assert row.secret.reveal() == secret
    stored = WebhookEndpoint.objects.filter(pk=row.pk).values_list("secret").get()
    assert secret not in repr(stored)
    for path in ("/settings/webhooks/", f"/settings/webhooks/{row.pk}/"):
        assert not SECRET.search(client.get(path).content.decode())


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/",
        "https://0x7f000001/",
        "https://ada:secret@hooks.example.org/",
        "ftp://hooks.example.org/",
        "https://hooks.example.org/#part",
        "javascript:alert(1)",
        "https://",
        "",
    ],
)
def test_addresses_that_may_not_be_are_refused(ada, url):
    answer = signed_in(ada).post("/settings/webhooks/", form(url=url))
    assert answer.status_code == 400
    assert not WebhookEndpoint.objects.exists()
    made = Client(headers=bearer(ada)).post(
        "/api/webhooks/", form(url=url), content_type="application/json"
    )
    assert made.status_code == 400


def test_users_cannot_allow_networks_or_name_others(ada):
    bob = a_user("bob")
    more = {"networks": "127.0.0.1", "owner": bob.pk, "users": [bob.pk]}
    signed_in(ada).post("/settings/webhooks/", form(**more))
    row = WebhookEndpoint.objects.get()
    assert (row.networks, row.owner, row.users.count()) == ("", ada, 0)


def test_a_user_has_ten_at_most(ada):
    client = signed_in(ada)
    for _ in range(12):
        client.post("/settings/webhooks/", form())
    assert WebhookEndpoint.objects.count() == 10


def test_an_unknown_event_is_refused(ada):
    answer = signed_in(ada).post("/settings/webhooks/", form(events=["x.y"]))
    assert answer.status_code == 400


def test_others_see_and_change_nothing(ada):
    signed_in(ada).post("/settings/webhooks/", form())
    row = WebhookEndpoint.objects.get()
    sent = Delivery.objects.create(endpoint=row, type=EventType.COMPLETED)
    bob = a_user("bob")
    client, api = signed_in(bob), Client(headers=bearer(bob))
    page = f"/settings/webhooks/{row.pk}/"
    assert client.get(page).status_code == 404
    again = f"deliveries/{sent.pk}/send/"
    for path in (page, f"{page}delete/", f"{page}secret/", page + again):
        assert client.post(path, form()).status_code == 404
    at = f"/api/webhooks/{row.pk}/"
    assert api.get(at).status_code == api.delete(at).status_code == 404
    assert api.get(f"{at}deliveries/").status_code == 404
    assert api.post(f"{at}secret/").status_code == 404
    assert api.post(at + again).status_code == 404
    assert api.post(f"/api/webhooks/{10**30}/{again}").status_code == 404
    own = Client(headers=bearer(ada))
    assert own.post(f"{at}deliveries/{10**30}/send/").status_code == 404
    assert api.get("/api/webhooks/").json()["results"] == []
    assert WebhookEndpoint.objects.get().name == "Mine"


def test_an_endpoint_of_staff_is_nobodys_own(ada, make_endpoint):
    row, _ = make_endpoint()
    page = f"/settings/webhooks/{row.pk}/"
    assert signed_in(ada).get(page).status_code == 404


def test_switched_on_it_begins_without_its_failures(ada, make_endpoint):
    row, _ = make_endpoint(
        owner=ada, is_enabled=False, failures=20, disabled_reason="It failed."
    )
    data = {"name": "Mine", "events": ["response.failed"], "is_enabled": "on"}
    signed_in(ada).post(f"/settings/webhooks/{row.pk}/", data)
    row.refresh_from_db()
    assert (row.is_enabled, row.failures, row.disabled_reason) == (True, 0, "")
    assert row.events == ["response.failed"]


@pytest.mark.parametrize("form_class", [WebhookChangeForm, StaffWebhookForm])
def test_a_change_undoes_nothing_that_happened_meanwhile(make_endpoint, form_class):
    row, secret = make_endpoint()
    changes = form(url=row.url, networks=row.networks, is_enabled="on", name="New")
    changed = form_class(changes, instance=WebhookEndpoint.objects.get())
    new_secret = WebhookEndpoint.objects.get().renew_secret()
    WebhookEndpoint.objects.update(is_enabled=False, disabled_reason="It failed.")
    assert changed.is_valid(), changed.errors
    changed.save()
    row.refresh_from_db()
    assert row.reveal_secrets() == [new_secret, secret]
    assert (row.is_enabled, row.disabled_reason) == (False, "It failed.")
    assert (row.name, row.events) == ("New", ["response.completed"])


def test_its_page_sends_again_renews_the_secret_and_deletes(ada, make_endpoint):
    row, secret = make_endpoint(owner=ada)
    sent = Delivery.objects.create(
        endpoint=row, type=EventType.FAILED, state="failed", attempts=13
    )
    client, page = signed_in(ada), f"/settings/webhooks/{row.pk}/"
    assert sent.event_id in client.get(page).content.decode()
    client.post(f"{page}deliveries/{sent.pk}/send/")
    sent.refresh_from_db()
    assert (sent.state, sent.attempts) == ("pending", 0)
    renewed = client.post(f"{page}secret/").content.decode()
    assert SECRET.search(renewed)
    assert secret not in renewed
    client.post(f"{page}delete/")
    assert not WebhookEndpoint.objects.exists()


def test_programs_have_the_same_by_rest(ada):
    api = Client(headers=bearer(ada))
    options = {"content_type": "application/json"}
    made = api.post("/api/webhooks/", {"name": "Mine", "url": URL}, **options)
    assert made.status_code == 201
    body = made.json()
    assert SECRET.fullmatch(body["secret"])
    assert body["events"] == EventType.values
    at = f"/api/webhooks/{body['id']}/"
    assert "secret" not in api.get(at).json()
    changed = api.patch(at, {"is_enabled": False}, **options).json()
    assert (changed["is_enabled"], changed["name"]) == (False, "Mine")
    assert api.patch(at, {"events": []}, **options).status_code == 400
    assert api.patch(at, {"url": URL}, **options).status_code == 400
    sent = Delivery.objects.create(endpoint_id=body["id"], type=EventType.COMPLETED)
    (listed,) = api.get(f"{at}deliveries/?state=pending").json()["results"]
    assert listed["event_id"] == sent.event_id
    again = api.post(f"{at}deliveries/{sent.pk}/send/")
    assert again.status_code == 202
    renewed = api.post(f"{at}secret/").json()["secret"]
    assert renewed != body["secret"]
    assert api.delete(at).status_code == 204


# The admin


LIST = "admin:conversations_webhookendpoint_changelist"


def test_staff_make_an_endpoint_for_everybody_and_see_its_secret_once():
    client = signed_in(staff("root", "add_webhookendpoint", "view_webhookendpoint"))
    path = reverse("admin:conversations_webhookendpoint_add")
    data = form(networks="10.1.0.0/16", url="http://10.1.0.5/", is_enabled="on")
    answer = client.post(path, data)
    assert answer.status_code == 302, answer.content.decode()
    row = WebhookEndpoint.objects.get()
    (message,) = [m for m in get_messages(answer.wsgi_request) if "whsec_" in str(m)]
    assert row.secret.reveal().replace("+", "+") in str(message).replace("&#x3D;", "=")
    assert (row.owner, row.created_by.username) == (None, "root")
    page = client.get(reverse(LIST)).content.decode()
    assert len(SECRET.findall(page)) == 1, "the message"
    assert not SECRET.search(client.get(reverse(LIST)).content.decode())


def test_staff_with_few_rights_see_no_secret_and_make_none(ada, make_endpoint):
    row, secret = make_endpoint(owner=ada)
    client = signed_in(staff("looks", "view_webhookendpoint", "view_delivery"))
    change = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    for path in (change, reverse(LIST)):
        page = client.get(path)
        assert page.status_code == 200
        assert secret not in page.content.decode()
        assert secret[8:] not in page.content.decode()
    data = {"action": "renew_secrets", "_selected_action": [row.pk]}
    client.post(reverse(LIST), data)
    assert client.post(change, form()).status_code == 403
    row.refresh_from_db()
    assert row.secret.reveal() == secret
    assert signed_in(staff("none")).get(reverse(LIST)).status_code == 403


def test_staff_who_change_endpoints_get_no_secret_of_a_user(ada, make_endpoint):
    row, secret = make_endpoint(owner=ada)
    rights = ["view_webhookendpoint", "change_webhookendpoint"]
    client = signed_in(staff("root", *rights))
    data = {"action": "renew_secrets", "_selected_action": [row.pk]}
    answer = client.post(reverse(LIST), data, follow=True)
    assert not SECRET.search(answer.content.decode())
    change = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    client.post(change, form(url="https://eve.example.org/", is_enabled="on"))
    row.refresh_from_db()
    assert row.secret.reveal() == secret
    assert "eve" not in row.url


def test_deliveries_are_read_and_sent_again_in_the_admin(make_endpoint):
    row, _ = make_endpoint()
    sent = Delivery.objects.create(
        endpoint=row, type=EventType.FAILED, state="failed", attempts=13
    )
    path = reverse("admin:conversations_delivery_changelist")
    data = {"action": "send_again", "_selected_action": [sent.pk]}
    reader = signed_in(staff("looks", "view_delivery"))
    assert sent.event_id in reader.get(path).content.decode()
    reader.post(path, data)
    sent.refresh_from_db()
    assert sent.state == "failed"
    signed_in(staff("sends", "view_delivery", "change_delivery")).post(path, data)
    sent.refresh_from_db()
    assert sent.state == "pending"


def hidden_fields(page: str) -> dict[str, str]:
    """Those in which the page says what it was opened with."""
    fields = re.findall(r'<input type="hidden" name="(initial-[^"]+)"([^>]*)>', page)
    value = re.compile(r'value="([^"]*)"')
    return {
        name: found[1] if (found := value.search(rest)) else "" for name, rest in fields
    }


@pytest.mark.parametrize("of_staff", [False, True])
def test_renaming_does_not_switch_on_what_has_switched_itself_off(ada, of_staff):
    owner = None if of_staff else ada
    row = WebhookEndpoint(name="Mine", url=URL, owner=owner, events=["response.failed"])
    row.renew_secret()
    client = signed_in(staff("ops", "change_webhookendpoint") if of_staff else ada)
    address = (
        reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
        if of_staff
        else f"/settings/webhooks/{row.pk}/"
    )
    opened = hidden_fields(client.get(address).text)
    WebhookEndpoint.objects.update(
        is_enabled=False, failures=20, disabled_reason="It failed for two days."
    )
    sent = form(name="Renamed", is_enabled="on", networks="", **opened)
    assert client.post(address, sent).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.is_enabled, row.failures) == ("Renamed", False, 20)
    opened = hidden_fields(client.get(address).text)
    client.post(address, form(is_enabled="on", networks="", **opened))
    row.refresh_from_db()
    assert (row.is_enabled, row.failures) == (True, 0)
