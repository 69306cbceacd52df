"""The admin of webhooks, for staff who may not list the users."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from conversations.models import Delivery, WebhookEndpoint

pytestmark = pytest.mark.django_db

ADD = "admin:conversations_webhookendpoint_add"
RIGHTS = ("add_webhookendpoint", "change_webhookendpoint", "view_webhookendpoint")


def operator(*rights: str) -> User:
    user = User.objects.create_user("ops", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return user


@pytest.fixture
def ops(client: Client) -> Client:
    client.force_login(operator(*RIGHTS, "change_delivery", "view_delivery"))
    return client


def form(**fields: object) -> dict[str, object]:
    usual = {"name": "pager", "url": "https://hooks.test/p", "networks": ""}
    return {**usual, "events": ["response.completed"], "is_enabled": "on", **fields}


def test_users_are_named_where_they_may_not_be_listed(ops: Client):
    ada, ben = (User.objects.create_user(name) for name in ("ada", "ben"))
    group = Group.objects.create(name="research")
    page = ops.get(reverse(ADD)).content.decode()
    assert "autocomplete/" not in page
    assert "ada" not in page
    answer = ops.post(
        reverse(ADD), form(users="ada\r\n ben \r\n", groups=[group.pk]), follow=True
    )
    row = WebhookEndpoint.objects.get()
    assert {*row.users.all()} == {ada, ben}, answer.content.decode()
    assert [*row.groups.all()] == [group]
    address = reverse("admin:conversations_webhookendpoint_change", args=[row.pk])
    assert "ada\nben</textarea>" in ops.get(address).content.decode()
    ops.post(address, form(users="ben", groups=[group.pk]))
    assert [*row.users.all()] == [ben]


def test_an_unknown_name_is_said(ops: Client):
    User.objects.create_user("ada")
    page = ops.post(reverse(ADD), form(users="ada\nnobody")).content.decode()
    assert "There is no user “nobody”." in page
    assert not WebhookEndpoint.objects.exists()


def test_who_may_list_users_searches_them(client: Client):
    client.force_login(operator(*RIGHTS, "view_user", "view_group"))
    page = client.get(reverse(ADD)).content.decode()
    assert page.count("/admin/autocomplete/") == 2


@pytest.fixture
def delivery(db: None) -> Delivery:
    endpoint = WebhookEndpoint(name="pager", url="https://hooks.test/p")
    endpoint.renew_secret()
    return Delivery.objects.create(
        endpoint=endpoint,
        event_id="evt_1",
        type="response.completed",
        data={},
        state=Delivery.State.FAILED,
        attempts=7,
    )


def page_of(delivery: Delivery) -> str:
    return reverse("admin:conversations_delivery_change", args=[delivery.pk])


def test_a_button_sends_a_delivery_again(ops: Client, delivery: Delivery):
    page = ops.get(page_of(delivery)).content.decode()
    assert 'name="_send_again"' in page
    assert 'name="_save"' not in page
    answer = ops.post(page_of(delivery), {"_send_again": "Send again"}, follow=True)
    assert "1 delivery is sent again." in answer.content.decode()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (Delivery.State.PENDING, 0)
    [entry] = LogEntry.objects.filter(object_id=delivery.pk)
    assert entry.get_change_message() == "Sent again."


def test_who_may_only_look_has_no_button(client: Client, delivery: Delivery):
    client.force_login(operator("view_delivery"))
    assert "_send_again" not in client.get(page_of(delivery)).content.decode()
    assert client.post(page_of(delivery), {"_send_again": "1"}).status_code == 403
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.FAILED
